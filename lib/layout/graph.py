"""A program as a graph, and the ways in which each operator can be distributed.

A strategy says into how many parts each dimension of an operator's inputs is split. It becomes an operator with a
layout for each tensor, and with the collectives that complete its result. Candidates come in a fixed order, so that a
plan is the same on every machine.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from itertools import permutations, product
from math import prod
from typing import Any

import numpy as np

from lib.errors import refuse_masked
from lib.layout.exchanges import Step, reductions
from lib.layout.layouts import (
    Array,
    Axes,
    DeviceMatrix,
    LayoutError,
    P,
    TensorLayout,
    mesh_split,
    nearest_name,
    padded,
    prime_factors,
    require_int,
    require_ints,
    require_itemsize,
    trimmed,
)
from lib.layout.operators import Operator, ProgramBuilder, fills
from lib.layout.redistribution import redistribute
from lib.layout.words import SAYS

# --- The Distributed Operator: an operator with a layout for each tensor, its collectives, and its costs ---
#
# A letter may be split into parts that its size does not have evenly. GSPMD (Xu et al. 2021) then computes with the
# padding as well, and masks it with an operator's identity where it would reach a result: zeros before a sum, the least
# number before a maximum. Here a device computes on what is real of its pieces, and pads the result. That is the same
# for every operator, and a value in the padding never meets a function that it would be wrong for, such as a logarithm.
# Pieces, and whatever is stored, sent and added up, are padded.
#
# Source of the definitions: "Sharding Propagation", sections Distributed Operator, Sharding Strategy and Tensor Layout,
# documentation of MindSpore 2.1.


@dataclass(frozen=True)
class DistributedOperator:
    """An operator whose letters are split over axes of a device matrix.

    Each device computes `local` from its pieces of `inputs`; if a contracted letter is split, that is a
    summand, and the collectives in `reduction` complete it to `output`.
    """

    operator: Operator
    inputs: tuple[TensorLayout, ...]
    local: TensorLayout
    reduction: tuple[Step, ...]

    @property
    def output(self) -> TensorLayout:
        """The layout of the completed output, as the next operators get it."""
        return self.reduction[-1].target if self.reduction else self.local

    @property
    def strategy(self) -> tuple[tuple[int, ...], ...]:
        """The Sharding Strategy."""
        return tuple(layout.splits for layout in self.inputs)

    @cached_property
    def moved(self) -> int:
        """Elements that its own collectives move in total."""
        return sum(step.total for step in self.reduction)

    @cached_property
    def flops(self) -> int:
        """Floating-point operations per device; where pieces have padding, of those without."""
        splits = {}
        for layout, letters in zip(self.inputs, self.operator.input_letters):
            splits.update(dict(zip(letters, layout.splits)))
        splits.pop("1", None)
        return self.operator.flops(splits)

    def compute(self, device: int, arrays: list[Array]) -> Array:
        """A device's piece of `local`, from its pieces of the inputs."""
        # a device may hold only some rows of a table
        table = {"gather": self.inputs[0], "scatter": self.local}.get(self.operator.kind)
        offset = table.box(device)[0].start if table else 0
        real = [trimmed(piece, layout, device) for piece, layout in zip(arrays, self.inputs)]
        output = self.operator.compute(real, self.local.real_shape(device), offset)
        return padded(output, self.local.local_shape)

    def __str__(self) -> str:
        collective = "".join(f" -> {step.name}" for step in self.reduction)
        return f"{self.operator.kind}{strategy_text(self.strategy)}{collective}"


def distribute(operator: Operator, strategy: tuple[tuple[int, ...], ...], devices: int) -> DistributedOperator:
    """The distributed operator of a Sharding Strategy; remaining partial sums are all-reduced.

    The device matrix has an axis for each letter that is split, in the order in which letters appear in the
    inputs, and an axis of copies at the end if devices are left: MatMul ((2, 1), (1, 4)) is on 2x4.

    Raises:
        LayoutError: the strategy is malformed, does not divide the devices, splits a dimension that cannot be split, or
            splits one letter differently in two inputs.
    """
    devices = require_int(devices, "devices are counted in whole numbers")
    parts = letters_of(operator, strategy_of(operator.name, strategy))
    used = prod(parts.values())
    if devices < 1 or devices % used:
        raise LayoutError(
            f"{operator.name}: the strategy {strategy_text(strategy)} makes {used} parts, "
            f"which does not divide {devices} devices"
        )
    axes = [letter for letter in operator.letters if parts.get(letter, 1) > 1]
    shape = tuple(parts[letter] for letter in axes) + ((devices // used,) if used < devices else ())
    return arrange(operator, DeviceMatrix(shape), {letter: (i,) for i, letter in enumerate(axes)})[-1]


def arrange(
    operator: Operator, matrix: DeviceMatrix, split: Mapping[str, Axes], uneven: bool = False
) -> list[DistributedOperator]:
    """The distributed operators with these letters split over these axes: one for each way to reduce.

    The last one reduces everything everywhere (all-reduce); without summands it is the only one. Only if `uneven`, sums
    are scattered over unsplit dimensions whose sizes they do not divide.
    """
    inputs = tuple(
        TensorLayout(shape, matrix, tuple(split.get(letter, ()) for letter in letters))
        for shape, letters in zip(operator.input_shapes, operator.input_letters)
    )
    summed = tuple(axis for letter in operator.contracted for axis in split.get(letter, ()))
    output_map = tuple(split.get(letter, ()) for letter in operator.output_letters)
    local = TensorLayout(operator.output_shape, matrix, output_map, summed, operator.kind == "reduce_max")
    ways = reductions(local, local.partial, uneven) if local.partial else [()]
    return [DistributedOperator(operator, inputs, local, way) for way in ways]


def ways_to_reduce(base: DistributedOperator, uneven: bool = False) -> list[DistributedOperator]:
    """The same operator with each way to complete its partial sums."""
    if not base.reduction:
        return [base]
    split: dict[str, Axes] = {}
    for layout, letters in zip(base.inputs, base.operator.input_letters):
        split.update({letter: axes for letter, axes in zip(letters, layout.tensor_map) if letter != "1"})
    return arrange(base.operator, base.local.matrix, split, uneven)


def with_out(base: DistributedOperator, out: tuple[int, ...]) -> list[DistributedOperator]:
    """The ways to complete an operator's partial sums into these parts of its output, the cheapest first."""
    ways = ways_to_reduce(base)
    matching = [way for way in (*ways, *ways_to_reduce(base, uneven=True)) if way.output.splits == out]
    if not matching:
        possible = ", ".join(map(str, sorted({way.output.splits for way in ways})))
        raise LayoutError(
            f"{base.operator.name}: the strategy {strategy_text(base.strategy)} cannot leave the output of shape "
            f"{base.operator.output_shape} in parts {out}; it can leave {possible}"
        )
    return sorted(matching, key=lambda way: (way.moved, len(way.reduction)))


def strategy_of(name: str, given: Any) -> tuple[tuple[int, ...], ...]:
    """A strategy given for an operator, as tuples of int."""
    form = f"{name}: a strategy is a tuple of whole numbers for each input, such as ((2, 1), (1, 4))"
    rows = given if isinstance(given, Iterable) else (given,)
    return tuple(require_ints(parts, form, within=given) for parts in rows)


def letters_of(operator: Operator, strategy: tuple[tuple[int, ...], ...]) -> dict[str, int]:
    """The number of parts into which a strategy splits each letter."""
    name = operator.name
    shapes = operator.input_shapes
    if tuple(map(len, strategy)) != tuple(map(len, shapes)):
        wanted = ", ".join(map(str, shapes))
        raise LayoutError(
            f"{name}: a strategy has a number for each dimension of each input, {wanted}; got {strategy_text(strategy)}"
        )
    parts: dict[str, int] = {}
    first: dict[str, tuple[str, int]] = {}
    for i, (letters, numbers) in enumerate(zip(operator.input_letters, strategy)):
        for dim, (letter, n) in enumerate(zip(letters, numbers)):
            size = shapes[i][dim]
            where = f"{name}: dimension {dim} of '{operator.inputs[i]}', of size {size},"
            if n < 1:
                raise LayoutError(f"{where} cannot be split into {n} parts")
            if n > 1 and (letter == "1" or letter not in operator.free):
                raise LayoutError(f"{where} cannot be split in a {operator.kind}; the strategy splits it into {n}")
            if letter != "1" and parts.setdefault(letter, n) != n:
                other, place = first[letter]
                raise LayoutError(
                    f"{where} is split into {n} part{'s' * (n > 1)}, but dimension {place} of '{other}' into "
                    f"{parts[letter]}; both are the same dimension of the operator"
                )
            first.setdefault(letter, (operator.inputs[i], dim))
            if not operator.splits(letter, n):
                sizes = operator.sizes(letter)
                raise LayoutError(SAYS("parts do not divide", where=where, n=n, sizes=sizes))
    return parts


def require_even(base: DistributedOperator) -> None:
    """Refuses an operator of which some tensor is split with padding."""
    names = (*base.operator.inputs, base.operator.name)
    for name, layout in zip((*names, base.operator.name), (*base.inputs, base.local, base.output)):
        for dim, (size, whole, n) in enumerate(zip(layout.shape, layout.padded_shape, layout.splits)):
            if size != whole:
                raise LayoutError(
                    SAYS("no equal parts", name=base.operator.name, dim=dim, tensor=name, size=size, n=n, whole=whole)
                )


def strategy_text(strategy: tuple[tuple[int, ...], ...]) -> str:
    """As MindSpore prints it: ((2,4),(4))."""
    return "(" + ",".join("(" + ",".join(map(str, splits)) + ")" for splits in strategy) + ")"


# --- Pinned layouts: tensors whose layout is given, as by GSPMD's in_shardings and out_shardings ---


def layouts_of(graph: Graph, given: Any, what: str) -> dict[str, TensorLayout]:
    """The given layouts of tensors by name, each a layout or P(...) with the mesh axes of each dimension."""
    if not isinstance(given, Mapping):
        raise LayoutError(f"{what.split()[-1]}s are a dictionary of layouts by tensor name; got {given!r}")
    return {name: _layout_of(graph, name, layout, what) for name, layout in given.items()}


def _layout_of(graph: Graph, name: Any, given: Any, what: str) -> TensorLayout:
    if name not in graph.shapes:
        raise LayoutError(
            f"{what} names a tensor '{name}' that is not in the graph; {nearest_name(name, graph.shapes)}"
        )
    shape = graph.shapes[name]
    if not isinstance(given, TensorLayout):
        given = _of_axes(graph, name, given, what)
    whose = f"the {what.split()[-1]} of '{name}'"
    if given.shape != shape:
        raise LayoutError(f"'{name}' has shape {shape}; its {what.split()[-1]} is for {given.shape}")
    if given.devices != graph.devices:
        raise LayoutError(f"{whose} has {given.devices} devices, the graph {graph.devices}")
    if given.partial:
        raise LayoutError(f"{whose} is a partial sum; give the layout of the completed sum")
    if given.uneven and graph.uneven is False:
        raise LayoutError(SAYS("padded annotation", whose=whose, shape=given.shape, padded=given.padded_shape))
    layout: TensorLayout = given
    return layout


def _of_axes(graph: Graph, name: str, given: Any, what: str) -> TensorLayout:
    """A layout that is given as axes: P("data", None), or JAX's PartitionSpec; dimensions that it omits are whole."""
    whose, shape = f"the {what.split()[-1]} of '{name}'", graph.shapes[name]
    if not isinstance(given, P) and type(given).__name__ != "PartitionSpec":
        raise LayoutError(
            f"{whose} must be a layout, such as mesh_split returns; got {given!r}; P('data', None) is one on a mesh"
        )
    if graph.mesh is None:
        raise LayoutError(SAYS("axes without mesh", whose=whose))
    entries = [entry or None if isinstance(entry, tuple) else entry for entry in given]
    if len(entries) > len(shape):
        raise LayoutError(
            f"{whose} has {len(entries)} entries, the tensor of shape {shape} has {len(shape)} dimensions"
        )
    try:
        return mesh_split(shape, graph.mesh, [*entries, *[None] * (len(shape) - len(entries))])
    except LayoutError as why:
        raise why.at(whose) from None


def left_in(way: DistributedOperator, wanted: TensorLayout, reduced: bool) -> DistributedOperator:
    """The same operator with its output brought to a layout from its partial sums, or from what it has `reduced`."""
    before = way.reduction if reduced else ()
    steps = (*before, *_steps(way.output if reduced else way.local, wanted))
    return DistributedOperator(way.operator, way.inputs, way.local, steps)


@lru_cache(maxsize=8192)
def _steps(given: TensorLayout, wanted: TensorLayout) -> tuple[Step, ...]:
    return redistribute(given, wanted).named_steps


# --- A program as a graph: tensors, operators between them, and strategies for some of the operators ---

Strategy = tuple[tuple[int, ...], ...]
"""A Sharding Strategy: the number of parts for each dimension of each input."""

Out = tuple[int, ...]
"""An out-strategy: the number of parts for each dimension of the output."""

ROLES: Mapping[str, str] = {"parameter": "weights", "state": "optimizer state", "input": "inputs"}
DEVICES_WANTED = "a graph needs 1 device or more"


@dataclass(frozen=True)
class TrainingStep:
    """The roles of a training step's tensors, by name."""

    optimizer: str = ""
    target: str = ""
    """The input that the result is compared with."""
    forward: frozenset[str] = frozenset()
    """Operators of the program; all others are backward or the optimizer."""
    activations: frozenset[str] = frozenset()
    """Outputs of forward that backward uses: they are kept until then."""
    gradients: Mapping[str, str] = field(default_factory=dict)
    """By parameter: its gradient."""
    replaces: Mapping[str, str] = field(default_factory=dict)
    """By operator: the parameter or state that its output replaces, in the same layout."""
    weights: Mapping[str, str] = field(default_factory=dict)
    """By operator of the optimizer: the parameter that it belongs to."""

    @property
    def kept(self) -> frozenset[str]:
        """Outputs that take memory: activations that backward uses, and gradients of weights."""
        return self.activations | frozenset(self.gradients.values())


class Graph(ProgramBuilder):
    """Operators in the order of the program, for `devices` devices or for a named `mesh`.

    A strategy may split a dimension into parts that its size does not have evenly; they are padded. With
    `uneven=True`, planners consider such strategies as well, as long as no part is padding only. With `uneven=False`,
    such strategies and annotations are refused.
    """

    def __init__(
        self,
        devices: int | None = None,
        mesh: DeviceMatrix | None = None,
        itemsize: int = 4,
        uneven: bool | None = None,
    ) -> None:
        if (devices is None) == (mesh is None):
            raise LayoutError("a graph takes either a number of devices or a mesh: give exactly one of them")
        if devices is not None and require_int(devices, DEVICES_WANTED) < 1:
            raise LayoutError(f"{DEVICES_WANTED}; got {devices}")
        if mesh is not None and not isinstance(mesh, DeviceMatrix):
            raise LayoutError(f"a graph takes a mesh, such as mesh(data=2, model=4); got {mesh!r}")
        if uneven is not None and not isinstance(uneven, bool):
            raise LayoutError(SAYS("uneven not boolean", got=uneven))
        super().__init__()
        self.uneven = uneven
        self.mesh = mesh
        self.devices = mesh.size if mesh is not None else int(devices or 1)
        self.itemsize = require_itemsize(itemsize)
        self.strategies: dict[str, Strategy] = {}
        """Strategies of the configured operators."""
        self.outs: dict[str, Out] = {}
        """Out-strategies of those that have one."""
        self.pins: dict[str, TensorLayout] = {}
        """Layouts of tensors that are given: as a source is stored, or as its operator leaves it to all readers."""
        self.results: tuple[str, ...] = ()
        """Tensors that are wanted at the end, in order. What nobody reads is there at the end as well."""
        self.repeats: dict[str, str] = {}
        """By operator of a later step of a loop: the same one of its first step, whose layouts hold for all steps."""
        self.step: TrainingStep | None = None
        """What `training` knows of its graph: which operators are backward, what is kept, what is replaced."""

    def shard(self, name: str, strategy: Iterable[Iterable[int]], out: Iterable[int] | None = None) -> None:
        """Configures an operator with a Sharding Strategy: for each input, the number of parts of each dimension.

        A dimension of size s in n parts has pieces of ceil(s / n), with padding at the end where n does not divide s.
        If the strategy leaves partial sums, they are all-reduced. `out`, the number of parts of each dimension of the
        output, asks for reduce-scatters instead, as MindSpore's out-strategy does.

        Raises:
            LayoutError: there is no such operator, or it cannot be distributed like that.
        """
        operator = self.operator_named(name)
        chosen = strategy_of(name, strategy)
        base = distribute(operator, chosen, self.devices)  # refuses an impossible strategy
        if out is not None:
            out = require_ints(out, f"{name}: an out-strategy is a whole number for each dimension of the output")
            base = with_out(base, out)[0]
        if self.uneven is False:
            require_even(base)
        for repeat in self._in_every_step(name):
            self.strategies[repeat] = chosen
            self.outs.pop(repeat, None)
            if out is not None:
                self.outs[repeat] = out

    def pin(self, name: str, layout: Any) -> None:
        """Fixes the layout of an input, a weight or an operator's output: P("data", None) on a mesh, or any layout.

        An operator's output is brought there from its partial sums, and all its readers get it from there.

        Raises:
            LayoutError: there is no such tensor, or the layout does not fit it.
        """
        self.pins |= layouts_of(self, dict.fromkeys(self._in_every_step(name), layout), "a layout")

    def pinned(self, layouts: Mapping[str, Any]) -> Graph:
        """The same program with further layouts given.

        Raises:
            LayoutError: as for `pin`.
        """
        same = copy(self)
        same.pins = dict(self.pins)
        for name, layout in layouts_of(self, layouts, "a layout").items():
            same.pin(name, layout)
        return same

    def on_prime_axes(self) -> Graph:
        """The same program on a mesh with an axis for each prime factor of its devices.

        A plan of it may split any dimension over any of these axes, parts of the original axes included, and may leave
        any of them unused, so that devices hold copies. Of dimensions that a reshape merges or divides, only the first
        is split.
        """
        devices = self.mesh.devices if self.mesh else ()
        sizes = self.mesh.shape if self.mesh else (self.devices,)
        axes = [factor for size in sizes for factor in prime_factors(size)]
        finer = self.copied(DeviceMatrix(tuple(axes), devices))
        finer.results, finer.step = self.results, self.step
        return finer

    def copied(self, mesh: DeviceMatrix | None = None) -> Graph:
        """The same program, perhaps on another mesh of as many devices, without its results."""
        mesh = mesh or self.mesh
        graph = Graph(None if mesh else self.devices, mesh, self.itemsize, self.uneven)
        for name in ("shapes", "sources", "operators", "strategies", "outs", "pins", "repeats"):
            getattr(graph, name).update(getattr(self, name))
        return graph

    def _in_every_step(self, name: str) -> list[str]:
        """A tensor, and the same one of the other steps of its loop."""
        first = self.repeats.get(name, name)
        return [first, *(repeat for repeat, of in self.repeats.items() if of == first)]

    def operator_named(self, name: str) -> Operator:
        """The operator of this name.

        Raises:
            LayoutError: there is none; the message names the closest match.
        """
        if isinstance(name, str) and name in self.operators:
            return self.operators[name]
        raise LayoutError(f"there is no operator named '{name}' in this graph; {nearest_name(name, self.operators)}")

    def keeps(self, operator: str) -> bool:
        """True if an operator's output takes memory that a plan counts: in a program, every output."""
        return self.step is None or operator in self.step.kept

    def bytes_by_role(self, elements: Mapping[str, int]) -> dict[str, int]:
        """Bytes of these tensors, given their elements, by the role that they have."""
        gradients = frozenset(self.step.gradients.values() if self.step else ())
        totals: dict[str, int] = {}
        for name, n in elements.items():
            role = ROLES.get(self.sources.get(name, ""), "gradients" if name in gradients else "activations")
            totals[role] = totals.get(role, 0) + n * self.itemsize
        return totals

    def phase(self, operator: str) -> int:
        """0 in forward, 1 in backward, 2 in the optimizer. A moved copy of a tensor lasts for one phase."""
        if self.step is None or operator in self.step.forward:
            return 0
        return 2 if operator in self.step.weights else 1

    def consumers(self, tensor: str) -> list[tuple[Operator, int]]:
        """The operators that take a tensor, each with the number of that input."""
        return [(op, i) for op in self.operators.values() for i, name in enumerate(op.inputs) if name == tensor]

    def run(self, values: Mapping[str, Array]) -> dict[str, Array]:
        """The program on one device, with numpy arrays: every tensor by name."""
        tensors = {name: np.asarray(values[name]) for name in self.check_values(values)}
        for op in self.operators.values():
            tensors[op.name] = op.compute([tensors[name] for name in op.inputs], op.output_shape)
        return tensors

    def check_values(self, values: Mapping[str, Array]) -> list[str]:
        """The names of the sources.

        Raises:
            LayoutError: the value of a source is missing or has the wrong shape.
        """
        if not isinstance(values, Mapping):
            raise LayoutError(f"values are a dictionary of arrays by source name; got {type(values).__name__}")
        for name in self.sources:
            if values.get(name) is None:
                raise LayoutError(SAYS("no value given", source=self.sources[name], name=name, shape=self.shapes[name]))
            refuse_masked(values[name], f"the value of {self.sources[name]} '{name}'")
            if np.shape(values[name]) != self.shapes[name]:
                raise LayoutError(
                    f"'{name}' has shape {self.shapes[name]}; the given value has {np.shape(values[name])}"
                )
        return list(self.sources)


def require_graph(graph: Any) -> None:
    """Refuses to plan anything except a Graph."""
    if not isinstance(graph, Graph):
        raise LayoutError(f"only a Graph can be planned; got {graph!r}")


# --- The possible Sharding Strategies of an operator, in a fixed order ---


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


@lru_cache(maxsize=128)
def _forms(
    form: Operator, mesh: DeviceMatrix, names: tuple[str, ...], scatter: bool, uneven: bool
) -> tuple[DistributedOperator, ...]:
    """The same for an operator without a name, because a network has many identical layers.

    Here and below, `names` are the axes' names: meshes that differ only in them are equal, but are shown differently.
    """
    found: list[DistributedOperator] = []
    for split in _assignments(tuple(x for x in form.letters if x in form.free), mesh):
        sizes = {letter: prod(mesh.shape[axis] for axis in axes) for letter, axes in split.items()}
        if all(form.divides(letter, n, uneven) for letter, n in sizes.items()):
            ways = arrange(form, mesh, split, uneven)
            found += filter(_fills, ways) if scatter else ways[-1:]
    return tuple(found)


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
