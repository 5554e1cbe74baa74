"""The Distributed Operator: an operator with a layout for each tensor, its collectives, and its costs.

A letter may be split into parts that its size does not have evenly. GSPMD (Xu et al. 2021) then computes with the
padding as well, and masks it with an operator's identity where it would reach a result: zeros before a sum, the least
number before a maximum. Here a device computes on what is real of its pieces, and pads the result. That is the same
for every operator, and a value in the padding never meets a function that it would be wrong for, such as a logarithm.
Pieces, and whatever is stored, sent and added up, are padded.

Source of the definitions: "Sharding Propagation", sections Distributed Operator, Sharding Strategy and Tensor
Layout, documentation of MindSpore 2.1.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

from lib.layout.errors import LayoutError
from lib.layout.layouts.checks import require_int, require_ints
from lib.layout.layouts.device_matrix import DeviceMatrix
from lib.layout.layouts.pieces import Array, padded, trimmed
from lib.layout.layouts.tensor_layout import Axes, TensorLayout
from lib.layout.redistribution.steps import Step, reductions

from ..words import SAYS
from .operators import Operator


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
