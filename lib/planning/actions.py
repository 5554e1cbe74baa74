"""The actions of each rank in a planned step: a pipeline of units, with replicas that share gradients, states or
weights (ZeRO).

`timing` counts the ticks and bytes of these actions, `memory` what each rank holds and sends, and `schedule` plays them
on the Model; none of them decides what comes next.
Each message has its own tag, and a rank awaits a message before it sends the next one, so that it computes while a
message is pending. Gradients of a unit are reduced after its last microbatch.

What a rank does for a cell depends on little: the cell's stage and operation, and what is pending. So most microbatches
repeat the pattern of an earlier one, and a search expands and prices each pattern once.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import repeat
from types import MappingProxyType
from typing import Any, NamedTuple

from lib.schedules import breadth_first, gpipe, interleaved, one_f_one_b, zb_h1, zb_v
from lib.schedules.cells import Cell
from lib.schedules.timetable import Timetable

from .cost_model import units_of
from .job import Job
from .split import CHUNKED, SCHEDULES, Split

Action = tuple[str, str, int]
"""The name of what it does to the rank's values (`values.effects_of`), an operation, and the layer it is done with. The
name is the operation, but where an operation has several effects.

a layer: `load` its weight and state, `keep` the newest gradient as its sum or `add` it to its sum, `keep_reduced` or
    `add_reduced` what a reduction has made, `release` its gathered weight, `update`, `store` its final weight
a layer, calls: `gather` the weight, `reduce` the gradient, `fetch` the state from the host, `park` the state there; and
    `wait gather` and so on, for the end of the call
a layer and the turn's microbatch: `input`, `forward`, `recompute` (forward again), `loss`, `backward`,
    `backward_input`, `backward_weight`, `drop` (the gradient of the model's input)
the turn's messages: `receive`, and the call `send`; `wait send`, for the end of the last one
"""


@dataclass(frozen=True, eq=False)
class Pattern:
    """Actions of a rank, one object for all turns that repeat them."""

    actions: tuple[Action, ...]


Turn = tuple[Pattern, Cell, int, int]
"""What a rank does for a cell; the numbers of the messages that it receives and sends (NONE: it has none)."""

NONE = -1


@dataclass(frozen=True, eq=False)
class Program:
    """The order of the cells, the units of the stages, and how replicas share. A stage may have no units."""

    table: Timetable
    units: tuple[int, ...]
    """The units of each stage."""
    replicated: bool = False
    zero: int = 0
    """The stage of ZeRO; 0 without replicas."""
    by_run: bool = False
    """With ZeRO 2, gradients are reduced when a rank turns to another chunk, not after each microbatch."""
    overlap: bool = True
    recompute: bool = False
    offload: bool = False

    def layers(self, stage: int) -> range:
        """The units of a stage, which are the layers of the run."""
        start = sum(self.units[:stage])
        return range(start, start + self.units[stage])

    def numbers(self, place: int, stage: int, op: str) -> tuple[int | None, int | None]:
        """The numbers of the messages that a cell of microbatch 0 receives and sends; None if the neighbour of its
        stage is on the same rank, or there is none. Further microbatches count on by two for each stage."""
        is_back, ranks_of = op != "F", self.table.ranks_of
        before, after = (stage + 1, stage - 1) if is_back else (stage - 1, stage + 1)
        return (
            2 * before + is_back if op != "W" and ranks_of.get(before, (place,)) != (place,) else None,
            2 * stage + is_back if op != "W" and ranks_of.get(after, (place,)) != (place,) else None,
        )

    def layers_of(self, place: int) -> list[int]:
        return [layer for stage in self.table.stages_of(place) for layer in self.layers(stage)]


ORDERS: Mapping[str, Callable[..., Timetable]] = MappingProxyType(
    dict(zip(SCHEDULES, (one_f_one_b, gpipe, interleaved, breadth_first, zb_h1, zb_v), strict=True))
)
"""The generator of each schedule's order."""


def program_of(job: Job, split: Split) -> Program:
    """The program of a split's ranks."""
    units, replicas = units_of(job, split)[0], split.sharing
    again, on_host = split.recompute == "full" and split.every == 1, split.offload == "states"
    order = split.schedule, split.pp, split.batches(job), split.chunks, split.warmup
    zero = split.zero if replicas > 1 else 0
    return _program(order, units, replicas > 1, zero, zero == 2 and split.by_run, job.overlap, again, on_host)


@lru_cache(maxsize=128)
def _program(order: tuple[str, int, int, int, int], *how: Any) -> Program:
    """One object for all splits whose ranks do the same, so that its results are cached."""
    return Program(_timetable(*order), *how)


@lru_cache(maxsize=64)
def _timetable(schedule: str, ranks: int, batches: int, chunks: int, warmup: int) -> Timetable:
    sizes = {"v": chunks} if schedule in CHUNKED else {}
    return ORDERS[schedule](ranks, batches, **sizes, **({"warmup": warmup} if warmup else {}))


def turns(program: Program, place: int) -> Iterator[Turn]:
    """What a rank does, in order; first and last for the step, with a cell that is not there."""
    rank, cells = _Rank(program, place), [cell for slot in program.table.rows[place] for cell in slot]
    next_backward = _following(cells, "BW", [cell.stage for cell in cells]) if program.by_run else repeat(NONE)
    next_layer: Iterable[int | None] = repeat(None)
    if program.zero == 3 and program.overlap:
        next_layer = _following(cells, "FBI", [next(iter(rank.order(cell.stage, cell.op)), None) for cell in cells])
    numbers = {(stage, op): program.numbers(place, stage, op) for stage in rank.layers for op in OPERATIONS}
    missing, each = dict.fromkeys(rank.layers, program.table.batches), 2 * program.table.stages
    patterns: dict[Any, tuple[Pattern, _State]] = {}
    outside, state = Cell(NONE, "", 0), _State()
    yield rank.begin(), outside, NONE, NONE
    for cell, backward, layer in zip(cells, next_backward, next_layer):
        stage, op, batch = cell
        received, sent = numbers[stage, op]
        if op in "BW":
            missing[stage] -= 1
        key = stage, op, not missing[stage], backward == stage, layer, state
        if key not in patterns:
            patterns[key] = rank.turn(stage, op, not missing[stage], backward == stage, layer, state)
        pattern, state = patterns[key]
        yield (
            pattern,
            cell,
            NONE if received is None else received + each * batch,
            NONE if sent is None else sent + each * batch,
        )
    yield rank.finish(state), outside, NONE, NONE


def _following(cells: Sequence[Cell], ops: str, values: Sequence[int | None]) -> list[int | None]:
    """For each cell, the value of the next cell with one of these operations that has a value."""
    later, following = None, list[int | None]()
    for cell, value in zip(reversed(cells), reversed(values)):
        following.append(later)
        later = value if cell.op in ops and value is not None else later
    return following[::-1]


class _State(NamedTuple):
    """What a rank has between two turns: the layer whose weight is gathered, and that whose weight is being gathered;
    the stages with a sum of gradients, and the layers with a sum of reduced gradients; the layers whose gradients are
    being reduced; and the name of the wait for the last message sent."""

    gathered: int | None = None
    coming: int | None = None
    summed: frozenset[int] = frozenset()
    reduced: frozenset[int] = frozenset()
    reducing: tuple[int, ...] = ()
    sending: str = ""


OPERATIONS = {"F": "forward", "B": "backward", "I": "backward_input", "W": "backward_weight"}


class _Rank:
    """Expands the turns of a rank."""

    def __init__(self, program: Program, place: int) -> None:
        self.program, self.place, self.zero = program, place, program.zero
        self.layers = {stage: program.layers(stage) for stage in program.table.stages_of(place)}
        self.mine = [layer for layers in self.layers.values() for layer in layers]
        self.inputs = frozenset(self.mine)
        """Layers of which the rank keeps the input; other activations only pass the border of a stage."""
        self.actions: list[Action] = []

    def do(self, operation: str, layer: int, name: str = "") -> None:
        self.actions.append((name or operation, operation, layer))

    def pattern(self) -> Pattern:
        """What was done since the last call."""
        actions, self.actions = self.actions, []
        return Pattern(tuple(actions))

    def order(self, stage: int, op: str) -> Sequence[int]:
        """The layers of a cell, in order of use."""
        return self.layers[stage] if op == "F" else self.layers[stage][::-1]

    def begin(self) -> Pattern:
        for layer in self.mine:
            self.do("load", layer)
        return self.pattern()

    def turn(
        self, stage: int, op: str, last: bool, run_goes_on: bool, next_layer: int | None, state: _State
    ) -> tuple[Pattern, _State]:
        """What a rank does for a cell: its stage's `last` microbatch, one in a run of microbatches that goes on, or one
        before another cell uses the weight of `next_layer`."""
        self.gathered, self.coming, self.summed, self.reduced, self.reducing, sending = state
        program, operation = self.program, OPERATIONS[op]
        received, sent = program.numbers(self.place, stage, op)
        if received is not None:
            kept = "receive" if self.layers[stage] else "receive to border"
            self.do("receive", 0, kept if op == "F" else "receive of a gradient")
        if op == "F" and stage == 0:
            self.do("input", 0, "input" if 0 in self.inputs else "input to border")
        order = self.order(stage, op)
        for layer, after in zip(order, [*order[1:], next_layer]):
            if self.zero == 3 and op != "W":
                self.weight(layer, after)
            if program.recompute and op == "B":
                self.do("recompute", layer)
            self.do(operation, layer, "forward to border" if op == "F" and layer + 1 not in self.inputs else operation)
            if op in "BW":
                if self.zero < 2 or program.by_run:
                    self.do("add" if stage in self.summed else "keep", layer)
                if self.zero > 1:
                    if not run_goes_on:
                        self.reduce_now(layer)
                elif last and program.replicated and program.overlap:
                    self.reduce(layer)
        if op in "BW":
            self.summed = self.summed - {stage} if self.zero > 1 and not run_goes_on else self.summed | {stage}
        if op == "F" and stage == program.table.stages - 1:
            self.do("loss", self.layers[stage].stop - 1)
        if op in "BI" and stage == 0:
            self.do("drop", 0)
        if sent is not None:
            if sending:
                self.do("wait send", 0, sending)
            self.do("send", 0)
            sending = "wait send" if op == "F" else "wait send of a gradient"
        state = _State(self.gathered, self.coming, self.summed, self.reduced, self.reducing, sending)
        return self.pattern(), state

    def weight(self, layer: int, after: int | None) -> None:
        """Provides the full weight of a layer (ZeRO 3). The weight used `after` it is gathered while it computes."""
        if self.gathered != layer:
            if self.gathered is not None:
                self.do("release", self.gathered)
            if self.coming is None:
                self.do("gather", layer)
            self.do("wait gather", layer)
            self.gathered, self.coming = layer, None
        if self.program.overlap and after not in (None, layer):
            self.coming = after
            self.do("gather", after)

    # --- Gradients ---

    def reduce_now(self, layer: int) -> None:
        """Reduces the gradient of one microbatch, or of a run of microbatches (ZeRO 2 and 3), during computation."""
        self.settle()
        self.reduce(layer)
        if not self.program.overlap:
            self.settle()

    def reduce(self, layer: int) -> None:
        self.reducing += (layer,)
        self.do("reduce", layer)

    def settle(self) -> None:
        for layer in self.reducing:
            self.do("wait reduce", layer)
            self.do("add_reduced" if layer in self.reduced else "keep_reduced", layer)
        self.reduced |= {*self.reducing}
        self.reducing = ()

    # --- The end of the step ---

    def finish(self, state: _State) -> Pattern:
        """Updates each layer when its gradient is there. With ZeRO 1 and 2 each rank updates its shard, and gathers the
        weight. A state is fetched from the host while the previous one is used."""
        program = self.program
        self.gathered, _, _, self.reduced, self.reducing, sending = state
        if sending:
            self.do("wait send", 0, sending)
        if self.gathered is not None:
            self.do("release", self.gathered)
        if self.zero > 1:
            self.settle()
        elif program.replicated and not program.overlap:
            for layer in reversed(self.mine):
                self.reduce(layer)
        order = self.reducing or tuple(reversed(self.mine))
        parking: int | None = None
        for layer, after in zip(order, [*order[1:], None]):
            if self.reducing:
                self.do("wait reduce", layer)
                self.do("keep_reduced", layer)
            if program.offload:
                if parking is None:
                    self.do("fetch", layer)
                self.do("wait fetch", layer)
                if after is not None:
                    self.do("fetch", after)
            self.do("update", layer)
            if program.offload:
                if parking is not None:
                    self.do("wait park", parking)
                self.do("park", layer)
                parking = layer
            if self.zero in (1, 2):
                self.do("gather", layer)
        if parking is not None:
            self.do("wait park", parking)
        if self.zero in (1, 2):
            for layer in order:
                self.do("wait gather", layer)
        for layer in order:
            self.do("store", layer)
        return self.pattern()
