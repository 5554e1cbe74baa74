"""Devices as processes of MPI: every call is first agreed upon in a small message, so nobody waits blindly.

A meeting sends each member a message of at most a few hundred bytes that holds the call and, if it fits, the array;
a small collective needs nothing else. Large arrays follow when all calls agree: from then on MPI cannot get stuck.
Parts are reduced here and not by MPI, in the order of the devices, so that results are those of `reference` to the
last bit. While a device waits it looks for news of the others (see `wire`), never sleeping and never blocking.
"""

from __future__ import annotations

import pickle
import struct
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy import ascontiguousarray, concatenate, empty, frombuffer, stack

from . import reference
from .call import Call, agree
from .meter import Meter
from .number import Number
from .reference import Array
from .transport import Put
from .wire import Wire

LIMIT = 1024
"""Bytes of a meeting's message."""

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
        self._sending: list[Any] = []
        self._out = memoryview(bytearray(LIMIT))
        self._in = [memoryview(bytearray(LIMIT)) for _ in range(self.size)]
        self._heads: dict[Call, bytes] = {}
        self._links: dict[tuple[int, ...], list[Any]] = {}
        self._groups: dict[tuple[int, ...], Any] = {tuple(range(self.size)): self.data}

    def collective(self, call: Call, arr: Array) -> Any:
        group = call.group
        if len(group) == 1:
            return _mine(call, [arr], 0)
        index = group.index(self.device)
        arr = ascontiguousarray(arr).reshape(arr.shape)
        head = self._head(call)
        if len(head) + 8 + arr.nbytes > LIMIT:
            self._meet(call, head, b"")
            return _LARGE[call.name](self._comm(group), call, arr, index) if call.name in _LARGE else None
        contents = self._meet(call, head, arr.reshape(-1).view(np.uint8).data if arr.nbytes else b"")
        if call.name not in _LARGE:
            return None
        arrays = [arr if c is None else frombuffer(c, arr.dtype, arr.size).reshape(arr.shape) for c in contents]
        return _mine(call, arrays, index)

    def _head(self, call: Call) -> bytes:
        """The call as bytes with their number before them: equal calls have equal bytes."""
        head = self._heads.get(call)
        if head is None:
            packed = pickle.dumps(tuple(call))
            head = self._heads[call] = struct.pack("<H", len(packed)) + packed
        return head

    def _meet(self, call: Call, head: bytes, content: Any) -> list[Any]:
        """Meets the group: the content that each member brought, in the group's order; None is this one's own."""
        k, out = len(head), self._out
        end = k + 8 + len(content)
        out[:k] = head
        out[k : k + 8] = struct.pack("<q", self.meter.clock if self.meter is not None else 0)
        out[k + 8 : end] = content
        requests = self._links.get(call.group) or self._link(call.group)
        MPI.Prequest.Startall(requests)
        try:
            self.wire.wait(lambda: MPI.Request.Testall(requests), call)
        except BaseException:
            for request in requests:
                request.Cancel()
            raise
        brought = [None if member == self.device else self._in[member] for member in call.group]
        if any(there is not None and there[:k] != head for there in brought):
            calls = [call if there is None else _call_in(there) for there in brought]
            agree(calls, call.group)
        if self.meter is not None:
            clocks = [struct.unpack_from("<q", there, k)[0] for there in brought if there is not None]
            self.meter.clock = max(self.meter.clock, *clocks)
        return [None if there is None else there[k + 8 : end] for there in brought]

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
        counts = [sum(to == target for to, _ in puts) for target in range(self.size)]
        sending = [self.data.isend(tuple(put), to, PUT) for to, put in puts]
        told = self._meet(call, self._head(call), struct.pack(f"<{self.size}i", *counts))
        arrived = []
        for source, content in enumerate(told):
            if content is not None:
                count = struct.unpack_from("<i", content, 4 * int(self.device))[0]
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


def _call_in(message: memoryview) -> Call:
    (length,) = struct.unpack_from("<H", message)
    return Call(*pickle.loads(message[2 : 2 + length]))


def _mine(call: Call, arrays: Sequence[Array], index: int) -> Array | None:
    """One device's result, from the arrays of all; as `reference` has it."""
    match call.name:
        case "all_reduce":
            return reference.reduced(arrays, call.op)
        case "all_gather":
            return concatenate([a[None] for a in arrays] if arrays[0].ndim == 0 else arrays, call.axis)
        case "reduce_scatter":
            return reference.reduced([np.split(a, len(arrays), call.axis)[index] for a in arrays], call.op)
        case "all_to_all":
            return concatenate([np.split(a, len(arrays), call.axis)[index] for a in arrays], call.axis)
    return None


def _all_reduce(comm: Any, call: Call, arr: Array, index: int) -> Array:
    """Each device reduces one part, and gathers the others': 2(n-1)/n S bytes sent."""
    n, flat = comm.size, arr.reshape(-1)
    ends = [i * flat.size // n for i in range(n + 1)]
    counts = [b - a for a, b in pairwise(ends)]
    size = arr.dtype.itemsize
    parts = _scratch(n * counts[index] * size).view(arr.dtype).reshape(n, counts[index])
    comm.Alltoallv(
        [_bytes(flat), [c * size for c in counts], [e * size for e in ends[:-1]], MPI.BYTE],
        [_bytes(parts), [counts[index] * size] * n, [i * counts[index] * size for i in range(n)], MPI.BYTE],
    )
    part = reference.reduced(list(parts), call.op)
    result = empty(arr.shape, part.dtype)
    size = part.dtype.itemsize
    comm.Allgatherv(
        [_bytes(part), MPI.BYTE],
        [_bytes(result), [c * size for c in counts], [e * size for e in ends[:-1]], MPI.BYTE],
    )
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
    "reduce_scatter": lambda comm, call, arr, _: reference.reduced(_exchanged(comm, call, arr), call.op),
    "all_to_all": lambda comm, call, arr, _: concatenate(_exchanged(comm, call, arr), call.axis),
}
