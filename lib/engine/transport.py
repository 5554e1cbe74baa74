"""What a transport and an array library are: the interfaces below every device.

Two transports implement the interface: `inprocess`, with tasks of one thread, and `processes`, over MPI or
torch.distributed. Both check calls before they carry anything, because an MPI may return garbage when devices disagree.
An array library is numpy, or torch. It is one small class: the array API standard does not say how memory is counted,
lent or shared.

What a call computes and sends is left to `collectives`, and what a player may call to `engine`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from threading import get_ident
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy import array as new_array  # by name: a metered run counts what players make with np.array
from numpy import ndarray, zeros

from lib.engine.collectives import Array, CollectiveCall, plain_array
from lib.engine.metering import LentBlock, Meter, address_of, as_metered, bases_of, lend, patched_numpy, plain_view
from lib.errors import DeadlockError, MismatchError, RuleError, Sentence, Sentences
from lib.ledger.algebra import consecutive, counted

if sys.platform == "emscripten":  # a browser has no greenlets
    from .suspended import GreenletExit, getcurrent, greenlet
else:
    from greenlet import GreenletExit, getcurrent, greenlet


__all__ = ["GreenletExit", "getcurrent", "greenlet"]

# --- Arrays of numpy, in the memory of the process, and the interface of any array library ---


class ArrayLibrary:
    """A library of arrays on one device: numpy, unless a subclass overrides a method. `xp` is its array namespace,
    `device` where its arrays are. Everything else uses methods that all arrays have."""

    xp: Any = np
    device: Any = "cpu"
    array_types: tuple[Any, ...] = (ndarray,)
    """The types of arrays in arguments and results."""
    plain_type: type | None = ndarray
    """Arrays of this type can be sent as they are."""
    plain: Callable[[Any], Array] = staticmethod(lambda given: plain_array(plain_view(given)))
    """Converts what a player passes to an array that can be sent; may raise RuleError."""
    charged: Callable[[Array, Meter], Array] = staticmethod(as_metered)
    """An array, with its memory charged to a meter."""

    def adopted(self, given: Any) -> Array:
        """A new array on the device, with the elements of an array of numpy or of this library."""
        return new_array(given)

    def copy(self, array: Any) -> Array:
        """A new array, whose memory is not charged."""
        copied: Array = array.copy()
        return copied

    def copy_out(self, array: Any) -> Array:
        return new_array(plain_view(array))

    def on_host(self, array: Any) -> Array:
        """A copy as an array of numpy."""
        return self.copy_out(array)

    def lend(self, array: Any, meter: Meter | None) -> tuple[Array, LentBlock | None]:
        """An array that does not belong to the device, and its block, which is not charged yet."""
        if meter is not None:
            return lend(array, meter)
        view = array.view()
        view.flags.writeable = False
        return view, None

    def zeros(self, shape: Any, dtype: Any) -> Array:
        """A new array, whose memory is not charged."""
        return zeros(shape, dtype)

    def strides(self, array: Any) -> tuple[int, ...]:
        """Strides, in the form that `place_in` takes."""
        steps: tuple[int, ...] = array.strides
        return steps

    def offset_in(self, buffer: Any, view: Any) -> int | None:
        """Where a view of a buffer starts in it; None if the array is not a view of it."""
        offset = address_of(view) - address_of(buffer)
        shares = np.may_share_memory(view, buffer) if view.size else any(base is buffer for base in bases_of(view))
        return offset if 0 <= offset <= buffer.nbytes and shares else None

    def place_in(self, buffer: Any, offset: int, strides: tuple[int, ...], like: Any) -> Array:
        """The view of a buffer that starts at an offset, with the shape and dtype of another array."""
        flat = buffer.reshape(-1).view(np.uint8)
        return ndarray(like.shape, like.dtype, flat.data, offset, strides) if like.size else like

    def synchronize(self) -> None:
        """Waits until all requested operations have been computed."""

    def watched(self, cls: type, metered: bool) -> AbstractContextManager[None]:
        """A context in which the code of a class is metered."""
        return patched_numpy(cls, metered)


NUMPY = ArrayLibrary()


def namespace(array: Any) -> Any:
    """The functions of an array's library."""
    if isinstance(array, ndarray):
        return np
    from array_api_compat import array_namespace  # only here, because it comes with torch

    return array_namespace(array)


def numbers(count: int, like: Any) -> Array:
    """0 to `count` - 1, on the device of another array."""
    if isinstance(like, ndarray):
        return np.arange(count)
    indices: Array = namespace(like).arange(count, device=like.device)
    return indices


def cast_like(like: Any, array: Any) -> Array:
    cast: Array = array.astype(like.dtype) if isinstance(array, ndarray) else array.to(like.dtype)
    return cast


# --- The transport interface: what one device can do with its end of the connection between devices ---

ENDING = (MismatchError, DeadlockError)
"""Errors that concern several devices. They end a run even if a class catches them, because other devices wait."""

ENDED = 0
"""Replaces the number of the thread that may communicate, after one of these errors has ended the run."""


class CallableInt(int):
    """A number that may also be called: some published chapters write `self.num_devices()`."""

    __slots__ = ()

    def __call__(self) -> int:
        return int(self)


class Put(NamedTuple):
    """A one-sided write in transit: the number of the symmetric buffer, the byte offset and the strides in bytes of the
    position in it, and the content."""

    buffer: int
    offset: int
    strides: tuple[int, ...]
    content: Array


class Port(Protocol):
    """One device's end of a transport. Arrays given to it may be reused once a call returns; arrays that it returns
    belong to the device."""

    device: CallableInt
    size: CallableInt
    library: ArrayLibrary
    meter: Meter | None
    apply_put: Callable[[Put], None]
    """Writes a put that has arrived into this device's symmetric buffers."""

    def collective(self, call: CollectiveCall, arr: Array) -> Any:
        """Synchronizes with the other devices of `call.group`; returns this device's result, as in `collectives`."""
        ...

    def fence(self, call: CollectiveCall, puts: Sequence[tuple[int, Put]]) -> list[Put]:
        """Synchronizes the call's group and delivers `puts`, each with its target in the group; returns those that
        arrive here, in the order of the group's devices."""
        ...

    def try_put(self, to: int, put: Put) -> bool:
        """Writes into the target's buffer if the transport delivers puts immediately; if False, `fence` has to deliver
        it."""
        ...

    def send(self, to: int, arr: Array) -> None:
        """Sends a copy of `arr`; never waits."""
        ...

    def receive(self, source: int) -> Array:
        """Waits for the next array from `source`; messages between two devices keep their order."""
        ...

    def yield_turn(self) -> None:
        """Lets other devices run if they share one thread."""
        ...


def require_own_thread(thread: int | None, port: Port) -> None:
    """Refuses a call outside the thread that runs the device; None allows any thread."""
    if thread is not None and thread != get_ident():
        raise RuleError(
            f"device {port.device} of {port.size} communicates from a thread that its code has started; "
            "only the thread that runs the device may, so collect the thread's result there first"
        )


def call_place(port: Port, name: str, partner: object = "") -> str:
    """The name of a call in a message: "device 0 of 4, send(1)". A partner that is not a number is left out."""
    return f"device {port.device} of {port.size}, {name}({partner if isinstance(partner, int) else ''})"


def end_greenlet(task: Any) -> None:
    """Ends a greenlet that has started. A player's code may catch even GreenletExit, but only a limited number of
    times."""
    for _ in range(100):
        if task is None or task.dead or not task:
            return
        task.throw(GreenletExit)


RETURNED = "has returned"


class PendingReceive(int):
    """A wait for a message from the device with this number, as messages show it."""

    def __str__(self) -> str:
        return f"receive({int(self)})"


Unread = tuple[int, int, int]
"""Messages that were not received: from, to, how many."""


def deadlock_text(states: Iterable[str], unread: Sequence[Unread] = ()) -> Sentence:
    """The full message, from the state of each device in order; devices in the same state are named together. `unread`
    are messages of which nobody waits for the next, so that their receivers may name the wrong device."""
    alike: dict[str, list[int]] = {}
    for device, state in enumerate(states):
        alike.setdefault(state, []).append(device)
    parts = [_state_of(devices, state) for state, devices in alike.items()]
    fix = "Every wait needs a partner: check who calls what, and how often"
    if unread:
        waiting = ", ".join(f"{counted(n, 'message')} from device {source} to {to}" for source, to, n in unread)
        fix = f"Nobody has received {waiting}: receive from the device that sends"
    elif all(state.startswith("waits in receive") for state in alike):
        fix = "All wait to receive: send before you receive"
    return SAYS("nobody can move", states="; ".join(parts), fix=fix, devices=alike)


def _state_of(devices: list[int], state: str) -> str:
    verb, _, rest = state.partition(" ")
    if len(devices) == 1:
        return f"device {devices[0]} {state}"
    return f"devices {_ranges(devices)} {'have' if verb == 'has' else 'wait'} {rest}"


def _ranges(devices: list[int]) -> str:
    """Increasing numbers; three or more in sequence become a range: "0, 2 to 5"."""
    texts: list[str] = []
    for run in consecutive(devices):
        texts += [f"{run[0]} to {run[-1]}"] if len(run) > 2 else map(str, run)
    return ", ".join(texts)


def waiting_text(call: object, size: int, line: str) -> str:
    """The state of one of `size` devices that waits in a collective (with its group unless it has all devices) or a
    receive."""
    group = f" in group {call.group}" if isinstance(call, CollectiveCall) and len(call.group) < size else ""
    return f"waits in {call}{group}{line}"


SAYS = Sentences(
    {
        "nobody can move": "nobody can move: {states}. {fix}",
    }
)
"""The refusals of this chapter: a reason, and a sentence over its facts."""
