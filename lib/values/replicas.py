"""Marks what a replica has made alone, between two averages (local SGD, Stich 2019)."""

from __future__ import annotations

from typing import NamedTuple

from lib.errors import RuleError

from . import algebra
from .algebra import set_text


class Copy(NamedTuple):
    """A replica that has been trained alone: since which step, and with which batches of each."""

    since: int
    batches: frozenset[int]

    def __str__(self) -> str:
        return f"trained alone since step {self.since} with batches {set_text(self.batches)}"


def checked_copy(given: object, total_batches: int | None = None) -> Copy | None:
    """`given` as a replica's mark; None is the model that all share."""
    if given is None:
        return None
    if not isinstance(given, (tuple, list)) or len(given) != 2:
        raise RuleError(f"copy must be a step and batches, such as (0, [1]); got {given!r}")
    since = algebra.whole_number(given[0], "since", "copy", least=0)
    most = max(map(int, given[1]), default=0) + 1 if total_batches is None else total_batches
    return Copy(since, algebra.numbers(given[1], most, "batch", "copy"))
