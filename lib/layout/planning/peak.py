"""Peak memory: contents of each device at every moment of a plan, operator by operator.

Held are the tensors whose live range it is (`live_ranges`), copies of them in other layouts from the move until the
last reader in that phase has computed, and the buffers of a move or reduction while it takes place (`buffers`). An
operator is one kernel: its inputs and its output are there together, and nothing else.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from math import prod
from typing import NamedTuple

import numpy as np

from lib.layout.layouts.device_matrix import Ints
from lib.layout.layouts.tensor_layout import TensorLayout
from lib.layout.program.distributed import DistributedOperator
from lib.layout.program.graph import Graph
from lib.layout.redistribution.steps import SUM_EXCHANGE, Step
from lib.layout.redistribution.sum_exchange import SumExchange


class OperandFetch(NamedTuple):
    """How an input comes to the layout that an operator needs: by its own steps, or as an earlier one left it."""

    steps: tuple[Step, ...]
    copy: int | None = None
    """The number of a moved copy that several operators use: the first one moves it, the others find it."""
    last: bool = True
    """True if nobody uses the copy afterwards."""
    source: int | None = None
    """The number of the copy from which it moves, if it does not move from where the tensor lives."""
    source_ends: bool = False
    """True if nobody uses that copy afterwards."""


def ends(graph: Graph) -> dict[str, tuple[str, ...]]:
    """By operator: the tensors that are freed once it has computed."""
    last = {tensor: name for name, op in graph.operators.items() for tensor in op.inputs}
    number = {name: i for i, name in enumerate(graph.operators)}
    replaces = graph.step.replaces if graph.step else {}
    for new, source in replaces.items():
        last[source] = max(new, last.get(source, new), key=number.__getitem__)
    stay = {*graph.sources, *replaces, *graph.results}.difference(replaces.values())
    freed: dict[str, tuple[str, ...]] = dict.fromkeys(graph.operators, ())
    for tensor, reader in last.items():
        if tensor not in stay:
            freed[reader] += (tensor,)
    return freed


def most_elements(steps: Sequence[Step], freed: bool = False) -> Ints:
    """The most elements that steps take at the same time, by device, in addition to the first step's source.

    A step's source is freed when the next piece is complete. The first one's belongs to whoever has it, unless it is
    `freed` as well, as an operator's own piece is.
    """
    most = np.zeros(steps[0].source.devices, dtype=np.int64)
    for i, step in enumerate(steps):
        gone = steps[0].source.elements if freed and i else 0
        most = np.maximum(most, buffer_elements(step) + (step.source.elements if i else 0) - gone)
    return most


@lru_cache(maxsize=65536)
def buffer_elements(step: Step) -> Ints:
    """The elements of a step's buffers and of the new piece, by device, when they are most."""
    old, new = step.source.elements, step.target.elements
    is_even = not (step.source.uneven or step.target.uneven)
    if step.name == "all-reduce":
        most = new
    elif step.name == "reduce-scatter":  # the parts, and the sum of this device's
        most = len(step.group(0)) * new + new
    elif step.name == "all-gather":  # everyone's piece, and the new one in which they are put in place
        most = (new if is_even else len(step.group(0)) * old) + new
    elif step.name == "all-to-all":  # the parts, as many that arrive, and then the new piece
        packed = old if is_even else _packed(step)
        most = packed + max(packed, new)
    elif step.name == SUM_EXCHANGE:
        return new + _of_sums(step.sum_exchange)
    else:
        return new + _largest(step.exchange.moves.table)
    return np.full(step.source.devices, most, dtype=np.int64)


def _packed(step: Step) -> int:
    group = step.group(0)
    part: int = prod(side.stop - side.start for side in step.meeting(0, group[0]))
    return len(group) * part


def _of_sums(exchange: SumExchange) -> Ints:
    """All summands that arrive with the sums of this device's shares; or the sums with the largest message."""
    devices = exchange.source.devices
    sums = np.bincount(exchange.owner, weights=exchange.hi - exchange.lo, minlength=devices).astype(np.int64)
    packed, arrived = exchange.summands.table.max(axis=1), exchange.summands.table.sum(axis=0)
    most: Ints = np.maximum(packed, sums + np.maximum(arrived, _largest(exchange.sums.table)))
    return most


def _largest(pairs: Ints) -> Ints:
    """By device, the largest message, which is packed when it is sent, and put in place when it arrives."""
    most: Ints = np.maximum(pairs.max(axis=1), pairs.max(axis=0))
    return most


class Moment(NamedTuple):
    """What is on the fullest device at one time: `bytes` in all, and by name."""

    operator: str
    doing: str
    """ "moves x", "computes", or "reduces its output"."""
    bytes: int
    device: int
    held: Mapping[str, int]
    """Unless all are remembered, only of moments that hold more than any before."""

    def __str__(self) -> str:
        return f"'{self.operator}' {self.doing}"


class MemoryTimeline:
    """The memory of a plan over time: a moment for each move, each computation and each reduction."""

    def __init__(
        self,
        graph: Graph,
        operators: Mapping[str, DistributedOperator],
        storage_layouts: Mapping[str, TensorLayout],
        fetches: Mapping[str, tuple[OperandFetch, ...]],
        remember_all: bool = False,
    ) -> None:
        self.moments: list[Moment] = []
        self.peaks = np.zeros(graph.devices, dtype=np.int64)
        """The most bytes that each device holds."""
        self._remember_all, self._size = remember_all, graph.itemsize
        self._held = {name: layout.elements * self._size for name, layout in storage_layouts.items()}
        self._copies: dict[int, tuple[str, int]] = {}
        freed = ends(graph)
        self._note("", "starts", {})
        for name, op in operators.items():
            self._operator(name, op, fetches[name], freed[name])

    def _operator(
        self, name: str, op: DistributedOperator, fetches: tuple[OperandFetch, ...], freed: tuple[str, ...]
    ) -> None:
        size = self._size
        copies: dict[str, int] = {}
        over: set[int] = set()
        taken = {fetch.copy for fetch in fetches}
        for place, (tensor, fetch) in enumerate(zip(op.operator.inputs, fetches)):
            if fetch.copy is not None and fetch.last:
                over.add(fetch.copy)
            if fetch.copy in self._copies or not fetch.steps:
                continue
            self._note(name, f"moves '{tensor}'", copies, most_elements(fetch.steps) * size, "the move")
            if fetch.source is not None and fetch.source_ends:
                if fetch.source in taken:
                    over.add(fetch.source)
                else:
                    del self._copies[fetch.source]
            label, moved = f"{tensor} for {name}, input {place}", op.inputs[place].elements * size
            if fetch.copy is None:
                copies[label] = moved
            else:
                self._copies[fetch.copy] = label, moved
        output = {name: op.local.elements * size}
        self._note(name, "computes", copies | output)
        for tensor in freed:
            del self._held[tensor]
        for copy in over:
            self._copies.pop(copy, None)
        if op.reduction:
            self._note(
                name, "reduces its output", output, most_elements(op.reduction, freed=True) * size, "the reduction"
            )
        self._held[name] = op.output.elements * size

    def _note(
        self, name: str, doing: str, temporary: Mapping[str, int], extra: Ints | None = None, what: str = ""
    ) -> None:
        base = sum(self._held.values()) + sum(size for _, size in self._copies.values()) + sum(temporary.values())
        total = base + (extra if extra is not None else np.zeros_like(self.peaks))
        device = int(total.argmax())
        held: dict[str, int] = {}
        if self._remember_all or total[device] > self.peaks.max():
            held = {**self._held, **dict(self._copies.values()), **temporary}
            if extra is not None and extra[device]:
                held[what] = int(extra[device])
        self.peaks = np.maximum(self.peaks, total)
        self.moments.append(Moment(name, doing, int(total[device]), device, held))

    @property
    def fullest(self) -> Moment:
        """The first moment at which a device holds the most."""
        return max(self.moments, key=lambda moment: moment.bytes)


__all__ = ["Moment", "MemoryTimeline"]
