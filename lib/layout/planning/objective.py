"""What a plan minimizes: bytes that all devices send, or time over links; and computing, where it has a price."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lib.layout.layouts.tensor_layout import TensorLayout
from lib.layout.program.distributed import DistributedOperator
from lib.layout.redistribution.exchange import least_table
from lib.layout.redistribution.links import Links
from lib.layout.redistribution.redistribution import can_become, least_bytes

from .elimination import FORBIDDEN, Table
from .placed_graph import PlacedGraph


@dataclass(frozen=True)
class Objective:
    """Bytes, or time over `links`. `flops` are the operations of a device in the time of a byte, or in a unit of time;
    without them computing costs nothing."""

    links: Links | None = None
    flops: int | None = None

    def of_operator(self, choice: DistributedOperator, itemsize: int) -> int:
        """What an operator costs: its own collectives, and its computation."""
        moved = self.links.time(choice.reduction, itemsize) if self.links else choice.moved * itemsize
        if self.flops is None:
            return moved
        side_by_side = 1 if self.links else choice.local.devices
        return moved + choice.flops * side_by_side // self.flops

    def between(self, given: Sequence[TensorLayout], wanted: Sequence[TensorLayout], itemsize: int) -> Table:
        """What it costs to move from each given layout to each wanted one, or FORBIDDEN: given x wanted."""
        if self.links is None and not any(layout.partial for layout in (*given, *wanted)):
            return least_table(given, wanted) * itemsize
        table = np.full((len(given), len(wanted)), FORBIDDEN)
        for i, a in enumerate(given):
            for j, b in enumerate(wanted):
                if can_become(a, b):
                    table[i, j] = self._of_move(a, b, itemsize)
        return table

    def _of_move(self, given: TensorLayout, wanted: TensorLayout, itemsize: int) -> int:
        if self.links is None:
            return least_bytes(given, wanted, itemsize)
        return self.links.time(self.links.quickest(given, wanted, itemsize), itemsize)

    def of_plan(self, plan: PlacedGraph) -> int:
        """What a plan costs."""
        if self.links is not None:
            return plan.time(self.links, self.flops)
        computed = (op.flops * plan.graph.devices // self.flops for op in plan.operators.values()) if self.flops else ()
        return plan.bytes + sum(computed)


BYTES = Objective()
