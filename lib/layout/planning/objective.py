"""What a plan minimizes: bytes that all devices send, or time over links; and computing, where it has a price."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lib.layout.layouts.tensor_layout import TensorLayout
from lib.layout.program.distributed import DistributedOperator
from lib.layout.program.graph import Graph
from lib.layout.redistribution.exchange import least_table
from lib.layout.redistribution.links import Links
from lib.layout.redistribution.redistribution import can_become, least_bytes

from .placed_graph import PlacedGraph

Table = NDArray[np.float64]
FORBIDDEN = 2.0**50
"""Cost of a move that is not possible. Larger than any sum of bytes, and still exact in a double."""


@dataclass(frozen=True)
class Objective:
    """Bytes, or time over `links`. `flops` are the operations of a device in the time of a byte, or in a unit of time;
    without them computing costs nothing."""

    links: Links | None = None
    flops: int | None = None
    grain: int = 1
    """What computing costs is rounded down to a multiple of this: a search is quicker where costs differ by more."""

    @classmethod
    def of_graph(cls, graph: Graph, links: Links | None, flops: int | None) -> Objective:
        """With a grain of about a 4,096th of all computation."""
        total = sum(op.flops({}) for op in graph.operators.values()) // flops if flops else 0
        return cls(links, flops, 1 << max(0, total.bit_length() - 13))

    def of_operator(self, choice: DistributedOperator, itemsize: int) -> int:
        """What an operator costs: its own collectives, and its computation."""
        moved = self.links.time(choice.reduction, itemsize) if self.links else choice.moved * itemsize
        return moved + self._computing(choice)

    def _computing(self, choice: DistributedOperator) -> int:
        if self.flops is None:
            return 0
        side_by_side = 1 if self.links else choice.local.devices
        return choice.flops * side_by_side // self.flops // self.grain * self.grain

    def between(self, given: Sequence[TensorLayout], wanted: Sequence[TensorLayout], itemsize: int) -> Table:
        """What it costs to move from each given layout to each wanted one, or FORBIDDEN: given x wanted."""
        table = np.full((len(given), len(wanted)), FORBIDDEN)
        quick = [[self.links is None and not layout.partial for layout in ends] for ends in (given, wanted)]
        rows, columns = ([layout for layout, yes in zip(*side) if yes] for side in zip((given, wanted), quick))
        if rows and columns:
            table[np.ix_(*quick)] = least_table(rows, columns) * itemsize
        for i, a in enumerate(given):
            for j, b in enumerate(wanted):
                if not (quick[0][i] and quick[1][j]) and can_become(a, b):
                    table[i, j] = self._of_move(a, b, itemsize)
        return table

    def _of_move(self, given: TensorLayout, wanted: TensorLayout, itemsize: int) -> int:
        if self.links is None:
            return least_bytes(given, wanted, itemsize)
        return self.links.time(self.links.quickest(given, wanted, itemsize), itemsize)

    def of_plan(self, plan: PlacedGraph) -> int:
        """What a plan costs."""
        moved = plan.bytes if self.links is None else plan.time(self.links)
        return moved + sum(map(self._computing, plan.operators.values()))


BYTES = Objective()
