"""Collectives of arrays too large for a handshake, on MPI's own exchanges of bytes.

MPI only moves bytes: arrays are reduced here, in device order, which MPI_Allreduce does not guarantee. All calls have
been compared before, so every member is here with an array of the same shape and dtype. Along the first axis, bytes go
from the caller's array to the result and nowhere else; along another one, parts are packed before and unpacked after.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

from mpi4py import MPI
from numpy import ascontiguousarray

from lib.engine import collectives
from lib.engine.call import CollectiveCall
from lib.engine.collectives import Array, Memory

from .messages import as_bytes


def _all_reduce(comm: Any, call: CollectiveCall, arr: Array, index: int, memory: Memory) -> Array:
    """Reduces one part on each device, then gathers all parts: 2(n-1)/n S bytes sent."""
    n, flat, itemsize = comm.size, arr.reshape(-1), arr.dtype.itemsize
    ends = [i * flat.size // n for i in range(n + 1)]
    counts = [b - a for a, b in pairwise(ends)]
    mine = flat[ends[index] : ends[index + 1]]
    others = memory.empty((n, mine.size), arr.dtype)
    # A device's contribution to its own part is not copied, because copying takes longer than anything else here.
    sent = [0 if i == index else count * itemsize for i, count in enumerate(counts)]
    received = [0 if i == index else mine.nbytes for i in range(n)]
    comm.Alltoallv(
        [as_bytes(flat), sent, [e * itemsize for e in ends[:-1]], MPI.BYTE],
        [as_bytes(others), received, [i * mine.nbytes for i in range(n)], MPI.BYTE],
    )
    result = memory.empty(arr.shape, collectives.reduced_dtype(call.op, arr.dtype))
    parts = [mine if i == index else others[i] for i in range(n)]
    collectives.reduce_into(result.reshape(-1)[ends[index] : ends[index + 1]], parts, call.op)
    places = [[k * result.dtype.itemsize for k in elements] for elements in (counts, ends[:-1])]
    comm.Allgatherv(MPI.IN_PLACE, [as_bytes(result), *places, MPI.BYTE])
    return result


def _all_gather(comm: Any, call: CollectiveCall, arr: Array, _: int, memory: Memory) -> Array:
    parts = memory.empty((comm.size, *arr.shape), arr.dtype)
    comm.Allgather([as_bytes(arr), MPI.BYTE], [as_bytes(parts), MPI.BYTE])
    if call.axis == 0:
        return parts.reshape(-1, *arr.shape[1:])
    return collectives.joined(list(parts), call.axis, memory)


def _exchanged(comm: Any, call: CollectiveCall, arr: Array, memory: Memory) -> Array:
    """This device's part of every member's array, in the group's order."""
    pieces = ascontiguousarray(collectives.cut(arr, comm.size, call.axis))
    parts = memory.empty(pieces.shape, arr.dtype)
    comm.Alltoall([as_bytes(pieces), MPI.BYTE], [as_bytes(parts), MPI.BYTE])
    return parts


def _reduce_scatter(comm: Any, call: CollectiveCall, arr: Array, _: int, memory: Memory) -> Array:
    return collectives.reduced(list(_exchanged(comm, call, arr, memory)), call.op, memory)


def _all_to_all(comm: Any, call: CollectiveCall, arr: Array, _: int, memory: Memory) -> Array:
    parts = _exchanged(comm, call, arr, memory)
    return parts.reshape(arr.shape) if call.axis == 0 else collectives.joined(list(parts), call.axis, memory)


LARGE_COLLECTIVES: dict[str, Callable[[Any, CollectiveCall, Array, int, Memory], Array]] = {
    "all_reduce": _all_reduce,
    "all_gather": _all_gather,
    "reduce_scatter": _reduce_scatter,
    "all_to_all": _all_to_all,
}
"""By name: the result of one device, from the communicator of its group, the call, its array, its index there, and the
memory for results."""
