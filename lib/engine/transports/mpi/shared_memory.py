"""Memory shared by the processes of one host. What is written here reaches another process sooner than any message.

Each process owns a part of it and lends places there, whose offsets it tells the others in a message. A place comes
back only when a run has ended well: after a failure, another process may still write to it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping

from lib.engine.collectives import Array

PART_BYTES = 1 << 19
"""What a process can lend. Groups and pairs for which there is no room use messages."""

NOWHERE = -1
"""The offset of a place that could not be lent."""

CACHE_LINE = 64
"""Bytes that processors exchange at once: a place has lines of its own."""


class HostMemory:
    """The parts of all processes of this host, by rank; none where there is no such memory. `processes` are their
    numbers in the system, if they can open each other's files."""

    def __init__(
        self,
        rank: int,
        parts: Mapping[int, Array],
        sync: Callable[[], object] = lambda: None,
        processes: Mapping[int, int] | None = None,
    ) -> None:
        self.rank = rank
        self._parts = parts
        self.processes = processes or {}
        self.sync = sync
        """Orders memory accesses: what was written before is seen by whoever sees what is written afterwards."""
        self._unused: dict[int, list[int]] = defaultdict(list)
        """Offsets of places that have come back, by size."""
        self._end = 0
        """Where the part has not been lent yet."""

    def sees(self, ranks: Iterable[int]) -> bool:
        """True if all these processes are on this host."""
        return all(rank in self._parts for rank in ranks)

    def lend(self, nbytes: int) -> int:
        """The offset of a place in this process's part, full of zeros; NOWHERE if there is no room."""
        nbytes = _whole_lines(nbytes)
        if self._unused[nbytes]:
            offset = self._unused[nbytes].pop()
        elif self.rank not in self._parts or self._end + nbytes > len(self._parts[self.rank]):
            return NOWHERE
        else:
            offset = self._end
            self._end += nbytes
        self.place(self.rank, offset, nbytes)[:] = 0
        return offset

    def give_back(self, offset: int, nbytes: int) -> None:
        """Takes back a place that nobody uses any more."""
        if offset != NOWHERE:
            self._unused[_whole_lines(nbytes)].append(offset)

    def place(self, rank: int, offset: int, nbytes: int) -> Array:
        """The bytes of a place in the part of the process `rank`."""
        return self._parts[rank][offset : offset + nbytes]


def _whole_lines(nbytes: int) -> int:
    return -(-nbytes // CACHE_LINE) * CACHE_LINE
