"""The communicators of all runs, and the tags that tell the messages of one run from those of another.

An MPI has only a few thousand communicators, and one that a failed run has used cannot be freed safely: messages may
still be on their way, and would be received in the next communicator of the same number. So runs share them.
"""

from __future__ import annotations

from itertools import count
from typing import Any, NamedTuple

from mpi4py import MPI

TAGS_OF_A_RUN = 6

MIN_LARGEST_TAG = 32767
"""The standard promises that tags up to this are valid."""

_numbers = count()
_shared: list[Any] = []
_groups: dict[tuple[int, ...], Any] = {}


class RunTags(NamedTuple):
    """One run's communicators for control messages and for arrays, and the first of its TAGS_OF_A_RUN tags there."""

    control: Any
    data: Any
    first: int


def next_run() -> RunTags:
    """The tags of a new run; all processes start the same runs. When the tags are used up, they begin again in new
    communicators."""
    runs = int(MPI.COMM_WORLD.Get_attr(MPI.TAG_UB) or MIN_LARGEST_TAG) // TAGS_OF_A_RUN
    number = next(_numbers) % runs
    if not number:
        _shared[:] = [MPI.COMM_WORLD.Dup(), MPI.COMM_WORLD.Dup()]
    control, data = _shared
    return RunTags(control, data, number * TAGS_OF_A_RUN)


def group_communicator(group: tuple[int, ...]) -> Any:
    """The communicator of a group of devices, for collectives. All members call this together when it is new."""
    if group not in _groups:
        world = MPI.COMM_WORLD
        _groups[group] = world.Create_group(world.group.Incl(list(group)))
    return _groups[group]
