"""One clock for the ranks of a pipeline: nothing is used before it has been made.

A message from rank a to rank b says that the offset of b is at least that of a, plus the end of the cell that made it,
less the start of the cell that uses it. Chains of messages say the same of any two ranks. Each rank takes the middle of
what is possible beside the first one, which leaves every message possible.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

from lib.errors import RuleError

from .replay import Order
from .spans import Span

KEPT = 0.05
"""Clocks that contradict each other by at most so many ms are kept."""


@dataclass(frozen=True)
class Clocks:
    """By rank, what is added to its times, and how far off that may be, in ms; and what is odd about it."""

    offsets: tuple[float, ...]
    doubt: float = 0.0
    note: str = ""

    @property
    def are_kept(self) -> bool:
        return not any(self.offsets)


def clocks_of(order: Order, spans: Sequence[Sequence[Span]], hosts: Sequence[str], ranks: Sequence[int]) -> Clocks:
    """The offsets of a step's ranks."""
    p = len(spans)
    least = [[-inf] * p for _ in range(p)]
    cells: dict[tuple[int, int], str] = {}
    for rank, row in enumerate(order.arrivals):
        for at, arrivals in enumerate(row):
            for (source, place), message in arrivals:
                gap = spans[source][place].end - spans[rank][at].start
                if gap > least[source][rank]:
                    least[source][rank] = gap
                    cells[source, rank] = (
                        f"{message.used} on rank {ranks[rank]} starts before rank {ranks[source]} ends {message.made}"
                    )
    most = max((gap for row in least for gap in row), default=-inf)
    if most <= KEPT:
        return Clocks((0.0,) * p)
    note = ""
    worst = max(cells, key=lambda pair: least[pair[0]][pair[1]])
    if hosts[0] and len(set(hosts)) == 1:
        note = f"{cells[worst]}, by {most:.2f} ms, and both ran on {hosts[0]}: the reading or its clocks are in error"
    for a, b in cells:
        if (missed := least[a][b] + least[b][a]) > KEPT:
            raise RuleError(
                f"no clocks fit: {cells[a, b]}, and {cells[b, a]}, with any offset by {missed:.2f} ms together; a "
                "clock drifts within the step, so profile again, or fewer microbatches"
            )
    for via in range(p):
        for a in range(p):
            if least[a][via] > -inf:
                for b in range(p):
                    least[a][b] = max(least[a][b], least[a][via] + least[via][b])
    if (missed := max(least[rank][rank] for rank in range(p))) > KEPT:
        raise RuleError(
            f"no clocks fit: around a circle of messages they miss each other by {missed:.2f} ms; a clock drifts"
        )
    offsets = tuple((least[0][rank] - least[rank][0]) / 2 if rank else 0.0 for rank in range(p))
    doubt = max(-(least[a][b] + least[b][a]) / 2 for a, b in cells)
    return Clocks(offsets, max(doubt, 0.0), note)
