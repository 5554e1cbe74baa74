"""The cheapest plan of a graph on a mesh by an integer program that shares nothing with the planner but HiGHS.

It has its own list of strategies, and counts what a move takes cell by cell, on a grid that is as fine as any split.
"""

from functools import cache
from itertools import permutations, product
from math import prod

import highspy
import numpy as np

from lib.layout import Graph

Split = tuple[tuple[int, ...], ...]
"""The axes of the mesh that split each dimension, coarsest first."""
Held = tuple[Split, tuple[int, ...]]
"""A split, and the axes along which devices hold summands."""


def places(mesh: tuple[int, ...]) -> list[tuple[int, ...]]:
    return list(product(*map(range, mesh)))


@cache
def cells(split: Split, mesh: tuple[int, ...]) -> np.ndarray:
    """Which cells each device holds, with as many cells in each dimension as there are devices: devices x cells."""
    n = prod(mesh)
    found = []
    for place in places(mesh):
        rows = []
        for axes in split:
            part = 0
            for axis in axes:
                part = part * mesh[axis] + place[axis]
            width = n // prod(mesh[axis] for axis in axes)
            rows.append([part * width <= i < (part + 1) * width for i in range(n)])
        held = np.array([True])
        for row in rows:
            held = np.outer(held, row).ravel()
        found.append(held)
    return np.array(found)


@cache
def moved(given: Held, wanted: Split, shape: tuple[int, ...], mesh: tuple[int, ...]) -> float:
    """Elements that reach another device: for a sum of S in W places S + W - 2 messages, one more if none is shared."""
    split, summed = given
    have, need = cells(split, mesh), cells(wanted, mesh)
    size = prod(shape) / have.shape[1]
    if not summed:
        return float((need & ~have).sum()) * size
    total = 0.0
    for cell in range(have.shape[1]):
        groups: dict[tuple[int, ...], list[int]] = {}
        for device, place in enumerate(places(mesh)):
            if have[device, cell]:
                key = tuple(0 if axis in summed else i for axis, i in enumerate(place))
                groups.setdefault(key, []).append(device)
        wants = set(np.flatnonzero(need[:, cell]))
        summands = {len(group) for group in groups.values()}.pop()
        meets = any(wants & set(group) for group in groups.values())
        total += summands + len(wants) - 1 - meets
    return total * size


def ways(letters: tuple[str, ...], mesh: tuple[int, ...]) -> list[dict[str, tuple[int, ...]]]:
    """Every assignment of axes to letters or to none, in every order."""
    found = {}
    for owners in product((None, *letters), repeat=len(mesh)):
        mine = {x: [a for a, owner in enumerate(owners) if owner == x] for x in letters}
        for orders in product(*(permutations(axes) for axes in mine.values())):
            way = {x: order for x, order in zip(mine, orders) if order}
            found[tuple(sorted(way.items()))] = way
    return list(found.values())


def fits(shape: tuple[int, ...], split: Split, mesh: tuple[int, ...]) -> bool:
    return all(n % prod(mesh[a] for a in axes) == 0 for n, axes in zip(shape, split))


def completed(local: Held) -> list[Split]:
    """What reduce-scatters and all-reduces can leave of summands: each axis at the end of a dimension, or nowhere."""
    split, summed = local
    found = []
    for choice in product(range(len(split) + 1), repeat=len(summed)):
        extra = [tuple(a for a, dim in zip(summed, choice) if dim == d) for d in range(len(split))]
        found.append(tuple(axes + more for axes, more in zip(split, extra)))
    return found


class _Rows:
    """Variables and constraints of the program."""

    def __init__(self) -> None:
        self.solver = highspy.Highs()
        self.solver.setOptionValue("output_flag", False)

    def variable(self, cost: float = 0.0, whole: bool = True) -> int:
        number: int = self.solver.getNumCol()
        self.solver.addCol(cost, 0, 1, 0, [], [])
        if whole:
            self.solver.changeColIntegrality(number, highspy.HighsVarType.kInteger)
        return number

    def at_least(self, terms: dict[int, float], low: float, high: float = np.inf) -> None:
        self.solver.addRow(low, high, len(terms), list(terms), list(terms.values()))

    def solve(self) -> float:
        self.solver.run()
        assert self.solver.getModelStatus() == highspy.HighsModelStatus.kOptimal
        return float(self.solver.getInfo().objective_function_value)


def least_bytes(graph: Graph, pins: dict[str, Split], memory_cap: int | None = None) -> float:
    """The fewest bytes that any plan of matmuls, einsums and operators without other settings moves."""
    assert graph.mesh is not None
    mesh, rows = graph.mesh.shape, _Rows()
    memory: dict[int, float] = {}
    computed: dict[str, list[int]] = {}
    stored: dict[str, dict[Split, int]] = {}
    for name in graph.sources:
        shape = graph.shapes[name]
        dims = tuple(map(str, range(len(shape))))
        splits = {tuple(way.get(d, ()) for d in dims) for way in ways(dims, mesh)}
        splits = {pins[name]} if name in pins else {s for s in splits if fits(shape, s, mesh)}
        stored[name] = {split: rows.variable() for split in sorted(splits)}
        rows.at_least(dict.fromkeys(stored[name].values(), 1), 1, 1)
    takes: dict[str, list[dict[Split, list[int]]]] = {name: [] for name in graph.shapes}
    for name, op in graph.operators.items():
        computes: list[dict[Split, list[int]]] = [{} for _ in op.inputs]
        leaves: dict[Split, list[int]] = {}
        every = []
        for way in ways(op.letters, mesh):
            if any(way.get(x) for x in op.letters if x not in op.free):
                continue
            inputs = [tuple(way.get(x, ()) for x in letters) for letters in op.input_letters]
            local = (
                tuple(way.get(x, ()) for x in op.output_letters),
                tuple(a for x in op.letters if x not in op.output_letters for a in way.get(x, ())),
            )
            shapes = (*op.input_shapes, op.output_shape)
            if not all(fits(shape, split, mesh) for shape, split in zip(shapes, (*inputs, local[0]))):
                continue
            outs = [pins[name]] if name in pins else [s for s in completed(local) if fits(op.output_shape, s, mesh)]
            for out in outs:
                v = rows.variable(moved(local, out, op.output_shape, mesh) * graph.itemsize)
                every.append(v)
                leaves.setdefault(out, []).append(v)
                for at, split in zip(computes, inputs):
                    at.setdefault(split, []).append(v)
        rows.at_least(dict.fromkeys(every, 1), 1, 1)
        computed[name] = every
        for mine, other in zip(every, computed[graph.repeats.get(name, name)], strict=True):
            rows.at_least({mine: 1, other: -1} if mine != other else {}, 0, 0)
        stored[name] = {split: rows.variable(whole=False) for split in leaves}
        for split, mine in leaves.items():
            rows.at_least({stored[name][split]: -1, **dict.fromkeys(mine, 1)}, 0, 0)
        for tensor, at in zip(op.inputs, computes):
            takes[tensor].append(at)
    for tensor, layouts in stored.items():
        shape = graph.shapes[tensor]
        for split, v in layouts.items():
            memory[v] = prod(shape) / prod(mesh[a] for axes in split for a in axes) * graph.itemsize
        moves: dict[tuple[Split, Split], int] = {}
        for at in takes[tensor]:
            given_to: dict[Split, dict[int, float]] = {given: {v: -1} for given, v in layouts.items()}
            for split, mine in at.items():
                arriving: dict[int, float] = dict.fromkeys(mine, -1)
                for given in layouts:
                    x = rows.variable(whole=False)
                    arriving[x] = given_to[given][x] = 1
                    cost = moved((given, ()), split, shape, mesh) * graph.itemsize
                    if cost:  # paid once for all that take it
                        if (given, split) not in moves:
                            moves[given, split] = rows.variable(cost, whole=False)
                        rows.at_least({moves[given, split]: 1, x: -1}, 0)
                rows.at_least(arriving, 0, 0)
            for terms in given_to.values():
                rows.at_least(terms, 0, 0)
    if memory_cap is not None:
        rows.at_least(memory, 0, memory_cap)
    return rows.solve()
