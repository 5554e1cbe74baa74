"""Peak memory: contents of each device at every moment of a plan, operator by operator.

Held are the tensors whose live range it is (`live_ranges`), copies of them in other layouts from the move until the
last reader in that phase has computed, and the buffers of a move or reduction while it takes place (`buffers`). An
operator is one kernel: its inputs and its output are there together, and nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from lib.layout.instructions import OperandFetch
from lib.layout.layouts.device_matrix import Ints
from lib.layout.layouts.tensor_layout import TensorLayout
from lib.layout.program.distributed import DistributedOperator
from lib.layout.program.graph import Graph

from .buffers import most_elements
from .live_ranges import ends


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
        """An operator fetches its inputs, computes, and reduces its output."""
        size = self._size
        mine: dict[str, int] = {}
        over: set[int] = set()
        taken = {fetch.copy for fetch in fetches}
        for place, (tensor, fetch) in enumerate(zip(op.operator.inputs, fetches)):
            if fetch.copy is not None and fetch.last:
                over.add(fetch.copy)
            if fetch.copy in self._copies or not fetch.steps:
                continue
            self._note(name, f"moves '{tensor}'", mine, most_elements(fetch.steps) * size, "the move")
            if fetch.source is not None and fetch.source_ends:
                if fetch.source in taken:
                    over.add(fetch.source)
                else:
                    del self._copies[fetch.source]
            label, moved = f"{tensor} for {name}, input {place}", op.inputs[place].elements * size
            if fetch.copy is None:
                mine[label] = moved
            else:
                self._copies[fetch.copy] = label, moved
        made = {name: op.local.elements * size}
        self._note(name, "computes", mine | made)
        for tensor in freed:
            del self._held[tensor]
        for copy in over:
            self._copies.pop(copy, None)
        if op.reduction:
            self._note(
                name, "reduces its output", made, most_elements(op.reduction, freed=True) * size, "the reduction"
            )
        self._held[name] = op.output.elements * size

    def _note(self, name: str, doing: str, mine: Mapping[str, int], extra: Ints | None = None, what: str = "") -> None:
        base = sum(self._held.values()) + sum(held for _, held in self._copies.values()) + sum(mine.values())
        total = base + (extra if extra is not None else np.zeros_like(self.peaks))
        device = int(total.argmax())
        held: dict[str, int] = {}
        if self._remember_all or total[device] > self.peaks.max():
            held = {**self._held, **dict(self._copies.values()), **mine}
            if extra is not None and extra[device]:
                held[what] = int(extra[device])
        self.peaks = np.maximum(self.peaks, total)
        self.moments.append(Moment(name, doing, int(total[device]), device, held))

    @property
    def fullest(self) -> Moment:
        """The first moment at which a device holds the most."""
        return max(self.moments, key=lambda moment: moment.bytes)


__all__ = ["Moment", "MemoryTimeline"]
