"""Moments as loads: memory of a device at each moment of a plan, as a sum of tables over the values of a problem.

An operator has a moment for each input that it moves, one when it computes, and one when its output is complete (after
a reduction, with its buffers). A load is a table that counts from one moment to another. `Moments.loads` is a lower
bound: copies that several operators share count only while one of them takes it, and a move's buffers as the new piece.
`Moments.rest` is what is missing. With it, the largest moment is `GraphPlan.peak`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lib.layout.layouts.tensor_layout import TensorLayout, placement
from lib.layout.program.distributed import DistributedOperator
from lib.layout.redistribution.redistribution import can_become, redistribute

from .buffers import most_elements
from .elimination import Table, expand
from .live_ranges import ends
from .loads import Load, narrowed, total
from .placement_problem import PlacementProblem

Scope = tuple[int, ...]


class _TensorReader(NamedTuple):
    """An input of an operator: the moments when it is moved and when the operator computes, and in which layouts the
    values of variable `v` take it."""

    move: int
    computes: int
    v: int
    layouts: Sequence[TensorLayout]


class _Copies(NamedTuple):
    """A tensor, its variable, its layouts, and who reads it in one phase."""

    tensor: str
    v: int
    layouts: Sequence[TensorLayout]
    readers: Sequence[_TensorReader]


class Moments:
    """The moments of a problem's plans; the last one is for a cap on all memory, if there is one."""

    def __init__(self, problem: PlacementProblem, memory_cap: int | None) -> None:
        self.problem, self.graph, self.size = problem, problem.graph, problem.graph.itemsize
        self.names: list[str] = []
        """Of each moment, what happens then."""
        self.first: dict[str, int] = {}
        """By operator: its first moment."""
        for name, op in self.graph.operators.items():
            self.first[name] = len(self.names)
            self.names += [f"'{name}' moves '{tensor}'" for tensor in op.inputs]
            self.names += [f"'{name}' computes", f"'{name}' completes its output"]
        self.operators = len(self.names)
        """The number of moments of operators."""
        self.loads: list[Load] = []
        if memory_cap is not None:
            self.names.append("all memory is counted")
            for v, memory in enumerate(problem.memory):
                self.loads.append(Load((v,), self.operators, self.operators + 1, memory))
        self.count = len(self.names)
        self.copies: list[_Copies] = []
        freed = {x: self._computes(name) + 1 for name, tensors in ends(self.graph).items() for x in tensors}
        for name in self.graph.sources:
            self._lives(name, 0, freed)
        for name in self.graph.operators:
            self._makes(name)
            self._lives(name, self._computes(name) + 2, freed)
        for name in self.graph.shapes:
            self._moves(name)

    def total(self, chosen: Sequence[int]) -> Table:
        """What a plan of these values holds at every moment."""
        values = [np.array([value]) for value in chosen]
        loads = narrowed(self.loads, values)
        for i in range(len(self.copies)):
            loads += self.rest(i, self.parts(i)[-1], values)
        return total(loads, [0] * len(chosen), self.count)

    def parts(self, i: int) -> list[tuple[int, int]]:
        """What of number i of `copies` can be counted: two operators after each other, and at last all of them."""
        count = len(_by_operator(self.copies[i].readers))
        return [*((k, k + 2) for k in range(count - 1) if count > 2), (0, count)]

    def scope(self, i: int, part: tuple[int, int]) -> Scope:
        """The variables on which that depends."""
        mine = _by_operator(self.copies[i].readers)[slice(*part)]
        return tuple(dict.fromkeys((self.copies[i].v, *(reader.v for readers in mine for reader in readers))))

    def rest(self, i: int, part: tuple[int, int], keep: Sequence[NDArray[Any]]) -> list[Load]:
        """What number i of `copies` holds beyond its part of `loads`, for the values that are kept; if only between two
        operators, a lower bound of that."""
        copies = self.copies[i]
        mine = _by_operator(copies.readers)[slice(*part)]
        found = self._held(copies, list(chain(*mine)), keep, exact=part[0] == 0)
        for readers in mine:
            bound = self._held(copies, readers, keep, exact=False)
            found += [each._replace(table=-each.table) for each in bound]
        return found

    def _computes(self, name: str) -> int:
        """The moment when an operator computes."""
        return self.first[name] + len(self.graph.operators[name].inputs)

    def _load(self, scope: Scope, start: int, stop: int, elements: Any) -> None:
        table = np.asarray(elements, dtype=np.float64) * self.size
        if len(scope) == 2 and scope[0] == scope[1]:
            scope, table = scope[:1], np.diagonal(table)
        if start < stop and table.any():
            self.loads.append(Load(scope, start, stop, table))

    def _lives(self, name: str, start: int, freed: Mapping[str, int]) -> None:
        """A tensor is there until its last reader has computed; without one, until the end."""
        v, layouts = self.problem.lives[name]
        self._load((v,), start, freed.get(name, self.operators), [layout.elements for layout in layouts])

    def _makes(self, name: str) -> None:
        """An operator's output, while it is computed and while its sums are completed."""
        v, ways = self.problem.computes[name]
        u, outputs = self.problem.lives[name]
        cheapest: dict[tuple[tuple[TensorLayout, ...], TensorLayout], DistributedOperator] = {}
        for choice in sorted(self.problem.choices.operators[name], key=self.problem.own):
            cheapest.setdefault((choice.inputs, choice.output), choice)
        local = {inputs: choice.local.elements for (inputs, _), choice in cheapest.items()}
        computes = self._computes(name)
        self._load((v,), computes, computes + 1, [local.get(way, 0) for way in ways])

        def completed(way: tuple[TensorLayout, ...], output: TensorLayout) -> int:
            choice = cheapest.get((way, output))
            if choice is None:
                return 0
            before = (
                choice.local.elements + int(most_elements(choice.reduction, freed=True).max())
                if choice.reduction
                else 0
            )
            return max(before, output.elements)

        if u == v:
            self._load((v,), computes + 1, computes + 2, list(map(completed, ways, outputs)))
        else:
            table = [[completed(way, output) for output in outputs] for way in ways]
            self._load((v, u), computes + 1, computes + 2, table)

    def _moves(self, name: str) -> None:
        """Copies of a tensor in other layouts, phase by phase."""
        v, layouts = self.problem.lives[name]
        readers: dict[int, list[_TensorReader]] = {}
        for op, place in self.problem.choices.consumers[name]:
            u, ways = self.problem.computes[op.name]
            moment = self.first[op.name] + place
            taken = _TensorReader(moment, self._computes(op.name), u, [way[place] for way in ways])
            readers.setdefault(self.graph.phase(op.name), []).append(taken)
        for each in readers.values():
            self.copies.append(_Copies(name, v, layouts, each))
            whole = [np.arange(len(table)) for table in self.problem.costs]
            for mine in _by_operator(each):
                self.loads += self._held(self.copies[-1], mine, whole, exact=False)

    def _held(
        self, copies: _Copies, readers: Sequence[_TensorReader], keep: Sequence[NDArray[Any]], exact: bool
    ) -> list[Load]:
        """The loads of copies that these readers share, for the values that are kept.

        A reader whose layout is neither that of the tensor nor one that an earlier reader took moves it. The copy is
        there until the last reader that takes it has computed. Unless `exact`, a move's buffers count as the new piece,
        and only for the first of all readers.
        """
        scope = tuple(dict.fromkeys((copies.v, *(reader.v for reader in readers))))

        def along(v: int, given: Any) -> NDArray[Any]:
            return np.asarray(given).reshape([-1 if u == v else 1 for u in scope])

        numbers: dict[Any, int] = {}

        def places(v: int, layouts: Sequence[TensorLayout]) -> NDArray[Any]:
            return along(v, [numbers.setdefault(placement(layout), len(numbers)) for layout in layouts])

        given = [copies.layouts[i] for i in keep[copies.v]]
        taken = [[reader.layouts[i] for i in keep[reader.v]] for reader in readers]
        home, wanted = places(copies.v, given), [places(r.v, mine) for r, mine in zip(readers, taken)]
        size = [along(r.v, [layout.elements * self.size for layout in mine]) for r, mine in zip(readers, taken)]
        found: list[tuple[int, int, NDArray[Any]]] = []
        for i, reader in enumerate(readers):
            new = wanted[i] != home
            for before in wanted[:i]:
                new = new & (wanted[i] != before)
            if exact:
                buffers = self._buffers(given, taken[i], copies.v == reader.v)
                buffers = expand(buffers, (copies.v, reader.v)[: buffers.ndim], scope)
                found.append((reader.move, reader.move + 1, new * buffers))
            elif reader.move == copies.readers[0].move:
                found.append((reader.move, reader.move + 1, new * size[i]))
            for j in reversed(range(i, len(readers))):
                last = new & (wanted[i] == wanted[j])
                found.append((reader.move + 1, readers[j].computes + 1, last * size[i]))
                new = new & ~last
        shape = tuple(len(keep[v]) for v in scope)
        return [
            Load(scope, start, stop, np.broadcast_to(table, shape).astype(np.float64))
            for start, stop, table in found
            if table.any()
        ]

    def _buffers(self, given: Sequence[TensorLayout], wanted: Sequence[TensorLayout], same: bool) -> Table:
        """Bytes that moves take: given x wanted; or one for each, if they belong to the same variable."""
        if same:
            return np.array([_moving(a, b) for a, b in zip(given, wanted)], dtype=np.float64) * self.size
        return np.array([[_moving(a, b) for b in wanted] for a in given], dtype=np.float64) * self.size


def _by_operator(readers: Sequence[_TensorReader]) -> list[list[_TensorReader]]:
    """The inputs of each operator."""
    found: dict[int, list[_TensorReader]] = {}
    for reader in readers:
        found.setdefault(reader.computes, []).append(reader)
    return list(found.values())


@lru_cache(maxsize=262144)
def _moving(given: TensorLayout, wanted: TensorLayout) -> int:
    """The most elements that a move takes on a device beside what it starts from."""
    if placement(given) == placement(wanted) or not can_become(given, wanted):
        return 0
    return int(most_elements(redistribute(given, wanted).named_steps).max())
