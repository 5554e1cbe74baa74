"""Bounds of the numbers in a cost record: whatever can be made can be written and read."""

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from lib.errors import RuleError

from .words import SAYS

MAX_NUMBER = 10**9
"""The largest number in a cost record, and the most ticks of one communication."""

MAX_PARAMETERS = 10**15
"""The largest weight of a layer, in elements."""

MAX_DIGITS = 18
"""Decimal digits of either part of a fraction."""

MAX_NAME = 100
"""Characters of a name."""


def checked_int(given: object, name: str, minimum: int = 0, maximum: int = MAX_NUMBER) -> int:
    """`given`, if it is a whole number in bounds."""
    if type(given) is not int or not minimum <= given <= maximum:
        raise RuleError(SAYS("no number in bounds", name=name, minimum=minimum, maximum=maximum, got=given))
    return given


def fraction(given: object, name: str) -> Fraction:
    """`given` as an exact fraction; a number with a point is none."""
    if type(given) is int or isinstance(given, Fraction):
        exact = Fraction(given)
        if exact >= 0 and max(exact.as_integer_ratio()) < 10**MAX_DIGITS:
            return exact
    raise RuleError(SAYS("no fraction", name=name, digits=MAX_DIGITS, got=given))


def checked_text(given: object, name: str) -> str:
    """`given`, if it is a short text."""
    if not isinstance(given, str) or len(given) > MAX_NAME:
        raise RuleError(SAYS("no short text", name=name, most=MAX_NAME, got=given))
    return given


def checked_mapping(given: object, name: str) -> Mapping[str, Any]:
    """`given`, if it maps names to something."""
    if not isinstance(given, Mapping) or not all(isinstance(key, str) for key in given):
        raise RuleError(SAYS("no mapping", name=name, got=given))
    return given
