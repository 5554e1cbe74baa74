"""Devices as processes of MPI: every call is first agreed upon in a small message, so nobody waits blindly.

A meeting sends each member a letter of about a kilobyte that holds the call and, if it fits, the array; a small
collective needs nothing else. Large arrays follow when all calls agree: from then on MPI cannot get stuck.
Parts are reduced here and not by MPI, in the order of the devices, so that results are those of `reference` to the
last bit. While a device waits it looks for news of the others (see `wire`), never sleeping and never blocking.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy import ascontiguousarray, concatenate, empty, stack, zeros

from lib.engine import collectives
from lib.engine.call import Call, Number, agree
from lib.engine.collectives import Array
from lib.engine.metering.meter import Meter
from lib.engine.transports.base import Put

from .control import Wire
from .handshake import Letter, room

KEPT = 1024
"""How many letters are kept, for the next time that their call is made."""

BLOCK = 1 << 14
"""Elements that are reduced at once: of all devices together they stay in a processor's cache."""

Startall, Testall = MPI.Prequest.Startall, MPI.Request.Testall

MEET, MESSAGE, PUT = 1, 2, 3
"""Tags."""


class MpiPort:
    """One process's end."""

    def __init__(self, wire: Wire, meter: Meter | None) -> None:
        self.wire = wire
        self.data = wire.world.Dup()
        self.device = Number(self.data.rank)
        self.size = Number(self.data.size)
        self.meter = meter
        self.land: Callable[[Put], None]
        self.sent = [0] * self.size
        self.received = [0] * self.size
        self.hub: Any = None
        """Who runs this device's loop, while a stream is open."""
        self._sending: list[Any] = []
        self._out = zeros(room(self.size), np.uint8)
        self._in = [zeros(room(self.size), np.uint8) for _ in range(self.size)]
        self._letters: dict[Call, Letter] = {}
        self._written: Letter | None = None
        self._links: dict[tuple[int, ...], list[Any]] = {}
        self._groups: dict[tuple[int, ...], Any] = {tuple(range(self.size)): self.data}

    def collective(self, call: Call, arr: Array) -> Any:
        if len(call.group) == 1:
            return _mine(call, [arr], 0)
        letter = self._letters.get(call) or self._letter(call, arr if call.name in _LARGE else None)
        if letter.arrays:
            letter.arrays[letter.index][...] = arr
            self._meet(letter)
            return _mine(call, letter.arrays, letter.index)
        self._meet(letter)
        if call.name not in _LARGE:
            return None
        whole = ascontiguousarray(arr).reshape(arr.shape)
        return _LARGE[call.name](self._comm(call.group), call, whole, letter.index)

    def _letter(self, call: Call, content: Array | None) -> Letter:
        if len(self._letters) >= KEPT:
            self._letters.clear()
        letter = self._letters[call] = Letter(call, self.device, self._out, self._in, content)
        return letter

    def _meet(self, letter: Letter) -> None:
        """Meets the group: afterwards everybody's content is here."""
        call, meter = letter.call, self.meter
        if letter is not self._written:
            letter.address()
            self._written = letter
        letter.date(meter.clock if meter is not None else 0)
        requests = self._links.get(call.group) or self._link(call.group)
        Startall(requests)
        try:
            self.wire.wait(partial(Testall, requests), call)
        except BaseException:
            for request in requests:
                request.Cancel()
            raise
        latest = letter.read()
        if latest is None:
            agree(letter.calls(), call.group)
        elif meter is not None and latest > meter.clock:
            meter.clock = latest

    def _link(self, group: tuple[int, ...]) -> list[Any]:
        """Requests that are made once and started for each meeting of a group: half the time of new ones."""
        others = [member for member in group if member != self.device]
        links = [self.data.Recv_init([self._in[member], MPI.BYTE], member, MEET) for member in others]
        links += [self.data.Send_init([self._out, MPI.BYTE], member, MEET) for member in others]
        self._links[group] = links
        return links

    def _comm(self, group: tuple[int, ...]) -> Any:
        if group not in self._groups:
            self._groups[group] = self.data.Create_group(self.data.group.Incl(list(group)))
        return self._groups[group]

    def fence(self, call: Call, puts: Sequence[tuple[int, Put]]) -> list[Put]:
        if self.size == 1:
            return [put for _, put in puts]
        counts = np.array([sum(to == target for to, _ in puts) for target in range(self.size)], np.int32)
        sending = [self.data.isend(tuple(put), to, PUT) for to, put in puts]
        letter = self._letters.get(call) or self._letter(call, counts)
        letter.arrays[letter.index][...] = counts
        self._meet(letter)
        arrived = []
        for source, told in enumerate(letter.arrays):
            count = told[self.device] if source != self.device else 0
            arrived += [Put(*self.data.recv(source=source, tag=PUT)) for _ in range(count)]
        MPI.Request.waitall(sending)
        return arrived

    def landed(self, to: int, put: Put) -> bool:
        return False

    def send(self, to: int, arr: Array) -> None:
        clock = self.meter.clock if self.meter is not None else 0
        self._sending = [request for request in self._sending if not request.Test()]
        self._sending.append(self.data.isend((clock, arr.copy()), to, MESSAGE))
        self.sent[to] += 1

    def receive(self, source: int) -> Array:
        self.wire.wait(lambda: self.data.Iprobe(source, MESSAGE), f"receive({source})")
        clock, array = self.data.recv(source=source, tag=MESSAGE)
        self.received[source] += 1
        if self.meter is not None:
            self.meter.clock = max(self.meter.clock, clock)
        result: Array = array
        return result

    def step_aside(self) -> None:
        self.wire.look(None)
        if self.hub is not None:
            self.hub.switch()

    def close(self) -> list[tuple[int, int, int]]:
        """Ends the connection. Messages that nobody has received: (from, to, how many)."""
        counts = self.wire.world.allgather((self.sent, self.received))
        unread = []
        for source, (sent, _) in enumerate(counts):
            for to, (_, received) in enumerate(counts):
                left = sent[to] - received[source]
                unread += [(source, to, left)] if left else []
                for _ in range(left if to == self.device else 0):
                    self.data.recv(source=source, tag=MESSAGE)
        MPI.Request.waitall(self._sending)
        for links in self._links.values():
            for request in links:
                request.Free()
        for comm in self._groups.values():
            comm.Free()
        return unread


def _mine(call: Call, arrays: Sequence[Array], index: int) -> Array | None:
    """One device's result, from the arrays of all; as `reference` has it."""
    match call.name:
        case "all_reduce":
            return collectives.reduced(arrays, call.op)
        case "all_gather":
            return concatenate([a[None] for a in arrays] if arrays[0].ndim == 0 else arrays, call.axis)
        case "reduce_scatter":
            return collectives.reduced([np.split(a, len(arrays), call.axis)[index] for a in arrays], call.op)
        case "all_to_all":
            return concatenate([np.split(a, len(arrays), call.axis)[index] for a in arrays], call.axis)
    return None


def _all_reduce(comm: Any, call: Call, arr: Array, index: int) -> Array:
    """Each device reduces one part, and gathers the others': 2(n-1)/n S bytes sent."""
    n, flat, size = comm.size, arr.reshape(-1), arr.dtype.itemsize
    ends = [i * flat.size // n for i in range(n + 1)]
    counts = [b - a for a, b in pairwise(ends)]
    mine = flat[ends[index] : ends[index + 1]]
    # What a device brings to its own part stays where it is: copying takes longer than anything else here.
    sent = [0 if i == index else count * size for i, count in enumerate(counts)]
    come = [0 if i == index else mine.nbytes for i in range(n)]
    others = _scratch(n * mine.nbytes).view(arr.dtype).reshape(n, mine.size)
    comm.Alltoallv(
        [_bytes(flat), sent, [e * size for e in ends[:-1]], MPI.BYTE],
        [_bytes(others), come, [i * mine.nbytes for i in range(n)], MPI.BYTE],
    )
    result = empty(arr.shape, np.float64 if call.op == "avg" and arr.dtype.kind in "biu" else arr.dtype)
    part = result.reshape(-1)[ends[index] : ends[index + 1]]
    for start in range(0, mine.size, BLOCK):
        block = slice(start, start + BLOCK)
        collectives.reduced([(mine if i == index else others[i])[block] for i in range(n)], call.op, part[block])
    size = result.dtype.itemsize
    comm.Allgatherv(MPI.IN_PLACE, [_bytes(result), [c * size for c in counts], [e * size for e in ends[:-1]], MPI.BYTE])
    return result


def _all_gather(comm: Any, call: Call, arr: Array, index: int) -> Array:
    parts = empty((comm.size, *arr.shape), arr.dtype)
    comm.Allgather([_bytes(arr), MPI.BYTE], [_bytes(parts), MPI.BYTE])
    if call.axis == 0:
        return parts.reshape(-1, *arr.shape[1:])
    return concatenate(list(parts), call.axis)


def _exchanged(comm: Any, call: Call, arr: Array) -> list[Array]:
    pieces = stack(np.split(arr, comm.size, call.axis))
    parts = empty(pieces.shape, arr.dtype)
    comm.Alltoall([_bytes(pieces), MPI.BYTE], [_bytes(parts), MPI.BYTE])
    return list(parts)


_KEPT = [empty(0, np.uint8)]


def _scratch(nbytes: int) -> Array:
    """Memory that is only needed during a call. Kept, because new pages cost as much time as moving the bytes."""
    if _KEPT[0].size < nbytes:
        _KEPT[0] = empty(nbytes, np.uint8)
    return _KEPT[0][:nbytes]


def _bytes(array: Array) -> Array:
    return array.reshape(-1).view(np.uint8)


_LARGE: dict[str, Callable[[Any, Call, Array, int], Array]] = {
    "all_reduce": _all_reduce,
    "all_gather": _all_gather,
    "reduce_scatter": lambda comm, call, arr, _: collectives.reduced(_exchanged(comm, call, arr), call.op),
    "all_to_all": lambda comm, call, arr, _: concatenate(_exchanged(comm, call, arr), call.axis),
}
