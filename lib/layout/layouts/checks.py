"""Checks of players' input: whole numbers, as in shapes, axes, strategies and caps, and names that have to exist."""

from collections.abc import Iterable
from difflib import get_close_matches
from numbers import Integral
from typing import Any

from lib.layout.errors import LayoutError

PEAK_WANTED = "a cap on the peak is a whole number of bytes per device, such as 60_000"


def require_int(given: Any, what: str) -> int:
    """One number as an int; `what` says what it should be."""
    if not _is_whole(given):
        raise LayoutError(f"{what}; got {given!r}")
    return int(given)


def require_ints(given: Any, what: str, within: Any = None) -> tuple[int, ...]:
    """The numbers as a tuple of int."""
    try:
        numbers = tuple(given)
    except TypeError:
        numbers = (None,)
    if not all(map(_is_whole, numbers)):
        raise LayoutError(f"{what}; got {(given if within is None else within)!r}")
    return tuple(int(n) for n in numbers)


def require_itemsize(given: Any) -> int:
    """The size of an element in bytes."""
    wanted = "the size of an element is a whole number of bytes, 1 or more"
    if require_int(given, wanted) < 1:
        raise LayoutError(f"{wanted}; got {given}")
    return int(given)


def _is_whole(given: Any) -> bool:
    return type(given) is int or (isinstance(given, Integral) and not isinstance(given, bool))


def nearest_name(wanted: Any, known: Iterable[str]) -> str:
    """Advice for a name that does not exist: "did you mean 'relu'?", or all existing names."""
    names = list(known)
    near = get_close_matches(str(wanted), names, n=1)
    return f"did you mean '{near[0]}'?" if near else f"there are {', '.join(names) or 'none'}"


def require_cap(given: Any, wanted: str) -> int:
    """A cap in bytes."""
    if require_int(given, wanted) < 0:
        raise LayoutError(f"{wanted}; got {given}")
    return int(given)
