"""Loads: bytes that values of variables hold from one moment to another, as tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .elimination import Table


class Load(NamedTuple):
    """What values of the variables in `scope` hold from moment `start` until before moment `stop`."""

    scope: tuple[int, ...]
    start: int
    stop: int
    table: Table


def narrowed(loads: Iterable[Load], keep: Sequence[NDArray[Any]]) -> list[Load]:
    """The same loads for some values of each variable."""
    return [each._replace(table=each.table[np.ix_(*(keep[v] for v in each.scope))]) for each in loads]


def total(loads: Iterable[Load], chosen: Sequence[int], moments: int) -> Table:
    """The sum of loads at one value of each variable, by moment."""
    change = np.zeros(moments + 1)
    for scope, start, stop, table in loads:
        held = table[tuple(chosen[v] for v in scope)]
        change[start] += held
        change[stop] -= held
    return np.cumsum(change)[:-1]
