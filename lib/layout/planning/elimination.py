"""Variable elimination: the minimum of a sum of tables over variables with few values.

Dynamic programming on any graph (Bertele and Brioschi 1972, "Nonserial Dynamic Programming"). It is exact, and fast
while the intermediate tables stay small, as they do on programs, which are chains with a few bypasses.
"""

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
BLOCK_ENTRIES = 1 << 15
"""A minimum is taken over so many entries at a time: they fit into a processor's cache."""


class TooEntangledError(LayoutError):
    """The tables of an elimination, or its fronts of partial plans, would be too large."""


class Elimination:
    """The buckets of one elimination: for each variable its table with its later neighbors, itself last.

    A table is the sum of its factors. Only its minimum over the variable is kept; entries are added up again where they
    are needed. Results from the same tables (the same objects) are computed once, so identical layers cost little more
    than one.
    """

    def __init__(self, unary: Sequence[Table], pairs: Pairs) -> None:
        self.sizes = [len(table) for table in unary]
        self.value = 0.0
        self.order: list[int] = []
        self.scopes: dict[int, tuple[int, ...]] = {}
        self.factors: dict[int, list[Factor]] = {}
        self.least: dict[int, Table] = {}
        """Of each table, the minimum over its variable."""
        self.outside: dict[int, Table] = {}
        """After `through`: for each border, the minimum of everything outside it."""
        self._made: dict[Any, tuple[list[Factor], Table]] = {}
        factors: list[list[Factor]] = [[((v,), table)] for v, table in enumerate(unary)]
        for names, table in pairs.items():
            for v in names:
                factors[v].append((names, table))
        for v, scope in elimination_order(self.sizes, pairs):
            self._eliminate(v, scope, factors)

    def _eliminate(self, v: int, scope: tuple[int, ...], factors: list[list[Factor]]) -> None:
        shape = [self.sizes[u] for u in scope] + [self.sizes[v]]
        if prod(shape) > MAX_TABLE_ENTRIES:
            raise TooEntangledError(
                f"this graph is too entangled for an exact plan: {len(scope)} tensors or operators of up to "
                f"{max(shape)} choices would have to be considered together, {prod(shape):,} cases"
            )
        mine, clique = factors[v], scope + (v,)
        same = tuple((tuple(clique.index(u) for u in names), id(table)) for names, table in mine)
        if same not in self._made:
            parts = [np.ascontiguousarray(expand(table, names, clique)) for names, table in mine]
            self._made[same] = mine, least_of_sum(parts, shape)  # keeps the tables alive, so that ids stay unique
        rest = self._made[same][1]
        self.order.append(v)
        self.scopes[v], self.factors[v], self.least[v] = scope, mine, rest
        if not scope:
            self.value += float(rest)
        for u in scope:
            factors[u] = [(names, table) for names, table in factors[u] if v not in names] + [(scope, rest)]

    def row(self, v: int, chosen: Mapping[int, int] | Sequence[int]) -> Table:
        """A variable's table at the values that its neighbors have."""
        row = np.zeros(self.sizes[v])
        for names, table in self.factors[v]:
            row += table[tuple(slice(None) if u == v else chosen[u] for u in names)]
        return row

    def best(self) -> list[int]:
        """The values that reach the minimum; among equals the first."""
        chosen = [0] * len(self.sizes)
        for v in reversed(self.order):
            chosen[v] = int(self.row(v, chosen).argmin())
        return chosen

    def through(self) -> list[Table]:
        """For each variable and value, the minimum with that value (junction-tree calibration)."""
        rank = {v: i for i, v in enumerate(self.order)}
        below: dict[int, list[int]] = {v: [] for v in self.order}
        for v, scope in self.scopes.items():
            if scope:
                below[min(scope, key=rank.__getitem__)].append(v)
        self.outside = {}
        result: list[Any] = [None] * len(self.sizes)
        buffer = np.empty(max((self.least[v].size * self.sizes[v] for v in self.order), default=0))
        for v in reversed(self.order):
            clique = self.scopes[v] + (v,)
            whole = self._calibrated(v, buffer)
            result[v] = whole.min(axis=tuple(range(len(clique) - 1)))
            for child in below[v]:
                scope = self.scopes[child]
                self.outside[child] = _least_over(whole, clique, scope) - self.least[child]
        return result

    def _calibrated(self, v: int, buffer: Table) -> Table:
        """A variable's table plus the minimum of everything else, in a buffer."""
        clique = self.scopes[v] + (v,)
        rest = self.outside[v][..., None] if v in self.outside else self.value - self.least[v]
        shape = [self.sizes[u] for u in clique]
        whole = buffer[: prod(shape)].reshape(shape)
        whole[...] = rest
        for names, table in self.factors[v]:
            whole += expand(table, names, clique)
        return whole


def least_of_sum(parts: Sequence[Table], shape: Sequence[int]) -> Table:
    """The minimum over the last axis of a sum of tables that are broadcast to this shape, block by block."""
    if prod(shape) <= BLOCK_ENTRIES or len(shape) == 1:
        return np.asarray(_added(parts, np.empty(shape)).min(axis=-1))
    least = np.empty(shape[:-1])
    step = max(1, BLOCK_ENTRIES // prod(shape[1:]))
    block = np.empty([step, *shape[1:]]) if prod(shape[1:]) <= BLOCK_ENTRIES else None
    for i in range(0, shape[0], step):
        rows = [part[i : i + step] if len(part) > 1 else part for part in parts]
        if block is None:
            least[i] = least_of_sum([row[0] for row in rows], shape[1:])
        else:
            _added(rows, block[: shape[0] - i]).min(axis=-1, out=least[i : i + step])
    return least


def _added(parts: Sequence[Table], total: Table) -> Table:
    first, *others = parts
    if others:
        np.add(first, others[0], out=total)
    else:
        total[...] = first
    for other in others[1:]:
        total += other
    return total


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
