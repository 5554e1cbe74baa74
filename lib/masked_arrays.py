"""Refuses numpy's masked arrays wherever arrays enter: as ordinary ones they would lose their mask unnoticed."""

import sys
from typing import Any

from .errors import RuleError


def is_masked(given: Any) -> bool:
    masked = sys.modules.get("numpy.ma")  # numpy loads it when it is first used
    return masked is not None and isinstance(given, masked.MaskedArray)


def refuse_masked(given: Any, place: str = "") -> None:
    """Refuses a masked array, also in nested dictionaries, lists and tuples."""
    if is_masked(given):
        raise RuleError(
            "this array is masked, and its mask would be lost; pass arr.filled(0), and the mask as another array if it "
            "is needed",
            place,
        )
    if isinstance(given, dict):
        given = given.values()
    elif not isinstance(given, list | tuple):
        return
    for item in given:
        refuse_masked(item, place)
