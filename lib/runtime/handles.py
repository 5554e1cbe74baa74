"""Handles of pending calls: where communication overlaps with computation, a call returns one to `await`."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, NoReturn

from lib.communication.calls import Call, PendingValue
from lib.errors import RuleError
from lib.values.base import Value

from .recorder import player_line
from .words import SAYS


class Handle:
    """A call that may be pending. For its result, `await` the handle once, on the rank that made the call.

    Corresponds to `work = dist.all_gather(..., async_op=True)`, with `await handle` for `work.wait()`. A handle may be
    passed to another call in place of a value; that call then runs after this one (`lib.communication.lanes` says why).
    """

    __slots__ = ("awaited_on", "call", "listed", "owner")

    def __init__(self, owner: Any, call: Call, listed: bool) -> None:
        self.owner = owner
        """The rank that made the call, which joins it."""
        self.call = call
        self.listed = listed
        """The result is a list of values, because a list was passed."""
        self.awaited_on: int | None = None
        """The line on which it was awaited."""

    def __await__(self) -> Generator[Any, Any, Any]:
        joined: Generator[Any, Any, Any] = self.owner.join(self, player_line())
        return joined

    def __str__(self) -> str:
        return str(self.call)

    def __repr__(self) -> str:
        return f"<handle of {self}>"

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"there is no {name!r} in {self.unawaited}")

    def __add__(self, other: object) -> NoReturn:
        raise RuleError(SAYS("handle summed", handle=self.unawaited))

    __radd__ = __add__

    def __getitem__(self, n: int) -> PendingValue:
        """The n-th result of the call, to pass to another call."""
        return self.made[n]

    def __iter__(self) -> NoReturn:
        whose = "a bucket's" if self.listed else "a call's"
        raise RuleError(SAYS("handle not awaited", whose=whose, handle=self.unawaited))

    @property
    def made(self) -> list[PendingValue]:
        """The results of the call, to pass to another call."""
        return [PendingValue(self.call, n) for n in range(len(self.call.op.outputs))]

    @property
    def result(self) -> Any:
        """The result of `await`, once the call has ended."""
        outputs = self.call.outputs
        return list(outputs) if self.listed else tuple(outputs) if len(outputs) > 1 else outputs[0] if outputs else None

    @property
    def unawaited(self) -> str:
        """What a message says about a handle that is used in place of a value."""
        return f"the result of {self}, which is still pending; await it first"


def map_values(take: Callable[[Value], Value], payload: Any) -> Any:
    """A copy of `payload` with `take` applied to each value in it, in order. Everything else stays as it is."""
    if isinstance(payload, Value):
        return take(payload)
    if isinstance(payload, Handle | PendingValue):
        raise RuleError(SAYS("cannot send", value=payload.unawaited))
    if isinstance(payload, dict):
        return {map_values(take, key): map_values(take, part) for key, part in payload.items()}
    if isinstance(payload, tuple) and hasattr(payload, "_fields"):
        return type(payload)(*(map_values(take, part) for part in payload))
    if isinstance(payload, tuple):
        return tuple(map_values(take, part) for part in payload)
    if isinstance(payload, list):
        return [map_values(take, part) for part in payload]
    if isinstance(payload, (set, frozenset)):
        return type(payload)(map_values(take, part) for part in sorted(payload, key=repr))
    return payload
