"""Synchronizes the members of a group: each sends every other one a row with its call, its clock and a small content.

Rows between two devices keep their order, and a device is in one meeting at a time. So a row with another call than
one's own is a mismatch, also if the other call is one of another group. It is refused as soon as it has come.

MPI's own nonblocking collectives cannot carry rows: a communicator for a group is only made when all members are there,
and a collective that a failed run has begun cannot be cancelled, so a later run would receive its rows.
"""

from __future__ import annotations

from pickle import dumps
from typing import Any

from lib.engine.call import CollectiveCall, require_same_call

from .control import ControlChannel
from .messages import Sending


class Rendezvous:
    """All meetings of one device, in groups of `comm`; they use one tag."""

    def __init__(self, comm: Any, tag: int, control: ControlChannel) -> None:
        self.comm, self.tag, self.control = comm, tag, control
        self._sending = Sending()

    def meet(self, call: CollectiveCall, clock: int, content: Any) -> tuple[list[Any], int]:
        """Synchronizes the group of a call. Returns the contents of all members, in the group's order, and the latest
        clock.

        Raises:
            MismatchError: another member makes a different call.
            PeerFailedError, DeadlockError: as in `ControlChannel.wait`.
        """
        device, mine = self.comm.rank, tuple(call)
        row = dumps((mine, clock, content))
        latest, contents = clock, {device: content}
        missing = [member for member in call.group if member != device]
        for member in missing:
            self._sending.add(self.comm.Isend(row, member, self.tag))

        def all_are_here() -> bool:
            nonlocal latest
            for member in tuple(missing):
                come = self.comm.improbe(member, self.tag)
                if come is not None:
                    called, theirs, contents[member] = come.recv()
                    if called != mine:
                        calls = {device: call, member: CollectiveCall(*called)}
                        require_same_call([calls[i] for i in sorted(calls)], sorted(calls))
                    latest = max(latest, theirs)
                    missing.remove(member)
            return not missing

        self.control.wait(all_are_here, call)
        return [contents[member] for member in call.group], latest

    def free(self) -> None:
        """Abandons the rows of a failed run that have not left."""
        self._sending.abandon()
