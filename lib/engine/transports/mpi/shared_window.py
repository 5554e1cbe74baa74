"""Opens the memory that the processes of a host share: an MPI-3 window."""

from __future__ import annotations

import atexit
from contextlib import suppress
from typing import Any

import numpy as np
from mpi4py import MPI

from .shared_memory import PART_BYTES, HostMemory


def open_window(world: Any) -> HostMemory:
    """The memory of this process's host. All processes call this together; where one is alone on its host, or the
    system has no memory to share, there is none."""
    near = world.Split_type(MPI.COMM_TYPE_SHARED)
    window: Any = None
    if near.size > 1:
        with suppress(MPI.Exception):
            window = MPI.Win.Allocate_shared(PART_BYTES, 1, comm=near)
    if not near.allreduce(window is not None, MPI.LAND):
        return HostMemory(world.rank, {}, lambda: None)
    window.Lock_all(MPI.MODE_NOCHECK)  # `Sync` is allowed only then
    atexit.register(window.Unlock_all)
    ranks = near.allgather(world.rank)
    parts = {rank: np.frombuffer(window.Shared_query(i)[0], np.uint8) for i, rank in enumerate(ranks)}
    return HostMemory(world.rank, parts, window.Sync)
