"""Opens the memory that the processes of a host share: an MPI-3 window."""

from __future__ import annotations

import atexit
import os
from contextlib import suppress
from secrets import token_bytes
from typing import Any

import numpy as np
from mpi4py import MPI

from .shared_blocks import can_be_opened, open_to_others
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
        return HostMemory(world.rank, {})
    window.Lock_all(MPI.MODE_NOCHECK)  # `Sync` is allowed only then
    atexit.register(_close, window)
    ranks = near.allgather(world.rank)
    parts = {rank: np.frombuffer(window.Shared_query(i)[0], np.uint8) for i, rank in enumerate(ranks)}
    return HostMemory(world.rank, parts, window.Sync, dict(zip(ranks, _open_each_other(near))))


def _close(window: Any) -> None:
    if not MPI.Is_finalized():
        window.Unlock_all()


def _open_each_other(near: Any) -> list[int]:
    """The processes of this host, in the order of their ranks; none if one cannot open the files of all others."""
    content = token_bytes(8)
    file = open_to_others(content)
    there = near.allgather((os.getpid(), file, content))
    all_can = near.allreduce(all(can_be_opened(*one) for one in there), MPI.LAND)
    if file is not None:
        os.close(file)
    return [process for process, _, _ in there] if all_can else []
