"""Variable elimination: the minimum of a sum of tables over variables with few values.

Dynamic programming on any graph (Bertele and Brioschi 1972, "Nonserial Dynamic Programming"). It is exact, and fast
while the intermediate tables stay small, as they do on programs, which are chains with a few bypasses.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from heapq import heapify, heappop, heappush
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lib.layout.errors import LayoutError

Table = NDArray[np.float64]
Pairs = Mapping[tuple[int, ...], Table]
"""Tables over several different variables, mostly two."""
Factor = tuple[tuple[int, ...], Table]
"""Variables, and a table with an axis for each."""
FORBIDDEN = 2.0**50
"""Cost of two incompatible values. Larger than any sum of bytes, and still exact in a double."""
MAX_TABLE_ENTRIES = 60_000_000
"""Maximum number of entries of an intermediate table."""


class Elimination:
    """The buckets of one elimination: for each variable its table with its later neighbors, itself last.

    Results from the same tables (the same objects) are computed once, so identical layers cost little more than one.
    """

    def __init__(self, unary: Sequence[Table], pairs: Pairs) -> None:
        self.sizes = [len(table) for table in unary]
        self.value = 0.0
        self.order: list[int] = []
        self.scopes: dict[int, tuple[int, ...]] = {}
        self.tables: dict[int, Table] = {}
        self.outside: dict[int, Table] = {}
        """After `through`: for each border, the minimum of everything outside it."""
        self._made: dict[Any, tuple[list[Factor], Table, Table]] = {}
        factors: list[list[Factor]] = [[((v,), table)] for v, table in enumerate(unary)]
        for names, table in pairs.items():
            for v in names:
                factors[v].append((names, table))
        for v, scope in elimination_order(self.sizes, pairs):
            self._eliminate(v, scope, factors)

    def _eliminate(self, v: int, scope: tuple[int, ...], factors: list[list[Factor]]) -> None:
        shape = [self.sizes[u] for u in scope] + [self.sizes[v]]
        if prod(shape) > MAX_TABLE_ENTRIES:
            raise LayoutError(
                f"this graph is too entangled for an exact plan: {len(scope)} tensors or operators of up to "
                f"{max(shape)} choices would have to be considered together, {prod(shape):,} cases"
            )
        mine, clique = factors[v], scope + (v,)
        same = tuple((tuple(clique.index(u) for u in names), id(table)) for names, table in mine)
        if same not in self._made:
            whole: Table = np.zeros(shape)
            for names, table in mine:
                whole += expand(table, names, clique)
            self._made[same] = mine, whole, whole.min(axis=-1)  # keeps the tables alive, so that their ids stay unique
        _, whole, rest = self._made[same]
        self.order.append(v)
        self.scopes[v], self.tables[v] = scope, whole
        if not scope:
            self.value += float(rest)
        for u in scope:
            factors[u] = [(names, table) for names, table in factors[u] if v not in names] + [(scope, rest)]

    def best(self) -> list[int]:
        """The values that reach the minimum; among equals the first."""
        chosen = [0] * len(self.sizes)
        for v in reversed(self.order):
            row = self.tables[v][tuple(chosen[u] for u in self.scopes[v])]
            chosen[v] = int(row.argmin())
        return chosen

    def through(self) -> list[Table]:
        """For each variable and value, the minimum with that value (junction-tree calibration)."""
        rank = {v: i for i, v in enumerate(self.order)}
        self.outside = {}
        result: list[Any] = [None] * len(self.sizes)
        for v in reversed(self.order):
            scope, table = self.scopes[v], self.tables[v]
            if scope:
                parent = min(scope, key=rank.__getitem__)
                names = self.scopes[parent] + (parent,)
                self.outside[v] = _least_over(self._calibrated(parent), names, scope) - table.min(axis=-1)
            result[v] = self._calibrated(v).min(axis=tuple(range(len(scope))))
        return result

    def _calibrated(self, v: int) -> Table:
        """A variable's table plus the minimum of everything else."""
        table = self.tables[v]
        return table + (self.outside[v][..., None] if v in self.outside else self.value - table.min())


def elimination_order(sizes: Sequence[int], scopes: Iterable[tuple[int, ...]]) -> list[tuple[int, tuple[int, ...]]]:
    """The variables in a good order to eliminate them, each with its neighbors at that time.

    The smallest table first, or the fewest neighbors first, whichever needs less in total.
    """
    scopes = list(scopes)
    orders = [_greedy(sizes, scopes, by_size) for by_size in (False, True)]
    return min(orders, key=lambda order: sum(table_entries(sizes, v, scope) for v, scope in order))


def table_entries(sizes: Sequence[int], v: int, scope: Iterable[int]) -> int:
    """The number of entries of a table over these variables."""
    return sizes[v] * prod(sizes[u] for u in scope)


def largest_table(sizes: Sequence[int], scopes: Iterable[tuple[int, ...]]) -> int:
    """The number of entries of the largest table of an elimination."""
    return max((table_entries(sizes, v, around) for v, around in elimination_order(sizes, scopes)), default=0)


def _greedy(
    sizes: Sequence[int], scopes: Iterable[tuple[int, ...]], by_size: bool
) -> list[tuple[int, tuple[int, ...]]]:
    neighbours: list[set[int]] = [set() for _ in sizes]
    for scope in scopes:
        for u in scope:
            neighbours[u].update(scope)
    for v, around in enumerate(neighbours):
        around.discard(v)

    def effort(v: int) -> tuple[int, int, int]:
        entries = table_entries(sizes, v, neighbours[v])
        return (entries, 0, v) if by_size else (len(neighbours[v]), entries, v)

    heap = [effort(v) for v in range(len(sizes))]
    heapify(heap)
    order: dict[int, tuple[int, ...]] = {}
    while heap:
        *_, v = entry = heappop(heap)
        if v in order or entry != effort(v):  # an entry may be outdated; then a newer one follows
            continue
        order[v] = tuple(sorted(neighbours[v]))
        for u in neighbours[v]:
            neighbours[u] |= neighbours[v] - {u}
            neighbours[u].discard(v)
        for u in neighbours[v]:
            heappush(heap, effort(u))
    return list(order.items())


def expand(table: Table, names: tuple[int, ...], scope: tuple[int, ...]) -> Table:
    """A table over `names` with an axis for each of `scope`, of length 1 where it does not depend on it."""
    order = sorted(range(len(names)), key=lambda i: scope.index(names[i]))
    shape = [1] * len(scope)
    for i in order:
        shape[scope.index(names[i])] = table.shape[i]
    return table.transpose(order).reshape(shape)


def _least_over(table: Table, names: tuple[int, ...], kept: tuple[int, ...]) -> Table:
    """The minimum over the variables that are not kept; `kept` is sorted as `scopes` are."""
    gone = tuple(i for i, name in enumerate(names) if name not in kept)
    left = [name for name in names if name in kept]
    reduced = table.min(axis=gone) if gone else table
    return np.asarray(reduced).transpose([left.index(name) for name in kept])
