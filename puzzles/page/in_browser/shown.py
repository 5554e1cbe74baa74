"""What the page shows, as plain data: a verdict, the picture of a run, and the timetable that a player makes by hand.

A verdict comes with its words, figures and the next move, and a run as data for the interactive picture, or as SVG to
keep. A timetable by hand is rows of cells such as '2F5', one for each rank; it may be incomplete. The ledger plays what
can be computed of it, so that times, memory and refusals are those of a run. What draws is loaded only for a picture,
because verdicts do not wait for it.
"""

import re
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from functools import partial
from io import BytesIO, StringIO
from typing import Any

from lib import CLASSIC_SETTING, Goal, Trace, referee, run_async
from lib.errors import RuleError
from lib.ledger.algebra import counted
from lib.pipelines import Cell, Timetable
from lib.pipelines.bounds import memory_bound, pipeline_memory_bound, pipeline_time_bound, traffic_bound
from lib.pipelines.codegen import code_of
from lib.pipelines.player import Axes, BegunTable, Draft, axes_of, begun
from lib.pipelines.timetable import timetable_of
from lib.profiles import Shares, Source
from puzzles.catalog.puzzle import Puzzle
from puzzles.catalog.schedule import PUZZLES, SchedulePuzzle
from puzzles.judge.verdict import Verdict
from puzzles.screens.feedback import HEADLINES, achieved, story
from puzzles.tracks import track_of
from puzzles.tracks.outcomes import capitalized
from puzzles.tracks.schedule.judge import figures_of
from puzzles.tracks.schedule.show import can_be_drawn

# --- Verdicts ---


FAILED = "Fix it, and it runs again."
BLANK = "Write your lines between the two marks. They run whenever you pause."
OVER = "The hints help, from gentle to explicit."

MEANINGS = {"timesteps": "start of the last operation"}
"""What the name of a figure does not say."""


def described(puzzle: Puzzle, verdict: Verdict) -> dict[str, Any]:
    """What the page shows of a verdict."""
    track = track_of(puzzle.slug)
    return {
        "slug": puzzle.slug,
        "status": verdict.status,
        "stars": verdict.stars,
        "headline": HEADLINES[verdict.status],
        "measures": measures_data(puzzle, verdict.figures) if verdict.figures else [],
        "message": verdict.message,
        "line": verdict.line,
        "notes": [] if verdict.status == "passed" else list(verdict.notes),
        "details": [achieved(verdict), *verdict.notes] if verdict.status == "passed" else [],
        "why": list(verdict.why),
        "why_title": capitalized(track.words.why_title),
        "why_matters": verdict.why_matters,
        "praise": puzzle.praise if verdict.stars >= 3 else "",
        "next": next_move(verdict),
    }


def measures_data(puzzle: Puzzle, figures: Mapping[str, float]) -> list[dict[str, Any]]:
    """The figures beside their targets, as plain data."""
    return [
        {
            **measure._asdict(),
            "text": measure.value_text,
            "target_text": measure.target_text,
            "meaning": MEANINGS.get(measure.figure, ""),
        }
        for measure in track_of(puzzle.slug).words.measures(puzzle, figures)
    ]


def next_move(verdict: Verdict) -> str:
    """A sentence on what to do next."""
    match verdict.status:
        case "not_attempted":
            return BLANK
        case "failed":
            return FAILED
        case "over_target":
            return " ".join(filter(None, [verdict.advice, OVER]))
    return " ".join(story(verdict))


# --- Pictures ---


def viewed(trace: Trace, title: str, goal: Goal, colour: str) -> dict[str, Any] | None:
    """The interactive picture as data: its words and the run; None if there is nothing to draw."""
    if not can_be_drawn(trace):
        return None
    from drawing.html import run_data, view_words  # here, since verdicts do not wait for what draws
    from drawing.scene import scene_of

    scene = scene_of(trace, goal, colour)
    return {**view_words(scene, title), "run": run_data(scene)}


def profiled(files: list[list[str]]) -> dict[str, Any]:
    """A report on traces, and as data the pictures of a pipeline, with the lines that lead to its cells."""
    from drawing.html import run_data, view_words  # here, as above
    from puzzles.player.profile import profile  # here, since verdicts need no profiles
    from puzzles.screens.profile_pictures import page_parts

    found = profile(*(Source(name, partial(BytesIO, text.encode())) for name, text in files))
    if isinstance(found.study, Shares):
        return {"text": found.text, "views": [], "lines": [], "csv": ""}
    parts = page_parts(found.study)
    views = [
        {**view_words(scene, heading), "heading": heading, "run": run_data(scene)} for heading, scene in parts.views
    ]
    csv = found.csv() if found.study.prospect.better else ""
    return {"text": found.text, "views": views, "lines": parts.lines, "csv": csv}


def picture(trace: Trace, title: str, goal: Goal, colour: str, dark: bool) -> str:
    """The picture as papers have it, as SVG; empty if there is nothing to draw."""
    if not can_be_drawn(trace):
        return ""
    import drawing  # here, as above

    with redirect_stdout(StringIO()):  # `draw` prints the figures as well
        return drawing.svg(drawing.draw(trace, title, goal=goal, colour=colour, dark=dark))


def compared(mine: Trace, theirs: Trace, puzzle: SchedulePuzzle, colour: str, dark: bool) -> str:
    """A player's run above the reference, as SVG."""
    import drawing  # here, as above

    names = ("yours", "the reference")
    with redirect_stdout(StringIO()):
        return drawing.svg(
            drawing.draw_compare(mine, theirs, puzzle.title, names, goal=puzzle.goal, dark=dark, colour=colour)
        )


# --- A timetable by hand ---


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


async def draft_shown(puzzle: SchedulePuzzle, rows: Rows, colour: str = "") -> dict[str, Any]:
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


def code_written(puzzle: SchedulePuzzle, rows: Rows) -> str:
    """The coroutine that plays a complete timetable."""
    draft = draft_of(puzzle, rows)
    if missing := draft.missing:
        few = ", ".join(map(str, missing[:4]))
        more = f" and {len(missing) - 4} more" if len(missing) > 4 else ""
        raise RuleError(f"{few}{more} {'is' if len(missing) == 1 else 'are'} not placed yet")
    goal = puzzle.goal
    return code_of(Timetable.of(draft.rows), puzzle.slug, goal.size, goal.setting, puzzle.slug in SHARDED)


def rows_read(puzzle: SchedulePuzzle, text: str) -> list[list[str]]:
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


def rows_of_run(puzzle: SchedulePuzzle, trace: Trace) -> list[list[str]]:
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
