"""Values of a jaxpr's variables during import: a constant, or a tensor of the graph, perhaps broadcast.

A broadcast stays a view until an operator needs it in full. Operators that combine elements do not, because they
broadcast their later inputs to the first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lib.layout.errors import LayoutError
from lib.layout.layouts.pieces import Array

from .imported_graph import ImportedGraph, Place, is_key, is_real
from .operators import Operator

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Known:
    """An array that does not depend on the arguments."""

    array: Array

    @property
    def shape(self) -> Shape:
        return self.array.shape

    @property
    def scalar(self) -> float | None:
        """The number that all elements are, if they are all the same."""
        if self.array.size == 0 or not is_real(self.array.dtype):
            return None
        different = self.array[tuple(slice(None if stride else 1) for stride in self.array.strides)]
        first = different.flat[0]  # what is repeated without being stored is compared once
        return float(first) if bool((different == first).all()) else None


@dataclass(frozen=True)
class TensorView:
    """A tensor of the graph with other dimensions: `dims` has, for each one, the tensor's own, or None for a new one.

    New dimensions, and dimensions of size 1 that are larger here, are copies. Dimensions of the tensor that are not in
    `dims` have size 1.
    """

    name: str
    shape: Shape
    dims: tuple[int | None, ...]

    @classmethod
    def whole(cls, name: str, shape: Shape) -> TensorView:
        return cls(name, shape, tuple(range(len(shape))))

    def broadcast(self, shape: Shape, places: Sequence[int]) -> TensorView:
        """With this shape; `places` has, for each dimension of before, its new place."""
        dims: list[int | None] = [None] * len(shape)
        for place, dim in zip(places, self.dims):
            dims[place] = dim
        return TensorView(self.name, shape, tuple(dims))

    def without(self, dropped: Sequence[int]) -> TensorView:
        """Without these dimensions, which have size 1."""
        kept = [i for i in range(len(self.shape)) if i not in dropped]
        return TensorView(self.name, tuple(self.shape[i] for i in kept), tuple(self.dims[i] for i in kept))


Value = Known | TensorView


class NoOperatorError(Exception):
    """No operator stands for what a primitive does here; an opaque one will."""


class Importer:
    """The graph so far. Operators are named by the scope (as of jax.named_scope), the kind and a number."""

    def __init__(self, graph: ImportedGraph, fused: bool = True) -> None:
        self.graph, self.fused = graph, fused
        self.scope = ""
        """Names of `jax.named_scope` around the current primitive, joined by dots."""
        self.where = ""
        """The line of the current primitive, or of the call around it."""
        self.place: Place | None = None
        """Of the current primitive, outside of loops."""
        self.types: list[Any] = []
        """Of the inputs of the current primitive."""
        self.added: list[str] = []
        """Every operator that was asked for, in order."""
        self.numbers: dict[str, int] = {}
        self.made: dict[tuple[Any, ...], str] = {}
        self.constants: dict[tuple[Any, ...], str] = {}

    def add(self, kind: str, *inputs: str, **settings: Any) -> TensorView:
        """An operator, unless the same one has been added before."""
        key = kind, inputs, tuple(sorted(settings.items()))
        if key not in self.made:
            self.made[key] = self.graph.operator(kind, self._new_name(kind), *inputs, **settings)
        name = self.made[key]
        self.added.append(name)
        return TensorView.whole(name, self.graph.shapes[name])

    def add_opaque(self, stem: str, inputs: Sequence[str], *labels: Any) -> TensorView:
        """An operator that JAX computes, given its shape, letters and call, unless the same one has been added."""
        key = "opaque", tuple(inputs), labels[-1]
        if key not in self.made:
            shape, letters, output, free, call = labels
            name = self._new_name(stem.replace("-", "_"))
            settings = {"call": call}
            self.made[key] = self.graph.add_labelled(
                name, "opaque", tuple(inputs), shape, letters, output, free, settings
            )
        name = self.made[key]
        self.added.append(name)
        return TensorView.whole(name, self.graph.shapes[name])

    @staticmethod
    def shape_of(aval: Any) -> Shape:
        """The shape of a tensor in the graph: a key of random numbers is the numbers that it consists of."""
        return (*aval.shape, *(aval.dtype._impl.key_shape if is_key(aval.dtype) else ()))

    def reshaped(self, name: str, shape: Shape) -> TensorView:
        """A tensor in this shape."""
        return (
            TensorView.whole(name, shape)
            if self.graph.shapes[name] == shape
            else self.add("reshape", name, shape=shape)
        )

    def operator(self, value: Value) -> Operator | None:
        """The operator that computes what a value is a view of."""
        return self.graph.operators.get(value.name) if isinstance(value, TensorView) else None

    def plain(self, value: Value) -> str:
        """The name of a tensor that is this value, with all its copies."""
        view = self.tensor(value)
        if self.is_plain(view):
            return view.name
        base = self.graph.shapes[view.name]
        name = view.name
        kept = [dim for dim, n in zip(view.dims, view.shape) if dim is not None and base[dim] == n]
        if len(kept) < len(base):
            name = self.add("reshape", name, shape=tuple(base[dim] for dim in kept)).name
        here = 0
        for dim, size in zip(view.dims, view.shape):
            is_new = dim is None or base[dim] != size
            if is_new and size > 1:
                name = self.add("repeat", name, axis=here, size=size).name
            here += not is_new or size > 1
        if self.graph.shapes[name] != view.shape:
            name = self.add("reshape", name, shape=view.shape).name
        return name

    def operand(self, value: Value, rank: int) -> str:
        """The name of a tensor that is broadcast to this value if it is not the first input of an operator, which has
        `rank` dimensions."""
        view = self.tensor(value)
        base = self.graph.shapes[view.name]
        sizes = [1 if dim is None else base[dim] for dim in view.dims]
        while len(sizes) > 1 and sizes[0] == 1:
            del sizes[0]
        wanted = tuple(sizes) or (1,) * min(rank, 1)
        if base == wanted:
            return view.name
        return self.add("reshape", view.name, shape=wanted).name

    def is_plain(self, view: TensorView) -> bool:
        """True if it is the tensor itself."""
        return self.graph.shapes[view.name] == view.shape and view.dims == tuple(range(len(view.shape)))

    def is_full(self, value: Value, shape: Shape) -> bool:
        """True if it is a tensor of that shape, without copies."""
        return isinstance(value, TensorView) and value.shape == shape and self.is_plain(value)

    def tensor(self, value: Value) -> TensorView:
        """A constant as an input of the graph, only once and without the copies in it."""
        if isinstance(value, TensorView):
            return value
        shape = value.array.shape
        if not value.array.size:
            raise LayoutError(
                f"{self.where}: an array of shape {shape} is empty, and a graph has no such tensor; leave it out"
            )
        small, is_same = value.array, value.scalar is not None
        for dim, stride in enumerate(value.array.strides):
            if (stride == 0 or is_same) and small.shape[dim] > 1:
                small = small[(slice(None),) * dim + (slice(1),)]
        size = max(2, self.graph.itemsize)  # numpy has no floats of one byte
        with np.errstate(over="ignore"):  # a mask's -1e9 becomes an infinity in two bytes
            kept = np.array(small, dtype="i4" if small.dtype.kind in "iu" else f"f{size}")
        lead = 0
        while lead < kept.ndim - 1 and kept.shape[lead] == 1:
            lead += 1
        kept = kept.reshape(kept.shape[lead:] or (1,))
        key = kept.shape, kept.dtype.str, kept.tobytes()
        if key not in self.constants:
            name = self.graph.input(self._new_name("constant"), kept.shape)
            self.graph.constants[name] = kept
            self.constants[key] = name
        dims = tuple(None if i < lead else i - lead for i in range(len(shape)))
        return TensorView(self.constants[key], shape, dims)

    def in_full(self, value: Value, shape: Shape) -> str:
        """The name of a tensor that is this value broadcast to a shape, as numpy broadcasts."""
        view = self.tensor(value)
        ahead = len(shape) - len(view.shape)
        return self.plain(view.broadcast(shape, range(ahead, len(shape))))

    def _new_name(self, kind: str) -> str:
        stem = f"{self.scope}.{kind}" if self.scope and kind != "constant" else kind
        while True:
            self.numbers[stem] = self.numbers.get(stem, 0) + 1
            name = f"{stem}{self.numbers[stem]}"
            if name not in self.graph.shapes:
                return name
