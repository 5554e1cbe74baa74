"""The timetable that a player makes by hand, as plain data for the page: rows of cells such as '2F5', one per rank."""

import re
from collections.abc import Sequence
from typing import Any

from lib import CLASSIC_SETTING, Trace, referee, run_async
from lib.errors import RuleError
from lib.ledger.algebra import counted
from lib.pipelines import Cell, Timetable
from lib.pipelines.bounds import memory_bound, pipeline_memory_bound, pipeline_time_bound, traffic_bound
from lib.pipelines.codegen import code_of
from lib.pipelines.player import Axes, BegunTable, Draft, axes_of, begun
from lib.pipelines.timetable import timetable_of
from puzzles.catalog.schedule import PUZZLES, SchedulePuzzle
from puzzles.tracks.schedule.judge import figures_of

from .shown import measures_data, viewed

OPERATIONS = {"F": "forward", "B": "backward", "I": "backward_input", "W": "backward_weight"}
CELL = re.compile(r"(\d{1,4})([A-Z])(\d{1,4})")
WIDE = ("gpipe", "pipeline", "three_d")
"""Puzzles whose stages have all layers of a rank; in the others a stage is a layer."""
SHARDED = ("breadth_first",)
"""Puzzles whose weights are cut along dp."""

Rows = Sequence[Sequence[str]]


def rows_of(slug: str) -> int:
    """The rows of a timetable: the ranks of one pipeline; 0 for a puzzle that has none."""
    return axes(PUZZLES[slug]).pp if slug in PUZZLES else 0


def stages_of(puzzle: SchedulePuzzle) -> int:
    return axes(puzzle).pp if puzzle.slug in WIDE else puzzle.goal.size.layers


def axes(puzzle: SchedulePuzzle) -> Axes:
    return axes_of(puzzle.goal.setting, puzzle.goal.size.ranks)


def has_halves(puzzle: SchedulePuzzle) -> bool:
    return "backward_input" in puzzle.calls


async def shown(puzzle: SchedulePuzzle, rows: Rows, colour: str = "") -> dict[str, Any]:
    """The draft with the time of each cell, what is missing, which moves are ready, and the figures of what can be
    computed of it; with a `colour` also the picture of that."""
    draft = draft_of(puzzle, rows)
    costs, depth, shards = puzzle.goal.costs, puzzle.goal.size.layers // stages_of(puzzle), axes(puzzle).tp
    durations = {
        op: depth * costs.duration(name, 1, 1, shards) for op, name in OPERATIONS.items() if costs.priced(name)
    }
    starts = draft.starts(durations)

    def at(cell: Cell, start: int) -> dict[str, Any]:
        return {"cell": str(cell), "start": start / costs.unit, "length": durations[cell.op] / costs.unit}

    def end(cell: Cell) -> int:
        return starts[cell] + durations[cell.op]

    return {
        "rows": [[at(cell, starts[cell]) for cell in row] for row in draft.rows],
        "ready": [
            {**at(cell, max(map(end, [*draft.step.of(cell), *draft.rows[rank][-1:]]), default=0)), "rank": rank}
            for cell, rank in draft.ready()
        ],
        "missing": [str(cell) for cell in draft.missing],
        "wanted": len(draft.wanted),
        "text": "\n".join(" ".join(map(str, row)) for row in draft.rows),
        **await _run(puzzle, draft, colour),
    }


async def _run(puzzle: SchedulePuzzle, draft: Draft, colour: str) -> dict[str, Any]:
    """What the cells that can be computed take, and their picture."""
    size, setting = puzzle.goal.size, puzzle.goal.setting
    try:
        table = BegunTable.of_draft(draft, has_tags=setting != CLASSIC_SETTING)
    except RuleError as why:
        return {"refusal": str(why)}
    trace = (await run_async(begun(table, puzzle.slug in SHARDED), *size, setting=setting)).trace
    report = referee(trace, puzzle.goal)
    depth = size.layers // table.stages
    sharing = size.ranks // axes(puzzle).pp
    stages = [(range(stage * depth, (stage + 1) * depth), sharing) for stage in range(table.stages)]
    least = {
        "timesteps": pipeline_time_bound(size, setting, stages),
        "peak_memory": max(
            memory_bound(size, setting), pipeline_memory_bound(size, setting, stages, puzzle.goal.time_limit)
        ),
        "traffic": traffic_bound(size, setting, puzzle.goal.time_limit),
    }
    found = measures_data(puzzle, figures_of(report, puzzle, size))
    view = None
    if colour:
        view = viewed(trace, puzzle.title, puzzle.goal, colour)
    return {
        "measures": [one | {"least": least[one["figure"]].least if one["figure"] in least else 0} for one in found],
        "makespan": report.makespan,
        "bubble": report.bubble,
        "view": view,
    }


def refusals(puzzle: SchedulePuzzle, rows: Rows, cell: str) -> list[list[str]]:
    """For each rank and place why a cell cannot be put there; empty where it can. Places are counted without it."""
    one = cell_of(cell)
    return draft_of(puzzle, rows).without(one).refusals(one)


def written(puzzle: SchedulePuzzle, rows: Rows) -> str:
    """The coroutine that plays a complete timetable."""
    draft = draft_of(puzzle, rows)
    if missing := draft.missing:
        few = ", ".join(map(str, missing[:4]))
        more = f" and {len(missing) - 4} more" if len(missing) > 4 else ""
        raise RuleError(f"{few}{more} {'is' if len(missing) == 1 else 'are'} not placed yet")
    goal = puzzle.goal
    return code_of(Timetable.of(draft.rows), puzzle.slug, goal.size, goal.setting, puzzle.slug in SHARDED)


def read(puzzle: SchedulePuzzle, text: str) -> list[list[str]]:
    """The rows of a timetable in text, complete or not, one rank to a line.

    Raises:
        RuleError: it has another number of ranks, or cells that the game has not.
    """
    lines, ranks = text.split("\n"), axes(puzzle).pp
    while len(lines) > ranks and not lines[-1].strip():
        lines.pop()
    if len(lines) != ranks:
        raise RuleError(f"got {counted(len(lines), 'line')}; write one for each of {counted(ranks, 'rank')}")
    rows = [re.findall(r"[^\s,]+", line) for line in lines]
    draft_of(puzzle, rows).starts(dict.fromkeys(OPERATIONS, 1))
    return rows


def of_run(puzzle: SchedulePuzzle, trace: Trace) -> list[list[str]]:
    """The timetable of a run."""
    table = timetable_of(trace, stages_of(puzzle))
    rows = [[str(cell) for slot in row for cell in slot] for row in table.rows]
    draft_of(puzzle, rows)
    return rows


def draft_of(puzzle: SchedulePuzzle, rows: Rows) -> Draft:
    cells = tuple(tuple(map(cell_of, row)) for row in rows)
    return Draft(cells, stages_of(puzzle), puzzle.goal.size.batches // axes(puzzle).dp, has_halves(puzzle))


def cell_of(word: str) -> Cell:
    found = CELL.fullmatch(word)
    if found is None:
        raise RuleError(f"{word[:40]!r} is not a cell; a cell is written as 2F5")
    return Cell(int(found[1]), found[2], int(found[3]))
