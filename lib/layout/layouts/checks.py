"""Whole numbers, as shapes, axes and strategies have them: a float or a word is refused where it comes in."""

from __future__ import annotations

from numbers import Integral
from typing import Any

from lib.layout.errors import LayoutError


def whole_number(given: Any, what: str) -> int:
    """One number as an int; `what` says what it should be.

    Raises:
        LayoutError: it is none.
    """
    if not isinstance(given, Integral):
        raise LayoutError(f"{what}; got {given!r}")
    return int(given)


def whole_numbers(given: Any, what: str, within: Any = None) -> tuple[int, ...]:
    """The numbers as a tuple of int.

    Raises:
        LayoutError: they are none; `what` says what they should be, `within` is what they stand in.
    """
    try:
        numbers = tuple(given)
    except TypeError:
        numbers = (None,)
    if not all(isinstance(n, Integral) for n in numbers):
        raise LayoutError(f"{what}; got {(given if within is None else within)!r}")
    return tuple(int(n) for n in numbers)
