"""Variable elimination: the minimum of a sum of tables over variables with few values.

Dynamic programming on any graph (Bertele and Brioschi 1972, "Nonserial Dynamic Programming"). It is exact, and fast
while the intermediate tables stay small, as they do on programs, which are chains with a few bypasses.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from heapq import heapify, heappop, heappush
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lib.layout.errors import LayoutError

Table = NDArray[np.float64]
Pairs = Mapping[tuple[int, int], Table]
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
        neighbours: list[set[int]] = [set() for _ in unary]
        for (u, v), table in pairs.items():
            factors[u].append(((u, v), table))
            factors[v].append(((u, v), table))
            neighbours[u].add(v)
            neighbours[v].add(u)

        def effort(v: int) -> tuple[int, int, int]:
            return len(neighbours[v]), prod(self.sizes[u] for u in neighbours[v]), v

        # The least entangled variable first. An entry of the heap may be outdated; then a newer one follows.
        heap = [effort(v) for v in range(len(unary))]
        heapify(heap)
        while heap:
            *_, v = entry = heappop(heap)
            if v in self.scopes or entry != effort(v):
                continue
            self._eliminate(v, tuple(sorted(neighbours[v])), factors)
            for u in neighbours[v]:
                neighbours[u] |= neighbours[v] - {u}
                neighbours[u].discard(v)
            for u in neighbours[v]:
                heappush(heap, effort(u))

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
