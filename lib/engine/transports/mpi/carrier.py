"""MPI as a carrier: the communicators of all runs, and the tags that tell the messages of one run from another's.

An MPI has only a few thousand communicators, and one that a failed run has used cannot be freed safely: messages may
still be on their way, and would be received in the next communicator of the same number. So runs share them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from itertools import count
from typing import Any

from numpy import ascontiguousarray, empty  # by name: a metered run counts what players make with np.empty

from lib.engine.call import CollectiveCall
from lib.engine.collectives import Array
from lib.engine.libraries.numpy_library import NUMPY
from lib.errors import RuleError
from lib.extras import install_command

try:
    from mpi4py import MPI
except ImportError as why:
    raise RuleError(f"this needs mpi4py and an MPI: {install_command('mpi')}") from why

from .large_arrays import LARGE_COLLECTIVES, as_bytes

TAGS_OF_A_RUN = 6

MIN_LARGEST_TAG = 32767
"""The standard promises that tags up to this are valid."""

_numbers = count()
_shared: list[Any] = []
_groups: dict[tuple[int, ...], Any] = {}


class MpiCarrier:
    """The communicators of one run, for control messages and for arrays. All processes start the same runs. When the
    tags are used up, they begin again in new communicators."""

    library = NUMPY
    max_small = 1 << 12
    polls_per_check = 64
    lost: Collection[int] = ()
    in_background: Callable[[], object] | None = None
    idle = staticmethod(os.sched_yield)  # there may be more devices than cores

    def __init__(self, size: int) -> None:
        if size != MPI.COMM_WORLD.size:
            raise RuleError(
                f"there are {MPI.COMM_WORLD.size} processes for {size} devices; start the program with "
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
