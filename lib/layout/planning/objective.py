"""What a plan minimizes: bytes that all devices send, and computing, where it has a price."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lib.layout.layouts.tensor_layout import TensorLayout
from lib.layout.program.distributed import DistributedOperator
from lib.layout.program.graph import Graph
from lib.layout.redistribution.exchange import least_table
from lib.layout.redistribution.redistribution import can_become, least_bytes

from .placed_graph import PlacedGraph

Table = NDArray[np.float64]
FORBIDDEN = 2.0**50
"""Cost of a move that is not possible. Larger than any sum of bytes, and still exact in a double."""


@dataclass(frozen=True)
class Objective:
    """Bytes. `flops` are the operations of a device in the time of a byte; without them computing costs nothing."""

    flops: int | None = None
    grain: int = 1
    """What computing costs is rounded down to a multiple of this: a search is quicker where costs differ by more."""

    @classmethod
    def of_graph(cls, graph: Graph, flops: int | None) -> Objective:
        """With a grain of about a 4,096th of all computation."""
        total = sum(op.flops({}) for op in graph.operators.values()) // flops if flops else 0
        return cls(flops, 1 << max(0, total.bit_length() - 13))

    def of_operator(self, choice: DistributedOperator, itemsize: int) -> int:
        """What an operator costs: its own collectives, and its computation."""
        return choice.moved * itemsize + self._computing(choice)

    def _computing(self, choice: DistributedOperator) -> int:
        if self.flops is None:
            return 0
        return choice.flops * choice.local.devices // self.flops // self.grain * self.grain

    def between(self, given: Sequence[TensorLayout], wanted: Sequence[TensorLayout], itemsize: int) -> Table:
        """What it costs to move from each given layout to each wanted one, or FORBIDDEN: given x wanted."""
        table = np.full((len(given), len(wanted)), FORBIDDEN)
        quick = [[not layout.partial for layout in ends] for ends in (given, wanted)]
        rows, columns = ([layout for layout, yes in zip(*side) if yes] for side in zip((given, wanted), quick))
        if rows and columns:
            table[np.ix_(*quick)] = least_table(rows, columns) * itemsize
        for i, a in enumerate(given):
            for j, b in enumerate(wanted):
                if not (quick[0][i] and quick[1][j]) and can_become(a, b):
                    table[i, j] = least_bytes(a, b, itemsize)
        return table

    def of_plan(self, plan: PlacedGraph) -> int:
        """What a plan costs."""
        return plan.bytes + sum(map(self._computing, plan.operators.values()))


BYTES = Objective()
