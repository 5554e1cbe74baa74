"""Memory that all processes of one host see (MPI-3 shared windows). What one writes here reaches another without a
message, and in less time than any message takes.

Each process owns a part of it and lends places there, whose offsets it tells the others in a message. A place comes
back only when a run has ended well: after a failure, another process may still write to it.
"""

from __future__ import annotations

import atexit
from collections import defaultdict
from typing import Any

import numpy as np
from mpi4py import MPI

from lib.engine.collectives import Array

PART_BYTES = 1 << 19
"""What a process can lend. Groups and pairs for which there is no room use messages."""

NOWHERE = -1
"""The offset of a place that could not be lent."""

CACHE_LINE = 64


class HostMemory:
    """The memory of this process's host, and the part of it that this process owns. All processes create it together."""

    def __init__(self, world: Any) -> None:
        self.rank = world.rank
        self.parts: dict[int, Array] = {}
        """Those that this process sees, by rank; none if it is alone on its host, or the system lends no memory."""
        self._window: Any = None
        self._unused: dict[int, list[int]] = defaultdict(list)
        """Offsets of places that have come back, by size."""
        self._end = 0
        near = world.Split_type(MPI.COMM_TYPE_SHARED)
        if near.size > 1:
            self._share(near, near.allgather(world.rank))

    def _share(self, near: Any, ranks: list[int]) -> None:
        try:
            window = MPI.Win.Allocate_shared(PART_BYTES, 1, comm=near)
        except MPI.Exception:
            window = None
        if not near.allreduce(window is not None, MPI.LAND):
            return
        self._window = window
        window.Lock_all(MPI.MODE_NOCHECK)  # `Sync` is allowed only then
        atexit.register(window.Unlock_all)
        self.parts = {rank: np.frombuffer(window.Shared_query(i)[0], np.uint8) for i, rank in enumerate(ranks)}

    def sees(self, ranks: Any) -> bool:
        """True if all these processes are on this host."""
        return all(rank in self.parts for rank in ranks)

    def lend(self, nbytes: int) -> int:
        """The offset of a place in this process's part, full of zeros; NOWHERE if there is no room."""
        nbytes = -(-nbytes // CACHE_LINE) * CACHE_LINE
        if self._unused[nbytes]:
            offset = self._unused[nbytes].pop()
        elif not self.parts or self._end + nbytes > PART_BYTES:
            return NOWHERE
        else:
            offset = self._end
            self._end += nbytes
        self.parts[self.rank][offset : offset + nbytes] = 0
        return offset

    def give_back(self, offset: int, nbytes: int) -> None:
        """Makes a place free to be lent again; nobody uses it any more."""
        if offset != NOWHERE:
            self._unused[-(-nbytes // CACHE_LINE) * CACHE_LINE].append(offset)

    def place(self, rank: int, offset: int, nbytes: int) -> Array:
        """The bytes of a place in the part of the process `rank`."""
        return self.parts[rank][offset : offset + nbytes]

    def sync(self) -> None:
        """Orders memory accesses: what was written before is seen by whoever sees what is written afterwards."""
        self._window.Sync()
