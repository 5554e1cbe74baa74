"""Random layouts and graphs for the property tests, and every plan of a small graph, one by one."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations, permutations, product
from math import prod
from typing import Any

import numpy as np
from hypothesis import strategies as st

from lib.layout import DeviceMatrix, Graph, GraphPlan, Pieces, TensorLayout, mesh_split
from lib.layout.choices import Choices


def on(*dims: Any, shape: tuple[int, ...], grid: DeviceMatrix, partial: tuple[str, ...] = ()) -> TensorLayout:
    """The layout of a tensor whose dimensions are split over these axes of a mesh, a sum over those in `partial`."""
    layout = mesh_split(shape, grid, dims)
    return TensorLayout(shape, grid, layout.tensor_map, tuple(grid.axis(name) for name in partial))


@st.composite
def layouts(
    draw: Any, shape: tuple[int, ...], devices: int, partial: bool = False, uneven: bool = False
) -> TensorLayout:
    """A layout of a tensor on some device matrix of so many devices, perhaps in another order."""
    rest, sizes = devices, []
    while rest > 1:
        sizes.append(draw(st.sampled_from([n for n in range(2, rest + 1) if rest % n == 0])))
        rest //= sizes[-1]
    order = tuple(draw(st.permutations(range(devices)))) if draw(st.integers(0, 4)) == 0 else ()
    matrix = DeviceMatrix(tuple(sizes), order)
    tensor_map: list[tuple[int, ...]] = [() for _ in shape]
    summed = []
    for axis in draw(st.permutations(range(len(sizes)))):
        where = draw(st.integers(-1 - partial, len(shape) - 1))
        if where == -2:
            summed.append(axis)
        elif where >= 0 and (uneven or shape[where] % (prod(sizes[a] for a in tensor_map[where]) * sizes[axis]) == 0):
            tensor_map[where] += (axis,)
    return TensorLayout(shape, matrix, tuple(tensor_map), tuple(summed))


@st.composite
def pairs(draw: Any, partial: bool = False) -> tuple[TensorLayout, TensorLayout]:
    """Two layouts of one tensor on the same devices."""
    devices = draw(st.sampled_from([1, 2, 3, 4, 6, 8, 12]))
    shape = tuple(draw(st.lists(st.sampled_from([1, 2, 3, 4, 6, 8, 12]), min_size=1, max_size=3)))
    return draw(layouts(shape, devices, partial)), draw(layouts(shape, devices))


@st.composite
def uneven_pairs(draw: Any, partial: bool = False) -> tuple[TensorLayout, TensorLayout]:
    """The same with sizes that mostly do not divide."""
    devices = draw(st.sampled_from([2, 3, 4, 6, 8]))
    shape = tuple(draw(st.lists(st.sampled_from([1, 2, 3, 5, 7, 9, 10, 11, 15]), min_size=1, max_size=3)))
    return draw(layouts(shape, devices, partial, uneven=True)), draw(layouts(shape, devices, uneven=True))


@st.composite
def triples(draw: Any) -> tuple[TensorLayout, TensorLayout, TensorLayout]:
    """Three layouts of one tensor on the same devices; the first may be partial, and then the second as well."""
    devices = draw(st.sampled_from([2, 3, 4, 6, 8]))
    shape = tuple(draw(st.lists(st.sampled_from([1, 2, 3, 4, 6, 8]), min_size=1, max_size=2)))
    a, b, c = (draw(layouts(shape, devices, partial)) for partial in (True, True, False))
    return a, b if a.summands == b.summands else b.full(), c


def numbers(shape: tuple[int, ...]) -> np.ndarray:
    return np.arange(prod(shape), dtype=np.int64).reshape(shape) + 1


def summands(layout: TensorLayout) -> Pieces:
    """Random pieces of a layout; copies are equal, and those along partial axes are not."""
    rng = np.random.default_rng(0)
    seen: dict[tuple, np.ndarray] = {}
    pieces = {}
    for device in range(layout.devices):
        here = (layout.part(device), tuple(layout.matrix.coordinates(device)[axis] for axis in layout.partial))
        pieces[device] = seen.setdefault(here, rng.integers(0, 9, layout.local_shape))
    return pieces


def eight_devices(shape: tuple[int, int] = (64, 64)) -> list[TensorLayout]:
    """Every layout of a matrix on 2x2x2: each axis unused or on one dimension, in every order."""
    matrix = DeviceMatrix((2, 2, 2))
    found = []
    for n in range(4):
        for order in permutations(range(3), n):
            found += [TensorLayout(shape, matrix, (order[:k], order[k:])) for k in range(n + 1)]
    return list(dict.fromkeys(found))


def cube_with_summands(shape: tuple[int, int] = (64, 64)) -> list[TensorLayout]:
    """Every layout on 2x2x2 whose other axes may also be partial: 49 without summands, 43 with."""
    matrix = DeviceMatrix((2, 2, 2))
    found = eight_devices(shape)
    for n in range(3):
        for order in permutations(range(3), n):
            rest = [axis for axis in range(3) if axis not in order]
            for partial in (some for k in range(1, len(rest) + 1) for some in combinations(rest, k)):
                found += [TensorLayout(shape, matrix, (order[:k], order[k:]), partial) for k in range(n + 1)]
    return list(dict.fromkeys(found))


def values(graph: Graph, seed: int = 0) -> dict[str, np.ndarray]:
    """Small whole numbers for every source; those of 'tokens' are rows of the table, and optimizer state is large."""
    rng = np.random.default_rng(seed)
    rows = graph.shapes.get("table", (4,))[0]
    found = {
        name: rng.integers(0, rows, shape) if name == "tokens" else rng.integers(-3, 4, shape) * 1.0
        for name, shape in ((name, graph.shapes[name]) for name in graph.sources)
    }
    for name, role in graph.sources.items():
        if role == "state":  # averages of squares: positive, and large enough not to magnify rounding
            found[name] = 2.0**44 * (1 + abs(found[name]))
    return found


def assert_same_program(plan: Any, seed: int = 0) -> None:
    """The distributed program gives the same as the single-device one, tensor by tensor."""
    given = values(plan.graph, seed)
    alone, together = plan.graph.run(given), plan.values(given)
    for name, tensor in alone.items():
        largest = max(1.0, float(np.abs(tensor).max()))  # sums in another order round by their largest summands
        np.testing.assert_allclose(together[name], tensor, rtol=1e-12, atol=1e-12 * largest, err_msg=name)


def every_plan(choices: Choices) -> Iterator[GraphPlan]:
    """Every plan that can be made of the choices, one by one."""
    graph = choices.graph
    for ways in product(*choices.operators.values()):
        for homes in product(*choices.storage_layouts.values()):
            yield GraphPlan(graph, dict(zip(choices.operators, ways)), dict(zip(choices.storage_layouts, homes)))


def least_memory(choices: Choices) -> int:
    """Bytes of each device that no plan goes below: every stored or kept tensor in its smallest layout."""
    layouts = dict(choices.storage_layouts)
    for name, ways in choices.operators.items():
        if choices.graph.keeps(name):
            layouts[name] = [way.output for way in ways]
    return sum(min(layout.elements for layout in each) for each in layouts.values()) * choices.graph.itemsize
