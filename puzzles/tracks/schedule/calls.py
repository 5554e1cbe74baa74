"""The calls of a Model in a line or two each, read off the Model itself so that they cannot drift apart."""

import inspect
import re
from collections.abc import Iterator

from lib import Model
from puzzles.catalog.schedule import SchedulePuzzle
from puzzles.catalog.schedule.puzzle import EXTENDED
from puzzles.catalog.schedule.setting_text import price_text
from puzzles.catalog.schedule.size_text import size_text
from puzzles.tracks.shown import Section

CLASSIC = (("load_weights", "total"),)
"""Parameters of those names that the classic games do have."""

MEANINGLESS = ("self", ("update", "shard"))
"""Parameters that no player writes."""

SHARD = ("value.shard(i, n)", "Shard i of n of a weight, optimizer state or weight gradient. Takes no time.")
"""A call of a value, which players need where a puzzle cuts one."""

SECOND_STEP = (
    "The memory target also holds in a second step. There, whatever a rank loads counts from the start, each time that "
    "it is loaded, and a message counts until it is read. Each rank ends with the updated form of what it loads."
)
SECOND_REQUEST = (
    "The memory target also holds in a second request, where whatever a rank loads counts from the start, each time "
    "that it is loaded."
)
"""What the memory target counts besides the peak of the run (`Goal.steady`)."""

ONCE = "No rank loads a weight twice, and a second step needs no more memory than the first."
"""What the third star takes where the memory target is for the first step only."""

STEPS = re.compile(r"\b[0-9.]+ steps?\b")
"""A price of the classic games in a docstring."""


def reminder(puzzle: SchedulePuzzle) -> list[tuple[str, str]]:
    """For each method that a puzzle is likely to need its call, as a player writes it, and what its docstring says
    about this game: the first paragraph, and the sentences on the parameters, the layer and the task of the puzzle,
    and on overlap where there is any."""
    return [(_call(name, puzzle), " ".join(_meaning(name, puzzle))) for name in puzzle.calls]


def value_calls(puzzle: SchedulePuzzle) -> list[tuple[str, str]]:
    """The call that cuts a value into shards, where the puzzle's starter or hints use it."""
    return [SHARD] if any(".shard(" in text for text in (puzzle.starter, *puzzle.hints)) else []


def sections(puzzle: SchedulePuzzle) -> list[Section]:
    """The calls, what counts as memory if a second step counts, and what the third star takes."""
    goal, others = puzzle.goal, "; ".join(map(size_text, puzzle.other_sizes))
    also = f", and the same code also works at other sizes: {others}" if others else ""
    third = f"No known schedule of its kind is better{also}."
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
