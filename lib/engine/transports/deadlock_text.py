"""Formats the engine's deadlock messages: which devices wait in which call, and on which line of the player's file."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby

from lib.engine.call import CollectiveCall

RETURNED = "has returned"
"""The state of a device whose call has ended."""


class PendingReceive(int):
    """A wait for a message from the device of this number, as shown in messages."""

    def __str__(self) -> str:
        return f"receive({int(self)})"


def deadlock_text(states: Iterable[str]) -> str:
    """The whole message, from the state of each device in order; devices in the same state are named together."""
    alike: dict[str, list[int]] = {}
    for device, state in enumerate(states):
        alike.setdefault(state, []).append(device)
    parts = [_state_of(devices, state) for state, devices in alike.items()]
    fix = "Every wait needs a partner: check who calls what, and how often"
    if all(state.startswith("waits in receive") for state in alike):
        fix = "All wait to receive: send before you receive"
    return f"nobody can move: {'; '.join(parts)}. {fix}"


def _state_of(devices: list[int], state: str) -> str:
    verb, _, rest = state.partition(" ")
    if len(devices) == 1:
        return f"device {devices[0]} {state}"
    return f"devices {_ranges(devices)} {'have' if verb == 'has' else 'wait'} {rest}"


def _ranges(devices: list[int]) -> str:
    """Increasing numbers, three or more in sequence as a range: "0, 2 to 5"."""
    texts: list[str] = []
    for _, pairs in groupby(enumerate(devices), lambda pair: pair[1] - pair[0]):
        run = [device for _, device in pairs]
        texts += [f"{run[0]} to {run[-1]}"] if len(run) > 2 else map(str, run)
    return ", ".join(texts)


def waiting_text(call: object, size: int, line: str) -> str:
    """The state of one of `size` devices: a collective, with its group unless that is all, or a receive."""
    group = f" in group {call.group}" if isinstance(call, CollectiveCall) and len(call.group) < size else ""
    return f"waits in {call}{group}{line}"
