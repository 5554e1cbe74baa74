"""Collectives of arrays too large for a handshake, on MPI's own exchanges of bytes.

MPI only moves bytes: arrays are reduced here, in device order, which MPI_Allreduce does not guarantee. All calls have
been compared before, so every member is here with an array of the same shape and dtype.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy import ascontiguousarray, empty

from lib.engine import collectives
from lib.engine.call import CollectiveCall
from lib.engine.collectives import Array

BLOCK_ELEMENTS = 1 << 14
"""Number of elements reduced together: those of all devices fit into a processor's cache."""


def _all_reduce(comm: Any, call: CollectiveCall, arr: Array, index: int) -> Array:
    """Reduces one part on each device, then gathers all parts: 2(n-1)/n S bytes sent."""
    n, flat, itemsize = comm.size, arr.reshape(-1), arr.dtype.itemsize
    ends = [i * flat.size // n for i in range(n + 1)]
    counts = [b - a for a, b in pairwise(ends)]
    mine = flat[ends[index] : ends[index + 1]]
    others = _scratch(n * mine.nbytes).view(arr.dtype).reshape(n, mine.size)
    # A device's contribution to its own part is not copied, because copying takes longer than anything else here.
    sent = [0 if i == index else count * itemsize for i, count in enumerate(counts)]
    received = [0 if i == index else mine.nbytes for i in range(n)]
    comm.Alltoallv(
        [_as_bytes(flat), sent, [e * itemsize for e in ends[:-1]], MPI.BYTE],
        [_as_bytes(others), received, [i * mine.nbytes for i in range(n)], MPI.BYTE],
    )
    result = empty(arr.shape, collectives.reduced_dtype(call.op, arr.dtype))
    parts = [mine if i == index else others[i] for i in range(n)]
    _reduce_in_blocks(parts, call.op, result.reshape(-1)[ends[index] : ends[index + 1]])
    places = [[k * result.dtype.itemsize for k in elements] for elements in (counts, ends[:-1])]
    comm.Allgatherv(MPI.IN_PLACE, [_as_bytes(result), *places, MPI.BYTE])
    return result


def _reduce_in_blocks(parts: Sequence[Array], op: str, out: Array) -> None:
    for start in range(0, out.size, BLOCK_ELEMENTS):
        block = slice(start, start + BLOCK_ELEMENTS)
        collectives.reduce_arrays([part[block] for part in parts], op, out[block])


def _all_gather(comm: Any, call: CollectiveCall, arr: Array, index: int) -> Array:
    parts = empty((comm.size, *arr.shape), arr.dtype)
    comm.Allgather([_as_bytes(arr), MPI.BYTE], [_as_bytes(parts), MPI.BYTE])
    if call.axis == 0:
        return parts.reshape(-1, *arr.shape[1:])
    return collectives.joined(list(parts), call.axis)


def _exchanged(comm: Any, call: CollectiveCall, arr: Array) -> list[Array]:
    """This device's part of every member's array, in the group's order."""
    pieces = ascontiguousarray(collectives.cut(arr, comm.size, call.axis))
    parts = empty(pieces.shape, arr.dtype)
    comm.Alltoall([_as_bytes(pieces), MPI.BYTE], [_as_bytes(parts), MPI.BYTE])
    return list(parts)


_SCRATCH = [empty(0, np.uint8)]


def _scratch(nbytes: int) -> Array:
    """Memory for the duration of a call. Cached, because new pages take as long as moving the bytes."""
    if _SCRATCH[0].size < nbytes:
        _SCRATCH[0] = empty(nbytes, np.uint8)
    return _SCRATCH[0][:nbytes]


def _as_bytes(array: Array) -> Array:
    return array.reshape(-1).view(np.uint8)


LARGE_COLLECTIVES: dict[str, Callable[[Any, CollectiveCall, Array, int], Array]] = {
    "all_reduce": _all_reduce,
    "all_gather": _all_gather,
    "reduce_scatter": lambda comm, call, arr, _: collectives.reduce_arrays(_exchanged(comm, call, arr), call.op),
    "all_to_all": lambda comm, call, arr, _: collectives.joined(_exchanged(comm, call, arr), call.axis),
}
"""By name: the result of one device, from the communicator of its group, the call, its array, and its index there."""
