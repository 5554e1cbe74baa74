"""The possible Sharding Strategies of an operator, in a fixed order."""

from collections.abc import Container, Iterable, Iterator
from dataclasses import replace
from functools import lru_cache
from itertools import permutations, product
from math import prod

from lib.layout.errors import LayoutError
from lib.layout.layouts.device_matrix import DeviceMatrix
from lib.layout.layouts.tensor_layout import Axes, TensorLayout

from .distributed import DistributedOperator, arrange, distribute, strategy_text, ways_to_reduce, with_out
from .graph import Graph, Out
from .operators import Operator, fills
from .pins import left_in


def candidates(
    graph: Graph, operator: Operator, scatter: bool = True, used: Container[int] = ()
) -> list[DistributedOperator]:
    """The ways to distribute an operator of a graph.

    For a number of devices: every strategy that uses so many of them as `used` has, on the matrix that it implies; by
    default as many as the tensors' sizes allow. On a mesh: every assignment of mesh axes to letters, or to none.
    With `scatter`, summands may also be reduce-scattered. A configured operator has only its strategy,
    and with an out-strategy only the cheapest way to that. If the graph is `uneven`, dimensions may be split into parts
    with padding, as long as none is padding only. If the output is pinned, each way ends in that layout.
    """
    configured, out = graph.strategies.get(operator.name), graph.outs.get(operator.name)
    uneven = graph.uneven is True
    if graph.mesh is None:
        if configured is not None:
            bases = [distribute(operator, configured, graph.devices)]
        else:
            possible = strategies(operator, graph.devices, uneven, used)
            bases = [distribute(operator, strategy, graph.devices) for strategy in possible]
        ways = [way for base in bases for way in _ways(base, scatter, out, uneven)]
    else:
        ways = _on_axes(graph.mesh, operator, scatter or out is not None, uneven)
        if configured is not None:
            matching = [way for way in ways if way.strategy == configured and out in (None, way.output.splits)]
            # A strategy that is uneven may be there all the same, and one that no assignment of the mesh produces gets
            # its own matrix.
            matching = matching or [
                way
                for way in _on_axes(graph.mesh, operator, scatter or out is not None, True)
                if way.strategy == configured and (way.output.splits == out or (out is None and not _pads_sums(way)))
            ]
            ways = matching or _ways(distribute(operator, configured, graph.devices), scatter, out, uneven)
            if out is not None:
                ways = sorted(ways, key=lambda way: way.moved)[:1]
    pin = graph.pins.get(operator.name)
    if pin is not None:
        pinned = [left_in(way, pin, reduced=out is not None) for way in ways]
        ways = list({(way.inputs, way.reduction): way for way in pinned}.values())
    return ways


def strategies(
    operator: Operator, devices: int, uneven: bool = False, used: Container[int] = ()
) -> list[tuple[tuple[int, ...], ...]]:
    """Every strategy that uses so many devices as `used` has; by default as many as possible."""
    divisors = [n for n in range(1, devices + 1) if devices % n == 0]
    letters = operator.input_letters_once  # a strategy is a split of the inputs
    choices = [[n for n in divisors if operator.divides(letter, n, uneven)] for letter in letters]
    chosen = [dict(zip(letters, counts)) for counts in product(*choices) if devices % prod(counts) == 0]
    used = used or (max(prod(parts.values()) for parts in chosen),)
    return [
        tuple(tuple(parts.get(letter, 1) for letter in letters) for letters in operator.input_letters)
        for parts in chosen
        if prod(parts.values()) in used
    ]


def beside_weight(operator: Operator, weight: TensorLayout) -> DistributedOperator:
    """An operator of the optimizer where its weight, its gradient and its state are all cut like `weight`."""

    inputs = tuple(_with_moments(weight, weight.matrix.names, shape) for shape in operator.input_shapes)
    return DistributedOperator(operator, inputs, _with_moments(weight, weight.matrix.names, operator.output_shape), ())


@lru_cache(maxsize=1024)
def _with_moments(weight: TensorLayout, names: tuple[str, ...], shape: tuple[int, ...]) -> TensorLayout:
    """The layout of a tensor of the weight's shape, or of a stack of such tensors."""
    moments = len(shape) - len(weight.shape)
    return TensorLayout(shape, weight.matrix, ((),) * moments + weight.tensor_map)


def beside_weights(graph: Graph, name: str, layouts: Iterable[TensorLayout]) -> list[DistributedOperator]:
    """The ways to distribute an operator of the optimizer, one for each layout of its weight."""
    ways = [beside_weight(graph.operators[name], layout) for layout in layouts]
    strategy = graph.strategies.get(name)
    matching = [way for way in ways if strategy in (None, way.strategy)]
    if not matching:
        raise LayoutError(f"{name}: no layout of the weight has the strategy {strategy_text(strategy or ())}")
    return matching


def source_layouts(shape: tuple[int, ...], graph: Graph) -> list[TensorLayout]:
    """The layouts in which a source may be stored: every layout on the mesh, otherwise every split in order; those with
    padding only if the graph is `uneven`."""
    uneven = graph.uneven is True
    if graph.mesh is not None:
        return list(_mesh_layouts(shape, graph.mesh, graph.mesh.names, uneven))
    divisors = [n for n in range(1, graph.devices + 1) if graph.devices % n == 0]
    choices = [[n for n in divisors if fills(size, n, uneven)] for size in shape]
    layouts = []
    for splits in product(*choices):
        if graph.devices % prod(splits) == 0:
            matrix = DeviceMatrix((*splits, graph.devices // prod(splits)))
            layouts.append(TensorLayout(shape, matrix, tuple((dim,) for dim in range(len(shape)))))
    return layouts


def _ways(base: DistributedOperator, scatter: bool, out: Out | None, uneven: bool) -> list[DistributedOperator]:
    if out is not None:
        return with_out(base, out)[:1]
    return [way for way in ways_to_reduce(base, uneven) if _fills(way)] if scatter else [base]


def _fills(way: DistributedOperator) -> bool:
    """True if no sum is scattered into parts of which some are padding only."""
    sides = zip(way.output.shape, way.output.splits, way.local.splits)
    return all(n == before or fills(size, n, uneven=True) for size, n, before in sides)


def _pads_sums(way: DistributedOperator) -> bool:
    """True if an operator's sums are scattered over a dimension that has no padding before."""
    return any(step.source.padded_shape != step.target.padded_shape for step in way.reduction)


def _on_axes(mesh: DeviceMatrix, operator: Operator, scatter: bool, uneven: bool) -> list[DistributedOperator]:
    form = replace(operator, name="", inputs=("",) * len(operator.inputs))
    return [
        DistributedOperator(operator, way.inputs, way.local, way.reduction)
        for way in _forms(form, mesh, mesh.names, scatter, uneven)
    ]


def _on_mesh(operator: Operator, mesh: DeviceMatrix, scatter: bool, uneven: bool) -> Iterator[DistributedOperator]:
    for split in _assignments(tuple(x for x in operator.letters if x in operator.free), mesh):
        sizes = {letter: prod(mesh.shape[axis] for axis in axes) for letter, axes in split.items()}
        if all(operator.divides(letter, n, uneven) for letter, n in sizes.items()):
            ways = arrange(operator, mesh, split, uneven)
            yield from filter(_fills, ways) if scatter else ways[-1:]


@lru_cache(maxsize=128)
def _forms(
    form: Operator, mesh: DeviceMatrix, names: tuple[str, ...], scatter: bool, uneven: bool
) -> tuple[DistributedOperator, ...]:
    """The same for an operator without a name, because a network has many identical layers.

    Here and below, `names` are the axes' names: meshes that differ only in them are equal, but are shown differently.
    """
    return tuple(_on_mesh(form, mesh, scatter, uneven))


@lru_cache(maxsize=256)
def _mesh_layouts(
    shape: tuple[int, ...], mesh: DeviceMatrix, names: tuple[str, ...], uneven: bool
) -> tuple[TensorLayout, ...]:
    dims = tuple(map(str, range(len(shape))))
    layouts = []
    for split in _assignments(dims, mesh):
        tensor_map = tuple(split.get(dim, ()) for dim in dims)
        if all(fills(size, prod(mesh.shape[a] for a in axes), uneven) for size, axes in zip(shape, tensor_map)):
            layouts.append(TensorLayout(shape, mesh, tensor_map))
    return tuple(layouts)


@lru_cache(maxsize=256)
def _assignments(letters: tuple[str, ...], mesh: DeviceMatrix) -> tuple[dict[str, Axes], ...]:
    """Each axis is assigned to a letter or to none; axes on the same letter in every order."""
    axes = [axis for axis, size in enumerate(mesh.shape) if size > 1]
    assignments: dict[tuple[tuple[str, Axes], ...], None] = {}
    for owners in product((*letters, ""), repeat=len(axes)):
        taken = {letter: tuple(a for a, o in zip(axes, owners) if o == letter) for letter in letters}
        taken = {letter: assigned for letter, assigned in taken.items() if assigned}
        for orders in product(*(permutations(assigned) for assigned in taken.values())):
            assignments[tuple(zip(taken, orders))] = None
    return tuple(dict(assignment) for assignment in assignments)
