"""A group's meetings: the table of buffers, and the persistent requests that exchange its rows."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy import zeros

from .control import ControlChannel
from .handshake import Handshake, buffer_bytes

Startall, Testall = MPI.Prequest.Startall, MPI.Request.Testall


class Meeting:
    """One group as seen by one device. Requests are started again for each meeting: half the time of new ones."""

    def __init__(self, comm: Any, tag: int, group: tuple[int, ...]) -> None:
        self.index = group.index(comm.rank)
        self.rows = rows = zeros((len(group), buffer_bytes(comm.size)), np.uint8)
        """By member, in the group's order: what this device sends, and what it has received from the others."""
        others = [(i, member) for i, member in enumerate(group) if i != self.index]
        self.requests = [comm.Recv_init([rows[i], MPI.BYTE], member, tag) for i, member in others]
        self.requests += [comm.Send_init([rows[self.index], MPI.BYTE], member, tag) for _, member in others]
        self.written: Handshake | None = None
        """The handshake whose call is in this device's row."""

    def meet(self, handshake: Handshake, clock: int, control: ControlChannel) -> None:
        """Synchronizes the group; afterwards the rows of all members are in the table.

        Raises:
            PeerFailedError, DeadlockError: as in `ControlChannel.wait`.
        """
        if handshake is not self.written:
            handshake.write_call()
            self.written = handshake
        handshake.write_clock(clock)
        requests = self.requests
        Startall(requests)
        if Testall(requests):
            control.progress += 1
            return
        try:
            control.wait(partial(Testall, requests), handshake.call)
        except BaseException:
            for request in requests:
                request.Cancel()
            raise

    def free(self) -> None:
        """Frees what MPI holds for the requests."""
        for request in self.requests:
            request.Free()
