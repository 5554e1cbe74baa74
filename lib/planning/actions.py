"""The actions of each rank in a planned step: a pipeline of units, with replicas that share gradients, states or
weights (ZeRO).

`timing` counts the ticks and bytes of these actions, `memory` what each rank holds and sends, and `schedule` plays them
on the Model; none of them decides what comes next.
Each message has its own tag, and a rank awaits a message before it sends the next one, so that it computes while a
message is pending. Gradients of a unit are reduced after its last microbatch.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Any

from lib.schedules import breadth_first, gpipe, interleaved, one_f_one_b, zb_h1, zb_v
from lib.schedules.cells import Message
from lib.schedules.timetable import Timetable

from .cost_model import units_of
from .job import Job
from .split import CHUNKED, SCHEDULES, Split

Action = tuple[str, str, Any]
"""The name of what it does to the rank's values (`values.effects_of`), an operation, and what it is done with. The name
is the operation, but where an operation has several effects.

a layer: `load` its weight and state, `keep` the newest gradient as its sum or `add` it to its sum, `keep_reduced` or
    `add_reduced` what a reduction has made, `release` its gathered weight, `update`, `store` its final weight
a layer, calls: `gather` the weight, `reduce` the gradient, `fetch` the state from the host, `park` the state there
a layer and a microbatch: `input`, `forward`, `recompute` (forward again), `loss`, `backward`, `backward_input`,
    `backward_weight`, `drop` (the gradient of the model's input)
a message: `receive`, and the call `send`
a call: `wait` for its end
"""

Call = tuple[str, Any]
"""A call that a rank awaits later: its operation, and what it is done with."""


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

    def layers_of(self, place: int) -> list[int]:
        return [layer for stage in self.table.stages_of(place) for layer in self.layers(stage)]

    def uses(self, place: int) -> Iterator[int]:
        """The layers whose weights a rank needs, in order of use."""
        of_stage = {stage: self.layers(stage) for stage in self.table.stages_of(place)}
        for slot in self.table.rows[place]:
            for cell in slot:
                if cell.op != "W":
                    layers = of_stage[cell.stage]
                    yield from layers if cell.op == "F" else reversed(layers)


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


OpIndex = tuple[int, int]
"""A layer and a microbatch."""


def actions(program: Program, place: int) -> list[Action]:
    """What a rank does, in order."""
    rank = _Rank(program, place)
    rank.train()
    return rank.actions


WAITS = {call: f"wait {call}" for call in ("gather", "reduce", "fetch", "park")}


def waited(operation: str, layer: int) -> Action:
    return WAITS[operation], "wait", (operation, layer)


OPERATIONS = {"F": "forward", "B": "backward", "I": "backward_input", "W": "backward_weight"}


class _Rank:
    def __init__(self, program: Program, place: int) -> None:
        self.program, self.place, self.zero = program, place, program.zero
        self.actions: list[Action] = []
        self.do = self.actions.append
        """Adds an action; generators within generators took twice as long."""
        self.layers = {stage: program.layers(stage) for stage in program.table.stages_of(place)}
        self.mine = program.layers_of(place)
        self.inputs = frozenset(self.mine)
        """Layers of which the rank keeps the input; other activations only pass the border of a stage."""
        self.gathered: int | None = None
        self.coming: int | None = None
        """The layer whose weight is being gathered."""
        self.uses = program.uses(place)
        self.next = next(self.uses, None)
        self.missing = dict.fromkeys(self.mine, program.table.batches)
        """By layer, the number of microbatches whose gradients are missing."""
        self.summed, self.reduced = set[int](), set[int]()
        """Layers that have a sum of gradients, and layers that have a sum of reduced gradients."""
        self.backwards = [cell.stage for slot in program.table.rows[place] for cell in slot if cell.op in "BW"]
        """The stages of the gradients that are still to be made, the next one last."""
        self.backwards.reverse()
        self.reducing: list[int] = []

    def train(self) -> None:
        for layer in self.mine:
            self.do(("load", "load", layer))
        sending: Action | None = None
        for cell, received, sent in self.program.table.exchanges[self.place]:
            if received is not None:
                self.do((self.receive(received), "receive", received))
            self.compute(*cell)
            if sent is not None:
                if sending is not None:
                    self.do(sending)
                self.do(("send", "send", sent))
                name = "wait send" if sent.made.op == "F" else "wait send of a gradient"
                sending = name, "wait", ("send", sent)
        if sending is not None:
            self.do(sending)
        self.finish()

    def receive(self, message: Message) -> str:
        """What a message is to this rank."""
        if message.made.op != "F":
            return "receive of a gradient"
        first = self.program.layers(message.used.stage).start
        return "receive" if first in self.inputs else "receive to border"

    def compute(self, stage: int, op: str, batch: int) -> None:
        operation, layers = OPERATIONS[op], self.layers[stage]
        if op in "BW":
            self.backwards.pop()
        run_goes_on = self.program.by_run and self.backwards[-1:] == [stage]
        if op == "F" and stage == 0:
            self.do(("input" if 0 in self.inputs else "input to border", "input", (0, batch)))
        for layer in layers if op == "F" else reversed(layers):
            if self.zero == 3 and op != "W":
                self.weight(layer)
            if self.program.recompute and op == "B":
                self.do(("recompute", "recompute", (layer, batch)))
            name = "forward to border" if op == "F" and layer + 1 not in self.inputs else operation
            self.do((name, operation, (layer, batch)))
            if op in "BW":
                self.missing[layer] -= 1
                if self.zero < 2 or self.program.by_run:
                    self.do(self.sum_up(layer))
                if self.zero > 1:
                    if not run_goes_on:
                        self.reduce_now(layer)
                elif not self.missing[layer] and self.program.replicated and self.program.overlap:
                    self.do(self.reduce(layer))
        if op == "F" and stage == self.program.table.stages - 1:
            self.do(("loss", "loss", (layers.stop - 1, batch)))
        if op in "BI" and stage == 0:
            self.do(("drop", "drop", (0, batch)))

    def weight(self, layer: int) -> None:
        """Provides the full weight of a layer (ZeRO 3). The next weight is gathered while this layer computes."""
        if self.gathered != layer:
            if self.gathered is not None:
                self.do(("release", "release", self.gathered))
            if self.coming is None:
                self.do(("gather", "gather", layer))
            self.do(waited("gather", layer))
            self.gathered, self.coming = layer, None
        self.next = next(self.uses, None)
        if self.program.overlap and self.next not in (None, layer):
            self.coming = self.next
            self.do(("gather", "gather", self.next))

    # --- Gradients ---

    def reduce_now(self, layer: int) -> None:
        """Reduces the gradient of one microbatch, or of a run of microbatches (ZeRO 2 and 3), during computation."""
        self.settle()
        self.do(self.reduce(layer))
        if not self.program.overlap:
            self.settle()

    def sum_up(self, layer: int) -> Action:
        if layer in self.summed:
            return "add", "add", layer
        self.summed.add(layer)
        return "keep", "keep", layer

    def reduce(self, layer: int) -> Action:
        self.reducing.append(layer)
        self.summed.discard(layer)
        return "reduce", "reduce", layer

    def settle(self) -> None:
        for layer in self.reducing:
            self.do(waited("reduce", layer))
            name = "add_reduced" if layer in self.reduced else "keep_reduced"
            self.do((name, name, layer))
            self.reduced.add(layer)
        self.reducing.clear()

    # --- The end of the step ---

    def finish(self) -> None:
        """Updates each layer when its gradient is there. With ZeRO 1 and 2 each rank updates its shard, and gathers the
        weight. A state is fetched from the host while the previous one is used."""
        program = self.program
        if self.gathered is not None:
            self.do(("release", "release", self.gathered))
        if self.zero > 1:
            self.settle()
        elif program.replicated and not program.overlap:
            for layer in reversed(self.mine):
                self.do(self.reduce(layer))
        order = self.reducing or self.mine[::-1]
        parking: Action | None = None
        for layer, after in zip(order, [*order[1:], None]):
            if self.reducing:
                self.do(waited("reduce", layer))
                self.do(("keep_reduced", "keep_reduced", layer))
            if program.offload:
                if parking is None:
                    self.do(("fetch", "fetch", layer))
                self.do(waited("fetch", layer))
                if after is not None:
                    self.do(("fetch", "fetch", after))
            self.do(("update", "update", layer))
            if program.offload:
                if parking is not None:
                    self.do(parking)
                self.do(("park", "park", layer))
                parking = waited("park", layer)
            if self.zero in (1, 2):
                self.do(("gather", "gather", layer))
        if parking is not None:
            self.do(parking)
        if self.zero in (1, 2):
            for layer in order:
                self.do(waited("gather", layer))
        for layer in order:
            self.do(("store", "store", layer))
