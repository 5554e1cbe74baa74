"""What is said of a schedule: its targets and figures, and the calls of a Model in a line or two each.

The calls are read off the Model itself, signature and docstring, so that a page and the code cannot drift apart; of a
docstring only the sentences on what the puzzle has are shown. A text for each call in each puzzle would have to be kept
equal by hand. `feedback.py` says how a schedule that passed compares with others; it is imported when it is needed,
since lists do without.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from lib import Goal, Model
from lib.ledger.algebra import counted
from lib.ledger.goal import MEMORY_PRECISION
from puzzles.catalog.schedule import SchedulePuzzle
from puzzles.catalog.schedule.puzzle import EXTENDED
from puzzles.catalog.schedule.setting_text import differences, price_text, size_text
from puzzles.tracks import base
from puzzles.tracks.base import Section
from puzzles.tracks.outcomes import Measure

FIGURES = ("timesteps", "makespan", "peak_memory")
"""In JSON these are at the top level."""

OTHER_FIGURES = ("lasting_peak", "traffic", "drift", "host_memory")
"""These follow them where a run has them."""

CLASSIC = (("load_weights", "total"),)
"""Parameters of those names that the classic games do have."""

MEANINGLESS = ("self", ("update", "shard"))
"""Parameters that no player writes."""

COUNTED = {"memory": "peak_memory", "host": "host_memory", "traffic": "traffic"}
"""The targets in elements, and the figures that they are for."""

SHARD = ("value.shard(i, n)", "Shard i of n of a weight, optimizer state or weight gradient. Takes no time.")
"""A call of a value, which players need where a puzzle cuts one."""

SECOND_STEP = (
    "The memory target also holds in a second step, which starts from the weights that the first one updated. In that "
    "step, loaded weights count from t = 0, and twice if they are loaded twice. A message counts until it is read."
)
SECOND_REQUEST = (
    "The memory target also holds in a second request. There, loaded weights count from t = 0, and twice if they are "
    "loaded twice."
)
"""What the memory target counts besides the peak of the run (`Goal.steady`)."""

ONCE = "Load each weight only once. A second step must fit in the same memory."
"""What the third star takes where the memory target is for the first step only."""

STEPS = re.compile(r"\b[0-9.]+ steps?\b")
"""A price of the classic games in a docstring."""


class Words(base.Words[SchedulePuzzle]):
    form = "one coroutine that every rank runs"
    definition = "def {}(model)"
    columns = (("time", "timesteps"), ("peak memory", "peak_memory"), ("traffic", "traffic"))
    overview_columns = ("L", "B", "R", "time", "memory", "traffic")

    def targets(self, puzzle: SchedulePuzzle) -> Mapping[str, float]:
        given = {name: getattr(puzzle.goal, name) for name in ("time", "memory", "host", "traffic", "drift")}
        return {name: value for name, value in given.items() if value is not None}

    def tightest(self, figures: Mapping[str, float]) -> dict[str, int]:
        counted = {name: figures[figure] for name, figure in COUNTED.items() if figures.get(figure)}
        return {"time": max(int(figures["timesteps"]), 1)} | {
            name: max(int(value) // MEMORY_PRECISION * MEMORY_PRECISION, 1) for name, value in counted.items()
        }

    def measures(self, puzzle: SchedulePuzzle, figures: Mapping[str, float]) -> Sequence[Measure]:
        return list(measures(puzzle.goal, figures))

    def margin(self, puzzle: SchedulePuzzle, figures: Mapping[str, float]) -> str:
        """Without the peak of a second step, which a sentence of its own follows with its reason."""
        return super().margin(puzzle, {name: figure for name, figure in figures.items() if name != "lasting_peak"})

    def figures_json(self, figures: Mapping[str, float]) -> dict[str, Any]:
        others = {name: figures[name] for name in OTHER_FIGURES if name in figures}
        return {**{name: figures.get(name) for name in FIGURES}, **others}

    def limits(self, puzzle: SchedulePuzzle) -> str:
        """'4 layers, 4 batches, 4 ranks; targets: < 13 timesteps, < 2.4M elements, < 1.6M sent'."""
        goal = puzzle.goal
        words = [f"{goal.time_text} {goal.costs.time_words}", f"{goal.memory_text} elements"]
        words += [f"{goal.host_text} on the host"] if goal.host_text else []
        sent, for_star = f"{goal.traffic_text} sent", goal.decides == "star"
        words += [sent] if goal.traffic_text and not for_star else []
        words += [] if goal.drift is None else [f"at most {counted(goal.drift, 'update')} between two averages"]
        third = f"; for the third star also {sent}" if goal.traffic_text and for_star else ""
        return f"{size_text(goal.size)}; targets: {', '.join(words)}{third}"

    def starter_head(self, puzzles: Sequence[SchedulePuzzle]) -> str:
        grads = any("WeightGrad" in puzzle.starter for puzzle in puzzles)
        return f"from lib import {'Model, WeightGrad' if grads else 'Model'}\n"

    def record(self, puzzle: SchedulePuzzle, figures: Mapping[str, float], stars: int, family: str = "") -> str:
        from .feedback import standing  # here, since lists need no feedback

        return standing(puzzle, figures, stars, family)

    def third_star(self, puzzle: SchedulePuzzle, figures: Mapping[str, float], stars: int, family: str = "") -> str:
        from .feedback import third_star  # here, as above

        return third_star(puzzle, figures, stars, family)

    def comparison(self, puzzle: SchedulePuzzle, figures: Mapping[str, float], kept: str) -> Iterable[str]:
        from .feedback import comparison  # here, as above

        return comparison(puzzle, figures, kept)

    def built(self, puzzle: SchedulePuzzle, kept: str) -> str:
        from .feedback import recognized  # here, as above

        return recognized(puzzle, kept)

    def sections(self, puzzle: SchedulePuzzle) -> list[Section]:
        """The calls, what counts as memory if a second step counts, and what the third star takes."""
        goal, others = puzzle.goal, "; ".join(map(size_text, puzzle.other_sizes))
        third = "Match the best known schedule of its kind."
        if others:
            third += f" The same code must work at other sizes: {others}."
        again = SECOND_REQUEST if goal.setting.task == "infer" else SECOND_STEP
        if not goal.steady:
            third = f"{third} {ONCE}"
        elif goal.decides == "star":
            third = f"{third} {again}"
        return [
            Section("Calls", [*reminder(puzzle), *value_calls(puzzle)]),
            *[Section("The memory target", [("peak", again)])] * (goal.steady and goal.decides == "pass"),
            Section("The third star", [("***", third)]),
        ]

    def background(self, puzzle: SchedulePuzzle) -> Sequence[tuple[str, str]]:
        return [("The prediction", puzzle.answer)] if puzzle.answer else []

    def setting_rows(self, puzzle: SchedulePuzzle) -> Sequence[Sequence[str]]:
        rows = differences(puzzle.goal.setting, puzzle.calls)
        return [[f"costs '{puzzle.goal.costs.name}'", "here", "in the classics"], *rows] if rows else ()

    def overview_cells(self, puzzle: SchedulePuzzle) -> Sequence[str]:
        return (
            *map(str, puzzle.goal.size),
            puzzle.goal.time_text,
            puzzle.goal.memory_text,
            puzzle.goal.traffic_text or "-",
        )

    def overview_note(self, puzzles: Sequence[SchedulePuzzle]) -> str:
        for_star = any(puzzle.goal.decides == "star" for puzzle in puzzles)
        times = " or ".join(sorted({puzzle.goal.costs.time_words for puzzle in puzzles}))
        note = f"L, B, R: layers, batches, ranks. Targets: {times}, peak memory, elements sent."
        return note + (" Traffic counts only for the third star." if for_star else "")

    def devices(self, puzzle: SchedulePuzzle) -> int:
        return puzzle.goal.size.ranks


def measures(goal: Goal, figures: Mapping[str, float]) -> Iterator[Measure]:
    """The figures beside their targets. Where the steady peak decides the pass, it is shown in place of the peak."""
    for_star = goal.decides == "star"
    memory, lasting = figures.get("peak_memory"), figures.get("lasting_peak")
    counts_steady = goal.steady and lasting is not None
    limit, shown = goal.memory_limit, goal.memory_text
    in_steady = Measure.below_limit("elements in a second step", lasting, limit, shown, "peak_memory")
    time, unit = figures.get("timesteps"), goal.costs.time_words
    yield Measure.below_limit(unit, time, goal.time_limit, goal.time_text, "timesteps")
    if counts_steady and not for_star:
        yield in_steady
    else:
        yield Measure.below_limit("elements", memory, limit, shown, "peak_memory")
    if goal.traffic_limit is not None:
        traffic = figures.get("traffic")
        found = Measure.below_limit("elements sent", traffic, goal.traffic_limit, goal.traffic_text, "traffic")
        yield found._replace(for_star=for_star)
    if goal.host_limit is not None:
        host = figures.get("host_memory")
        yield Measure.below_limit("elements on the host", host, goal.host_limit, goal.host_text, "host_memory")
    if goal.drift is not None:
        yield Measure.at_most("updates between two averages", figures.get("drift"), goal.drift, "drift")
    if counts_steady and for_star:
        yield in_steady._replace(figure="lasting_peak", for_star=True)


def reminder(puzzle: SchedulePuzzle) -> list[tuple[str, str]]:
    """For each method that a puzzle is likely to need its call, as a player writes it, and what its docstring says
    about this game: the first paragraph, and the sentences on the parameters, the layer and the task of the puzzle,
    and on overlap where there is any."""
    return [(_call(name, puzzle), " ".join(_meaning(name, puzzle))) for name in puzzle.calls]


def value_calls(puzzle: SchedulePuzzle) -> list[tuple[str, str]]:
    """The call that cuts a value into shards, where the puzzle's starter or hints use it."""
    return [SHARD] if any(".shard(" in text for text in (puzzle.starter, *puzzle.hints)) else []


def _call(name: str, puzzle: SchedulePuzzle) -> str:
    signature = inspect.signature(getattr(Model, name))
    left_out = {*MEANINGLESS, *EXTENDED} - {*puzzle.parameters}
    parameters = [
        parameter.replace(annotation=parameter.empty)
        for parameter in signature.parameters.values()
        if (name, parameter.name) in CLASSIC or not left_out & {parameter.name, (name, parameter.name)}
    ]
    waits = "await " if re.search("Awaitable|Coroutine", str(signature.return_annotation)) else ""
    arguments = inspect.Signature(parameters)
    return f"{waits}model.{name}{arguments}"


def _meaning(name: str, puzzle: SchedulePuzzle) -> Iterator[str]:
    first, _, rest = (inspect.getdoc(getattr(Model, name)) or "").partition("\n\n")
    price, costs = price_text(puzzle.goal.costs, name), puzzle.goal.costs
    yield " ".join((STEPS.sub(price, first, count=1) if price else first).split())
    setting = puzzle.goal.setting
    words = [*puzzle.parameters, setting.layer, setting.task, *(["overlap"] if costs.overlap else [])]
    sentences = re.split(r"(?<=\.) ", " ".join(rest.split()))
    yield from (text for text in sentences if re.search(rf"\b({'|'.join(words)})", text))
