"""MPI as a carrier: the communicators of all runs, and the tags that distinguish the messages of runs.

An MPI has only a few thousand communicators, and one that a failed run has used cannot be freed safely: pending
messages would be received in the next communicator with the same number. So runs share communicators.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from itertools import count
from typing import Any

from numpy import ascontiguousarray, empty  # by name: a metered run counts what players make with np.empty

from lib.engine.collectives import Array, CollectiveCall, cut, joined, reduce_into, reduced, reduced_dtype
from lib.engine.processes import TAGS_OF_A_RUN
from lib.engine.transport import NUMPY
from lib.errors import RuleError, Sentences, install_command
from lib.ledger.algebra import counted

SAYS = Sentences(
    {
        "no MPI": "this needs mpi4py and an MPI: {install}",
    }
)
"""The refusals of this chapter: a reason, and a sentence over its facts."""

try:
    from mpi4py import MPI
except ImportError as why:
    raise RuleError(SAYS("no MPI", install=install_command("mpi"))) from why


def as_bytes(array: Array) -> Array:
    return array.reshape(-1).view("u1")


def _all_reduce(comm: Any, call: CollectiveCall, arr: Array, index: int) -> Array:
    """Reduces one part on each device, then gathers all parts: 2(n-1)/n S bytes sent.

    Parts are equal except for the last ones, because MPI_Allgatherv moves small pieces in many turns, each of which may
    wait for a processor, and MPI_Allgather does not.
    """
    flat, length = arr.reshape(-1), -(-arr.size // comm.size)
    parts = _parts_for(index, comm, flat, length)
    whole = empty((comm.size * length,), reduced_dtype(call.op, arr.dtype))
    reduce_into(whole[index * length :][: parts[0].size], parts, call.op)
    comm.Allgather(MPI.IN_PLACE, [as_bytes(whole), MPI.BYTE])
    return whole[: flat.size].reshape(arr.shape)


def _reduce_scatter(comm: Any, call: CollectiveCall, arr: Array, index: int) -> Array:
    pieces = ascontiguousarray(cut(arr, comm.size, call.axis))
    parts = _parts_for(index, comm, pieces.reshape(-1), pieces[0].size)
    return reduced(parts, call.op).reshape(pieces.shape[1:])


def _parts_for(index: int, comm: Any, flat: Array, length: int) -> list[Array]:
    """What the member at `index` reduces: the part of every member's `flat` array that starts at `index * length`.

    Its own part is not copied, because copying would take longer than anything else here.
    """
    members, itemsize = range(comm.size), flat.itemsize
    ends = [min(i * length, flat.size) for i in range(comm.size + 1)]
    part = flat[ends[index] : ends[index + 1]]
    others = empty((comm.size, part.size), flat.dtype)
    sent = [0 if i == index else (ends[i + 1] - ends[i]) * itemsize for i in members]
    received = [0 if i == index else part.nbytes for i in members]
    comm.Alltoallv(
        [as_bytes(flat), sent, [end * itemsize for end in ends[:-1]], MPI.BYTE],
        [as_bytes(others), received, [i * part.nbytes for i in members], MPI.BYTE],
    )
    return [part if i == index else others[i] for i in members]


def _all_gather(comm: Any, call: CollectiveCall, arr: Array, _: int) -> Array:
    parts = empty((comm.size, *arr.shape), arr.dtype)
    comm.Allgather([as_bytes(arr), MPI.BYTE], [as_bytes(parts), MPI.BYTE])
    if call.axis == 0:
        return parts.reshape(-1, *arr.shape[1:])
    return joined(list(parts), call.axis)


def _all_to_all(comm: Any, call: CollectiveCall, arr: Array, _: int) -> Array:
    pieces = ascontiguousarray(cut(arr, comm.size, call.axis))
    parts = empty(pieces.shape, arr.dtype)
    comm.Alltoall([as_bytes(pieces), MPI.BYTE], [as_bytes(parts), MPI.BYTE])
    return parts.reshape(arr.shape) if call.axis == 0 else joined(list(parts), call.axis)


LARGE_COLLECTIVES: dict[str, Callable[[Any, CollectiveCall, Array, int], Array]] = {
    "all_reduce": _all_reduce,
    "all_gather": _all_gather,
    "reduce_scatter": _reduce_scatter,
    "all_to_all": _all_to_all,
}
"""For each collective: the result of one device, from its group's communicator, the call, its array and its index
there."""

MIN_LARGEST_TAG = 32767
"""The standard guarantees that tags up to this number are valid."""

_numbers = count()
_shared: list[Any] = []
_groups: dict[tuple[int, ...], Any] = {}


class MpiCarrier:
    """The communicators of one run, for control messages and for arrays. All processes start the same runs. When the
    tags are used up, runs use new communicators."""

    library = NUMPY
    max_small = 1 << 12
    polls_per_check = 64
    lost: Collection[int] = ()
    idle = staticmethod(os.sched_yield)  # there may be more devices than cores

    def __init__(self, size: int) -> None:
        if size != MPI.COMM_WORLD.size:
            raise RuleError(
                f"got {counted(MPI.COMM_WORLD.size, 'process')} for {counted(size, 'device')}; start the program with "
                f"'mpiexec -n {size} python ...'"
            )
        runs = int(MPI.COMM_WORLD.Get_attr(MPI.TAG_UB) or MIN_LARGEST_TAG) // TAGS_OF_A_RUN
        number = next(_numbers) % runs
        if not number:
            _shared[:] = [MPI.COMM_WORLD.Dup(), MPI.COMM_WORLD.Dup()]
        self.control, self.data = _shared
        self.first = number * TAGS_OF_A_RUN

    def collective(self, call: CollectiveCall, arr: Array, index: int) -> Array:
        contiguous = ascontiguousarray(arr).reshape(arr.shape)
        return LARGE_COLLECTIVES[call.name](self.group(call.group), call, contiguous, index)

    def send_body(self, arr: Array, to: int, tag: int, header: Any) -> Any:
        return self.data.Isend([as_bytes(arr), MPI.BYTE], to, tag)

    def receive_body(self, shape: tuple[int, ...], dtype: str, source: int, tag: int) -> tuple[Array, Any]:
        array = empty(shape, dtype)
        return array, self.data.Irecv([as_bytes(array), MPI.BYTE], source, tag)

    def group(self, members: tuple[int, ...]) -> Any:
        if members not in _groups:
            world = MPI.COMM_WORLD
            _groups[members] = world.Create_group(world.group.Incl(list(members)))
        return _groups[members]

    def abort(self) -> None:
        MPI.COMM_WORLD.Abort(1)
