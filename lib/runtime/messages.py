"""Maps a function over the tracked values in a message (a pytree map)."""

from collections.abc import Callable
from typing import Any

from lib.errors import RuleError
from lib.values.base import Value

from .handles import Handle


def map_values(take: Callable[[Value], Value], payload: Any) -> Any:
    """A copy of `payload` with `take` applied to each value in it, in order. Anything else is passed as it is."""
    if isinstance(payload, Value):
        return take(payload)
    if isinstance(payload, Handle):
        raise RuleError(f"cannot send {payload.unawaited}")
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
