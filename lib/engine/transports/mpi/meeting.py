"""A group's meetings: tables with a row for each member, and how the rows reach the others.

A group meets first by messages. If all members are on one host, its first member lends a place in shared memory and
tells the others in its row; from then on the tables are there.
"""

from __future__ import annotations

from functools import partial
from struct import pack
from typing import Any, Protocol

import numpy as np
from mpi4py import MPI
from numpy import zeros

from lib.engine.collectives import Array

from .control import ControlChannel
from .handshake import PLACE_BYTES, Handshake, row_bytes
from .shared_memory import CACHE_LINE, NOWHERE, HostMemory

Startall, Testall = MPI.Prequest.Startall, MPI.Request.Testall


class Meeting(Protocol):
    """One group as seen by one device."""

    index: int
    """Of this device in the group."""
    tables: list[Array]
    """By turn: a row for each member, in the group's order."""
    turn: int
    """Which table the next meeting uses."""
    number: int
    """How many meetings this device has joined."""

    def meet(self, handshake: Handshake, clock: int, control: ControlChannel) -> None:
        """Synchronizes the group; afterwards the rows of all members are in the table of the handshake.

        Raises:
            PeerFailedError, DeadlockError: as in `ControlChannel.wait`.
        """
        ...

    def free(self, ended_well: bool) -> None:
        """Frees what MPI holds, and the place in shared memory if nobody can use it any more."""
        ...


class MessageMeeting:
    """Rows are exchanged in messages. Requests are started again for each meeting: half the time of new ones."""

    def __init__(self, comm: Any, tag: int, group: tuple[int, ...], host: HostMemory) -> None:
        self.index = group.index(comm.rank)
        rows = zeros((len(group), row_bytes(comm.size)), np.uint8)
        self.tables = [rows]
        self.turn = self.number = 0
        others = [(i, member) for i, member in enumerate(group) if i != self.index]
        self._requests = [comm.Recv_init([rows[i], MPI.BYTE], member, tag) for i, member in others]
        self._requests += [comm.Send_init([rows[self.index], MPI.BYTE], member, tag) for _, member in others]
        self._written: Handshake | None = None
        """The handshake whose call is in this device's row."""
        self._places = rows[:, -PLACE_BYTES:].view(np.int64)
        self._host, self._lent = host, NOWHERE
        if self.index == 0 and host.sees(group):
            self._lent = host.lend(tables_bytes(rows))
        self._places[self.index] = self._lent

    def place(self) -> int:
        """The place for the group's tables in the memory of its first member, after the first meeting."""
        return int(self._places[0, 0])

    def take_place(self) -> int:
        """The same, for tables that will give it back."""
        self._lent = NOWHERE
        return self.place()

    def meet(self, handshake: Handshake, clock: int, control: ControlChannel) -> None:
        if handshake is not self._written:
            handshake.write_call()
            self._written = handshake
        handshake.write_clock(clock)
        self.number += 1
        requests = self._requests
        Startall(requests)
        if Testall(requests):
            control.progress += 1
            return
        try:
            control.wait(partial(Testall, requests), handshake.call)
        except BaseException:
            for request in requests:
                request.Cancel()
            self.number -= 1
            raise

    def free(self, ended_well: bool) -> None:
        for request in self._requests:
            request.Free()
        if ended_well:
            self._host.give_back(self._lent, tables_bytes(self.tables[0]))


class SharedMeeting:
    """The tables are in shared memory, with the number of each member's last meeting, which it writes after its row.

    Two tables take turns. A member writes to a table again only in the meeting after the next one; all others have then
    come to the next one, and have read this table before.
    """

    def __init__(self, host: HostMemory, group: tuple[int, ...], index: int, like: Array, place: int) -> None:
        self.index = index
        self.turn = 0
        self.number = 1  # the group has met before, by messages
        self._host, self._sync = host, host.sync
        self._place = place if index == 0 else NOWHERE
        self._nbytes = tables_bytes(like)
        memory = host.place(group[0], place, self._nbytes)
        halves = memory.reshape(2, -1)
        self.tables = [half[: like.size].reshape(like.shape) for half in halves]
        self._numbers = [half[like.size :].data.cast("q")[: len(group)] for half in halves]
        """By turn: how often each member has met."""
        self._written: list[Handshake | None] = [None, None]

    def meet(self, handshake: Handshake, clock: int, control: ControlChannel) -> None:
        turn = self.turn
        if handshake is not self._written[turn]:
            handshake.write_call()
            self._written[turn] = handshake
        handshake.write_clock(clock)
        self.number += 1
        self.turn = 1 - turn
        numbers, all_here = self._numbers[turn], pack("q", self.number) * len(self.tables[0])
        self._sync()
        numbers[self.index] = self.number
        if numbers.tobytes() == all_here:
            control.progress += 1
        else:
            try:
                control.wait(lambda: numbers.tobytes() == all_here, handshake.call)
            except BaseException:  # a device that goes on has not joined this meeting
                numbers[self.index] = 0
                self.number -= 1
                self.turn = turn
                raise
        self._sync()

    def free(self, ended_well: bool) -> None:
        if ended_well:
            self._host.give_back(self._place, self._nbytes)


def tables_bytes(rows: Array) -> int:
    """The bytes of two tables in shared memory, each with a number for every member."""
    numbers = -(-8 * len(rows) // CACHE_LINE) * CACHE_LINE
    return 2 * (rows.size + numbers)
