"""Step time and peak memory of a split without playing it, to rank thousands: the ledger's rules over whole numbers.

It follows the coroutine of `schedule` line by line: what a rank waits for, and what it holds when each event starts.
The tests compare it with runs of the ledger for every kind of split: both must give the same tick and the same byte.
What is printed is always a run.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

from lib.schedules.cells import Cell
from lib.schedules.timetable import Timetable

from .job import Job
from .prices import Prices, prices
from .schedule import Program
from .split import Split


class Estimate(NamedTuple):
    """Ticks of a step, and bytes of the fullest rank."""

    ticks: int
    peak: int


def estimate(job: Job, split: Split, program: Program) -> Estimate:
    """What a run of a split would take."""
    priced = prices(job, split)
    ready: dict[Cell, int] = {}
    ranks = [_Rank(place, priced, program, job, ready) for place in range(program.table.ranks)]
    waiting = {rank.place: rank.train() for rank in ranks}
    while waiting:
        for place, rank in list(waiting.items()):
            if next(rank, None) is None:
                del waiting[place]
    return Estimate(max(rank.end for rank in ranks), max(rank.peak + rank.fixed for rank in ranks))


Exchange = tuple[Cell, tuple[Cell, ...], bool]
"""A cell, those of other ranks that it waits for, and whether another rank waits for it."""


@lru_cache(64)
def exchanges(table: Timetable) -> Sequence[Sequence[Exchange]]:
    """By rank, what each of its cells waits for and sends."""
    needs = table.needs

    def of(cell: Cell) -> Exchange:
        return cell, tuple(one.made for one in needs.received((cell,))), next(needs.sent((cell,)), None) is not None

    return [[of(cell) for slot in row for cell in slot] for row in table.rows]


@dataclass
class _Rank:
    """One rank: its clock, and the lanes of its messages, of its collectives and of both ways to the host."""

    place: int
    priced: Prices
    program: Program
    job: Job
    ready: dict[Cell, int]
    """By cell: when its result has arrived."""
    clock: int = 0
    sent: int = 0
    """The end of the last message, and of its lane."""
    lane: int = 0
    up: int = 0
    down: int = 0
    memory: int = 0
    peak: int = 0
    end: int = 0
    outgoing: int = 0
    """Bytes of the message under way."""
    reducing: list[tuple[int, int, int]] = field(default_factory=list)
    """Layers whose gradients are on their way, when they arrive, and the bytes that this sets free."""
    gathered: int | None = None
    coming: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        priced, program, table = self.priced, self.program, self.program.table
        self.stages = table.stages_of(self.place)
        self.layers = [layer for stage in self.stages for layer in program.layers(stage)]
        self.mine = frozenset(self.layers)
        self.last = table.stages * program.units - 1
        self.zero = program.zero if program.replicas > 1 else 0
        n = program.replicas
        of_shard = priced.shard / n
        self.gradient_shard = round(priced.gradient * of_shard) if self.zero else priced.gradient
        self.weight_shard = round(priced.weight * of_shard) if self.zero else priced.weight
        self.state = round(priced.state * of_shard) if self.zero else priced.state
        self.left = dict.fromkeys(self.layers, table.batches)
        self.summed: set[int] = set()
        self.fixed = priced.workspace
        self.fixed += priced.first if 0 in self.stages else 0
        self.fixed += priced.last if table.stages - 1 in self.stages else 0
        self.uses: Iterator[int] = iter([*program.uses(self.place)] if self.zero == 3 else ())
        self.next = next(self.uses, None)
        for _ in self.layers:
            self.memory += self.weight_shard if self.zero == 3 else priced.weight
            self.memory += 0 if program.offload else self.state

    def event(self, ticks: int = 0) -> None:
        """Something that is timed: memory is sampled when it starts."""
        if self.memory > self.peak:
            self.peak = self.memory
        self.clock += ticks
        if self.clock > self.end:
            self.end = self.clock

    def train(self) -> Generator[bool, None, None]:
        ready, priced = self.ready, self.priced
        for cell, awaited, sends in exchanges(self.program.table)[self.place]:
            for made in awaited:
                while made not in ready:
                    yield True
                self.clock = max(self.clock, ready[made])
                self.event()
                self.memory += priced.kept if made.op == "F" else priced.border
            self.compute(cell.stage, cell.op)
            if sends:
                self.clock = max(self.clock, self.sent)
                self.memory -= self.outgoing
                self.outgoing = priced.border
                self.event()
                self.sent = self.end_of(self.clock, priced.message)
                ready[cell] = self.sent
        self.clock = max(self.clock, self.sent)
        self.memory -= self.outgoing
        self.finish()
        self.event()

    def end_of(self, start: int, ticks: int) -> int:
        """The end of a call, which may be the last of all."""
        self.end = max(self.end, start + ticks)
        return start + ticks

    def compute(self, stage: int, op: str) -> None:
        priced = self.priced
        layers = self.program.layers(stage)
        if op == "F":
            self.memory += priced.kept if stage == 0 else 0
            for layer in layers:
                self.weight(layer)
                self.event(priced.forward)
                self.memory += priced.kept if layer + 1 in self.mine else priced.border
            if layers.stop > self.last:
                self.event(priced.loss)
        elif op == "B":
            for layer in reversed(layers):
                self.weight(layer)
                if self.program.recompute:
                    self.event(priced.forward)
                self.event(priced.back_input + priced.back_weight)
                self.memory -= priced.kept + (0 if layer else priced.border)
                self.reduce(layer)
        elif op == "I":
            for layer in reversed(layers):
                self.weight(layer)
                self.event(priced.back_input)
                self.memory += priced.border if layer else 0
        else:
            for layer in reversed(layers):
                self.event(priced.back_weight)
                self.memory -= priced.kept + priced.border
                self.reduce(layer)

    def weight(self, layer: int) -> None:
        priced = self.priced
        if self.zero < 3:
            return
        if self.gathered != layer:
            self.memory -= priced.weight if self.gathered is not None else 0
            ends = self.coming[1] if self.coming is not None else self.call(priced.gather, priced.weight)
            self.clock = max(self.clock, ends)
            self.gathered, self.coming = layer, None
        self.next = next(self.uses, None)
        if self.program.overlap and self.next not in (None, layer):
            self.coming = self.next or 0, self.call(priced.gather, priced.weight)

    def call(self, ticks: int, made: int) -> int:
        """A collective on the lane of the replicas: its end. What it makes counts from the next event on."""
        self.event()
        self.lane = self.end_of(max(self.clock, self.lane), ticks)
        self.memory += made
        return self.lane

    def reduce(self, layer: int) -> None:
        priced = self.priced
        self.left[layer] -= 1
        if self.zero < 2:
            self.memory += priced.gradient if layer not in self.summed else 0
            self.summed.add(layer)
            if self.program.replicas > 1 and self.program.overlap and not self.left[layer]:
                self.start_reducing(layer)
            return
        self.settle()
        self.memory += priced.gradient
        self.start_reducing(layer)
        if not self.program.overlap:
            self.settle()

    def start_reducing(self, layer: int) -> None:
        made = self.gradient_shard if self.zero else 0  # an all-reduce is in place
        self.reducing.append((layer, self.call(self.priced.reduce, made), self.priced.gradient if self.zero else 0))

    def settle(self) -> None:
        for layer, ends, freed in self.reducing:
            self.clock = max(self.clock, ends)
            self.memory -= freed + (self.gradient_shard if layer in self.summed else 0)
            self.summed.add(layer)
        self.reducing.clear()

    def finish(self) -> None:
        priced, program = self.priced, self.program
        self.memory -= priced.weight if self.gathered is not None else 0
        if self.zero > 1:
            self.settle()
        elif program.replicas > 1 and not program.overlap:
            for layer in reversed(self.layers):
                self.start_reducing(layer)
        order = self.reducing or [(layer, 0, 0) for layer in reversed(self.layers)]
        sharded = self.zero in (1, 2)
        gathers, fetched, parked = 0, 0, 0
        gradient = self.gradient_shard if self.zero else priced.gradient
        for k, (_, ends, freed) in enumerate(order):
            self.clock = max(self.clock, ends)
            self.memory -= freed
            if program.offload:
                if not k:
                    fetched = self.copy("up")
                self.clock = max(self.clock, fetched)
                fetched = self.copy("up") if k + 1 < len(order) else 0
            self.memory -= (priced.weight - self.weight_shard) if sharded else 0
            self.event(priced.update)
            self.memory -= gradient
            if program.offload:
                self.clock = max(self.clock, parked)
                self.memory -= self.state if k else 0
                parked = self.copy("down")
            if sharded:
                gathers = self.call(priced.gather, priced.weight)
        if program.offload:
            self.clock = max(self.clock, parked)
            self.memory -= self.state
        if sharded:
            self.clock = max(self.clock, gathers)
            self.memory -= len(order) * self.weight_shard

    def copy(self, way: str) -> int:
        """A state to or from the host, on the lane of that way: its end."""
        self.event()
        end = self.end_of(max(self.clock, getattr(self, way)), self.priced.copy)
        setattr(self, way, end)
        self.memory += self.state if way == "up" else 0
        return end
