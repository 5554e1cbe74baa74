"""The primitives of JAX: which operators stand for each, and what a variable of a jaxpr is during import.

Settings are as in jax 0.10. Recognized as one operator are a softmax, a mean, silu, relu, and the rows of a table: one
by one, their primitives would be planned as if each result were stored.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from lib.errors import install_command
from lib.layout.graph import Graph
from lib.layout.layouts import Array, DeviceMatrix, LayoutError
from lib.layout.operators import RELATIONS, Operator
from lib.layout.words import SAYS

# --- A graph that came from a function of JAX, and JAX itself, if it is installed ---

Place = tuple[int, ...]
"""A primitive of a traced function: its number, within a call also those of the calls around it."""


class ImportedGraph(Graph):
    """A graph that came from a function of JAX, with the names of its arguments and results, and its constants."""

    def __init__(
        self, devices: int | None, mesh: DeviceMatrix | None, itemsize: int, uneven: bool | None = None
    ) -> None:
        super().__init__(devices, mesh, itemsize, uneven)
        self.arguments: tuple[str, ...] = ()
        """Names of the function's arguments, those within containers each on its own, in the order of JAX."""
        self.structs: tuple[Any, ...] = ()
        """The function's arguments, as JAX was given them."""
        self.constants: dict[str, Array] = {}
        """Arrays that the function contains, such as a mask or a scale. They are inputs of the graph."""
        self.lines: dict[str, str] = {}
        """By operator: the line of the function that it came from, as 'model.py:12 (step)'."""
        self.places: dict[str, Place] = {}
        """By operator outside of loops: the primitive of the traced function that has its output."""

    def values(self, *arguments: Any) -> dict[str, Array]:
        """The values of all sources, given the function's arguments: what `run` and `on_engine` take.

        Raises:
            LayoutError: there are more or fewer arrays than the function takes.
        """
        leaves = jax_here().tree_util.tree_leaves(arguments)
        if len(leaves) != len(self.arguments):
            names = ", ".join(self.arguments)
            raise LayoutError(f"the function takes {len(self.arguments)} arrays, {names}; got {len(leaves)}")
        keys = [is_key(getattr(leaf, "dtype", None)) for leaf in leaves]
        arrays = (jax_here().random.key_data(leaf) if yes else leaf for leaf, yes in zip(leaves, keys))
        return {**dict(zip(self.arguments, map(np.asarray, arrays))), **self.constants}


def jax_here() -> Any:
    """The package jax, imported when it is first needed."""
    try:
        import jax
        import jax.extend
    except ImportError:
        raise LayoutError(SAYS("no JAX", install=install_command("jax"))) from None
    return jax


COLLECTIVES = ("psum", "psum2", "all_gather", "psum_scatter", "ppermute", "all_to_all", "shard_map", "axis_index")
ONE_DEVICE = "import the function for one device, without collectives: the plan adds them"
REAL = "a graph has real numbers only; keep the real and the imaginary parts in arrays of their own"


def is_key(dtype: Any) -> bool:
    """True for keys of random numbers."""
    jax = jax_here()
    return dtype is not None and bool(jax.numpy.issubdtype(dtype, jax.dtypes.prng_key))


def is_real(dtype: Any) -> bool:
    """False for complex numbers, keys of random numbers, and what is no array."""
    numpy = jax_here().numpy
    return dtype is not None and any(numpy.issubdtype(dtype, kind) for kind in (np.bool_, np.integer, np.floating))


# --- Values of a jaxpr's variables during import: a constant, or a tensor of the graph, perhaps broadcast ---
#
# A broadcast stays a view until an operator needs it in full. Operators that combine elements do not, because they
# broadcast their later inputs to the first.

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


# --- Groups of JAX's primitives that are one operator here, and rows or elements of tensors by number ---


class RowsByNumber:
    """Rows of a table along one dimension, by number: letters of the table, numbers and rows, as in an einsum."""

    def __init__(
        self, importer: Importer, shape: Shape, numbers: Value, window: Any, along: Any, batch: tuple[Any, Any]
    ) -> None:
        if len(along) != 1:
            raise NoOperatorError
        letters, (self.dim,), last = iter("abcdefghijklmnopqrstuvwxyz"), along, len(numbers.shape) - 1
        self.importer, self.shape, self.numbers = importer, shape, importer.tensor(numbers).without([last])
        self.table = [next(letters) for _ in shape]
        shared = {int(place): self.table[dim] for dim, place in zip(*batch)}
        self.at = [shared.get(i) or next(letters) for i in range(last)]
        self.left = [x for dim, x in enumerate(self.table) if dim != self.dim and dim not in batch[0]]
        places, windows = iter(self.at), iter(self.left)
        self.rows = [next(windows if i in window else places) for i in range(last + len(self.left))]
        self.is_batched = bool(batch[0])

    def taken(self, table: str) -> TensorView:
        """The rows with these numbers."""
        if self.is_batched:
            return self._product(self.rows, (self.table, table))
        size, *window = (self.shape[self.table.index(x)] for x in self._dim_first())
        flat = self._arranged(table, self.table, self._dim_first(), (size, prod(window)))
        flat_rows = self.importer.add("gather", flat.name, self.importer.plain(self.numbers))
        parts = self.importer.reshaped(flat_rows.name, (*self.numbers.shape, *window))
        return self._arranged(parts.name, self.at + self.left, self.rows)

    def added(self, rows: str) -> TensorView:
        """Zeros with the rows added to those with these numbers."""
        if self.is_batched:
            return self._product(self.table, (self.rows, rows))
        size, *window = (self.shape[self.table.index(x)] for x in self._dim_first())
        shape = *self.numbers.shape, prod(window)
        flat = self._arranged(rows, self.rows, self.at + self.left, shape)
        summed = self.importer.add("scatter", flat.name, self.importer.plain(self.numbers), size=size)
        parts = self.importer.reshaped(summed.name, (size, *window))
        return self._arranged(parts.name, self._dim_first(), self.table)

    def _dim_first(self) -> list[str]:
        return [self.table[self.dim], *self.left]

    def _arranged(self, name: str, letters: list[str], wanted: list[str], shape: Shape | None = None) -> TensorView:
        order = tuple(letters.index(x) for x in wanted)
        if order != tuple(range(len(order))):
            name = self.importer.add("transpose", name, order=order).name
        return self.importer.reshaped(name, self.importer.graph.shapes[name] if shape is None else shape)

    def _product(self, wanted: list[str], other: tuple[list[str], str]) -> TensorView:
        """With 1 where the place in the table is a row's number, otherwise 0."""
        size, rank = self.shape[self.dim], len(self.at)
        wide = self.importer.add("repeat", self.importer.plain(self.numbers), axis=rank, size=size)
        places = self.importer.tensor(Known(np.arange(size, dtype=np.int32)))
        mask = self.importer.add("compare", wide.name, places.name, relation="equal")
        spec = f"{''.join(other[0])},{''.join(self.at)}{self.table[self.dim]}->{''.join(wanted)}"
        return self.importer.add("einsum", other[1], mask.name, spec=spec)


def gathered(importer: Importer, settings: dict[str, Any], inputs: list[Value]) -> Value:
    """Full rows of a table, one element of each row, or a part whose place is known."""
    table, numbers = inputs
    how, sizes = settings["dimension_numbers"], tuple(settings["slice_sizes"])
    along, batch = tuple(how.collapsed_slice_dims), tuple(how.operand_batching_dims)
    if isinstance(numbers, Known) and len(numbers.shape) == 1 and not batch:
        starts = dict(zip(how.start_index_map, numbers.array.tolist()))
        part = _part(importer, table, [starts.get(dim, 0) for dim in range(len(sizes))], sizes)
        return part.without(along)
    whole = tuple(1 if dim in (*along, *batch) else n for dim, n in enumerate(table.shape))
    dims = along if along == tuple(how.start_index_map) and sizes == whole else ()
    pairs = batch, tuple(how.start_indices_batching_dims)
    return RowsByNumber(importer, table.shape, numbers, how.offset_dims, dims, pairs).taken(importer.plain(table))


def scattered(importer: Importer, settings: dict[str, Any], inputs: list[Value]) -> Value:
    """What `gathered` took, added up where it belongs: its gradient."""
    before, numbers, given = inputs
    how = settings["dimension_numbers"]
    if not isinstance(before, Known) or before.scalar != 0:
        raise NoOperatorError
    along = tuple(how.inserted_window_dims)
    pairs = tuple(how.operand_batching_dims), tuple(how.scatter_indices_batching_dims)
    dims = along if along == tuple(how.scatter_dims_to_operand_dims) else ()
    rows = RowsByNumber(importer, before.shape, numbers, how.update_window_dims, dims, pairs)
    return rows.added(importer.plain(given))


def sliced(importer: Importer, settings: dict[str, Any], inputs: list[Value]) -> Value:
    """A part whose place is known when the function is imported."""
    x, *starts = inputs
    if not all(isinstance(start, Known) and start.scalar is not None for start in starts):
        raise NoOperatorError
    known = [int(start.scalar or 0) for start in starts if isinstance(start, Known)]
    return _part(importer, x, known, settings["slice_sizes"])


def _part(importer: Importer, x: Value, starts: Sequence[int], sizes: Sequence[int]) -> TensorView:
    """A part of these sizes; as in JAX, one that would reach beyond the end starts earlier."""
    part = TensorView.whole(importer.plain(x), x.shape)
    for axis, (start, size) in enumerate(zip(starts, sizes)):
        if size != part.shape[axis]:
            first = int(np.clip(start, 0, part.shape[axis] - size))
            part = importer.add("slice", part.name, axis=axis, start=first, stop=first + int(size))
    return part


def largest(importer: Importer, settings: dict[str, Any], inputs: list[Value]) -> list[Value]:
    """The largest elements of an axis, and their numbers."""
    name, k = importer.plain(inputs[0]), int(settings["k"])
    rank = len(inputs[0].shape)
    axis = settings.get("axis", rank - 1)
    order = tuple({axis: rank - 1, rank - 1: axis}.get(i, i) for i in range(rank))  # its own inverse
    if axis != rank - 1:
        name = importer.add("transpose", name, order=order).name
    results: list[Value] = [importer.add("largest", name, k=k, numbers=numbers) for numbers in (False, True)]
    return (
        results
        if axis == rank - 1
        else [importer.add("transpose", importer.plain(result), order=order) for result in results]
    )


def mean_of(importer: Importer, total: Value, count: Value) -> Value | None:
    """reduce_sum / n, if n is the number of elements along that axis."""
    op = importer.operator(total)
    if op is None or op.kind != "reduce_sum" or not isinstance(count, Known) or not isinstance(total, TensorView):
        return None
    axis = dict(op.settings)["axis"]
    if count.scalar != op.input_shapes[0][axis]:
        return None
    mean = importer.add("reduce_mean", op.inputs[0], axis=axis)
    return TensorView(mean.name, total.shape, total.dims)


def softmax_of(importer: Importer, raised: Value, total: Value) -> Value | None:
    """exp(x - max(x)) / sum of that along the same axis."""
    exp, added = importer.operator(raised), importer.operator(total)
    if exp is None or added is None or (exp.kind, added.kind) != ("exp", "reduce_sum") or exp.name != added.inputs[0]:
        return None
    axis = dict(added.settings)["axis"]
    rest = [dim for dim in range(len(exp.output_shape)) if dim != axis]
    kept = [None if dim == axis else rest.index(dim) for dim in range(len(exp.output_shape))]
    if not isinstance(total, TensorView) or list(total.dims) != kept:
        return None
    less = importer.graph.operators.get(exp.inputs[0])
    if less is None or less.kind != "subtract":
        return None
    x, most = less.inputs
    highest = behind(importer, most, "reshape")
    wanted = tuple(1 if dim == axis else n for dim, n in enumerate(exp.output_shape))
    lead = (1,) * (len(wanted) - len(importer.graph.shapes[most]))
    if highest is None or highest.kind != "reduce_max" or lead + importer.graph.shapes[most] != wanted:
        return None
    if highest.inputs != (x,) or dict(highest.settings)["axis"] != axis:
        return None
    return importer.add("softmax", x, axis=axis)


def is_same_row(importer: Importer, mask: Value, rows: Value, wrapped: Value) -> bool:
    """True for `rows` where they are not negative, otherwise rows + n: JAX's row numbers, counted from the end."""
    below, added = importer.operator(mask), importer.operator(wrapped)
    if below is None or added is None or not isinstance(rows, TensorView) or not importer.is_plain(rows):
        return False
    if (below.kind, added.kind) != ("compare", "add") or dict(below.settings)["relation"] != "less":
        return False
    constants = importer.graph.constants
    if below.inputs[1] not in constants or added.inputs[1] not in constants:
        return False
    zero, count = constants[below.inputs[1]], constants[added.inputs[1]]
    is_whole = zero.dtype.kind == count.dtype.kind == "i"
    return is_whole and not zero.any() and below.inputs[0] == added.inputs[0] == rows.name


def behind(importer: Importer, name: str, *kinds: str) -> Operator | None:
    """The operator whose result is only seen in another way, by operators of these kinds."""
    op = importer.graph.operators.get(name)
    while op is not None and op.kind in kinds:
        op = importer.graph.operators.get(op.inputs[0])
    return op


# --- Primitives ---
#
# By primitive of JAX: the operators that stand for it. Settings are as in jax 0.10.
#
# Recognized as one operator: a softmax, a mean, silu, relu, and the rows of a table.

Settings = dict[str, Any]
Handler = Callable[[Importer, Settings, list[Value]], Value | list[Value]]

CALLS = (
    "jit", "pjit", "closed_call", "core_call", "custom_jvp_call", "custom_vjp_call", "custom_vjp_call_jaxpr",
    "remat", "remat2", "checkpoint",
)  # fmt: skip
"""Primitives that call a jaxpr; it becomes part of the graph."""


def called_jaxpr(eqn: Any) -> Any:
    """The jaxpr that a primitive calls, if it only calls one."""
    if eqn.primitive.name not in CALLS:
        return None
    return next(eqn.params[key] for key in ("jaxpr", "call_jaxpr", "fun_jaxpr") if key in eqn.params)


SAME_ANYWHERE = ("copy", "copy_p", "optimization_barrier", "sharding_constraint", "reduce_precision")
"""Primitives whose result is their input."""

COMPARISONS = ("lt", "le", "gt", "ge", "eq", "ne")
"""Primitives that compare, in the order of RELATIONS."""
ELEMENTWISE = frozenset(
    "add sub mul div max min neg exp log sqrt rsqrt sin cos tanh lt le gt ge eq ne and or not select_n pow integer_pow "
    "convert_element_type".split()
)
"""Primitives of which each element of the result depends on the same elements of the inputs."""
FLIPPED = {"less": "greater", "less_equal": "greater_equal", "greater": "less", "greater_equal": "less_equal"}
IDENTITY = {"add": 0.0, "subtract": 0.0, "multiply": 1.0, "divide": 1.0, "maximum": -np.inf, "minimum": np.inf}


def binary(kind: str, **settings: Any) -> Handler:
    """A handler of two tensors, element by element."""
    return lambda importer, _, inputs: combined(importer, kind, *inputs, **settings)


def combined(importer: Importer, kind: str, a: Value, b: Value, **settings: Any) -> Value:
    """An operator of two tensors, of which the unbroadcast tensor comes first."""
    shape = np.broadcast_shapes(a.shape, b.shape)
    for value, other, swaps in ((a, b, False), (b, a, kind not in ("subtract", "divide"))):
        is_identity = isinstance(other, Known) and other.scalar == IDENTITY.get(kind, np.nan)
        if is_identity and value.shape == shape and (value is a or swaps):
            return value
    if not importer.is_full(a, shape) and importer.is_full(b, shape):
        if kind == "subtract":
            return combined(importer, "add", importer.add("negative", importer.plain(b)), a)
        if kind == "divide":
            return combined(importer, "multiply", importer.add("reciprocal", importer.plain(b)), a)
        if kind == "compare":
            settings["relation"] = FLIPPED.get(settings["relation"], settings["relation"])
        a, b = b, a
    if kind == "maximum" and isinstance(b, Known) and b.scalar == 0:
        return importer.add("relu", importer.in_full(a, shape))
    if kind == "divide" and (recognized := mean_of(importer, a, b) or (importer.fused and softmax_of(importer, a, b))):
        return recognized
    if kind == "multiply" and importer.is_full(a, shape) and importer.is_full(b, shape):
        for value, other in ((a, b), (b, a)):
            op = importer.operator(other)
            if op is not None and op.kind == "logistic" and op.inputs == (importer.plain(value),):
                return importer.add("silu", importer.plain(value))
    return importer.add(kind, importer.in_full(a, shape), importer.operand(b, len(shape)), **settings)


def unary(kind: str) -> Handler:
    return lambda importer, _, inputs: importer.add(kind, importer.plain(inputs[0]))


def scalar(number: int) -> Known:
    return Known(np.full((), number, np.float32))


def logical(kind: str) -> Handler:
    """Of masks, which are 0 and 1."""

    def handler(importer: Importer, settings: Settings, inputs: list[Value]) -> Value:
        if any(dtype != np.bool_ for dtype in importer.types):
            raise NoOperatorError
        if kind == "not":
            return combined(importer, "compare", inputs[0], scalar(0), relation="equal")
        return combined(importer, kind, *inputs)

    return handler


def _power(importer: Importer, x: Value, exponent: float) -> Value:
    name = importer.plain(x)
    if exponent == 0.5:
        return importer.add("sqrt", name)
    if exponent == -0.5:
        return importer.add("rsqrt", name)
    n = abs(int(exponent))
    if n != abs(exponent) or not 1 <= n <= 16:
        raise NoOperatorError
    power: TensorView | None = None
    square = name
    while n:  # by repeated squaring
        if n % 2:
            power = TensorView.whole(square, x.shape) if power is None else importer.add("multiply", power.name, square)
        n //= 2
        square = importer.add("multiply", square, square).name if n else square
    assert power is not None
    return power if exponent > 0 else importer.add("reciprocal", power.name)


def _pow(importer: Importer, settings: Settings, inputs: list[Value]) -> Value:
    exponent = inputs[1].scalar if isinstance(inputs[1], Known) else None
    if exponent is None:
        raise NoOperatorError
    return _power(importer, inputs[0], exponent)


def _divide(importer: Importer, settings: Settings, inputs: list[Value]) -> Value:
    if importer.types[0].kind in "iu":
        raise NoOperatorError
    return combined(importer, "divide", *inputs)


def _convert(importer: Importer, settings: Settings, inputs: list[Value]) -> Value:
    """Types are not converted; but a float that becomes a whole number would lose its fraction."""
    kind, op = np.dtype(settings["new_dtype"]).kind, importer.operator(inputs[0])
    is_mask = op is not None and op.kind == "compare"
    if kind in "iu" and op is not None and not is_mask and importer.types[0].kind not in "iub":
        raise NoOperatorError
    if kind == "b" and not is_mask:
        return combined(importer, "compare", inputs[0], scalar(0), relation="not_equal")
    return inputs[0]


def _stop(importer: Importer, settings: Settings, inputs: list[Value]) -> Value:
    """The maximum that a softmax subtracts has no gradient here either; any other use would be lost."""
    name = inputs[0].name if isinstance(inputs[0], TensorView) else ""
    op = behind(importer, name, "reshape", "transpose")  # which vmap puts between
    if op is None or op.kind != "reduce_max":
        raise NoOperatorError
    return inputs[0]


def _select(importer: Importer, settings: Settings, inputs: list[Value]) -> Value:
    mask, *cases = inputs
    if len(cases) != 2:
        raise NoOperatorError
    if is_same_row(importer, mask, *cases):
        return cases[0]
    other, chosen = cases
    if importer.types[1] == np.bool_ and [getattr(case, "scalar", None) for case in cases] == [0, 1]:
        return mask
    if isinstance(mask, Known) and mask.scalar is not None:
        return chosen if mask.scalar else other
    shape = chosen.shape
    if not importer.is_full(chosen, shape) and importer.is_full(other, shape):
        if isinstance(mask, Known):
            mask = Known(np.logical_not(mask.array))
        else:
            mask = combined(importer, "compare", mask, scalar(0), relation="equal")
        chosen, other = other, chosen
    names = importer.operand(other, len(shape)), importer.operand(mask, len(shape))
    return importer.add("select", importer.in_full(chosen, shape), *names)


def _product(importer: Importer, settings: Settings, inputs: list[Value]) -> Value:
    """A matmul where it is one, otherwise an einsum; batch dimensions come first in the output."""
    (left, right), (left_batch, right_batch) = settings["dimension_numbers"]
    a, b = (importer.plain(value) for value in inputs)
    rank_a, rank_b = (len(value.shape) for value in inputs)
    lead = tuple(range(len(left_batch)))
    if len(left) == 1 and tuple(left_batch) == tuple(right_batch) == lead and rank_a >= 2:
        is_batched = rank_b == rank_a == len(lead) + 2
        if (not lead and rank_b == 2 and left[0] == rank_a - 1) or is_batched:
            flags = {"transpose_a": left[0] != rank_a - 1, "transpose_b": right[0] != rank_b - 2}
            return importer.add("matmul", a, b, **flags)
    letters = iter("abcdefghijklmnopqrstuvwxyz")
    rows: list[list[str]] = [[""] * rank_a, [""] * rank_b]
    for i, j in (*zip(left_batch, right_batch), *zip(left, right)):
        rows[0][i] = rows[1][j] = next(letters)
    rows = [[letter or next(letters) for letter in row] for row in rows]
    batch = [rows[0][i] for i in left_batch]
    free = [letter for row, other in (rows, rows[::-1]) for letter in row if letter not in other]
    return importer.add("einsum", a, b, spec=f"{''.join(rows[0])},{''.join(rows[1])}->{''.join(batch + free)}")


def reducing(kind: str) -> Handler:
    def handler(importer: Importer, settings: Settings, inputs: list[Value]) -> Value:
        reduced = TensorView.whole(importer.plain(inputs[0]), inputs[0].shape)
        for axis in sorted(settings["axes"], reverse=True):
            reduced = importer.add(kind, reduced.name, axis=axis)
        return reduced

    return handler


def _broadcast(importer: Importer, settings: Settings, inputs: list[Value]) -> Value:
    shape, places = tuple(settings["shape"]), settings["broadcast_dimensions"]
    value = inputs[0]
    if isinstance(value, Known):
        wide = np.expand_dims(value.array, [i for i in range(len(shape)) if i not in places])
        return Known(np.broadcast_to(wide, shape))
    return value.broadcast(shape, places)


def _reshape(importer: Importer, settings: Settings, inputs: list[Value]) -> Value:
    if settings.get("dimensions") is not None:
        raise NoOperatorError
    return importer.add("reshape", importer.plain(inputs[0]), shape=tuple(settings["new_sizes"]))


def _slice(importer: Importer, settings: Settings, inputs: list[Value]) -> Value:
    if any(step != 1 for step in settings["strides"] or ()):
        raise NoOperatorError
    starts, stops = settings["start_indices"], settings["limit_indices"]
    return _part(importer, inputs[0], starts, [stop - start for start, stop in zip(starts, stops)])


def _split(importer: Importer, settings: Settings, inputs: list[Value]) -> list[Value]:
    name, axis = importer.plain(inputs[0]), int(settings["axis"])
    ends = [int(n) for n in np.cumsum(settings["sizes"])]
    starts = [0, *ends[:-1]]
    return [importer.add("slice", name, axis=axis, start=i, stop=j) for i, j in zip(starts, ends)]


def _pad(importer: Importer, settings: Settings, inputs: list[Value]) -> Value:
    rows = settings["padding_config"]
    if not isinstance(inputs[1], Known) or inputs[1].scalar != 0:
        raise NoOperatorError
    if any(between or before < 0 or after < 0 for before, after, between in rows):
        raise NoOperatorError
    padded = TensorView.whole(importer.plain(inputs[0]), inputs[0].shape)
    for axis, (before, after, _) in enumerate(rows):
        if before or after:
            padded = importer.add("pad", padded.name, axis=axis, before=int(before), after=int(after))
    return padded


def _concatenate(importer: Importer, settings: Settings, inputs: list[Value]) -> Value:
    axis = int(settings["dimension"])
    full = [value for value in inputs if value.shape[axis]]
    return importer.add("concat", *map(importer.plain, full), axis=axis) if len(full) > 1 else full[0]


def _stack(importer: Importer, settings: Settings, inputs: list[Value]) -> Value:
    axis, shape = int(settings["axis"]), inputs[0].shape
    thin = (*shape[:axis], 1, *shape[axis:])
    names = [importer.add("reshape", importer.plain(value), shape=thin).name for value in inputs]
    return importer.add("concat", *names, axis=axis)


def _erfc(importer: Importer, settings: Settings, inputs: list[Value]) -> Value:
    negative = importer.add("negative", importer.add("erf", importer.plain(inputs[0])).name)
    return combined(importer, "add", negative, scalar(1))


def _abs(importer: Importer, settings: Settings, inputs: list[Value]) -> Value:
    name = importer.plain(inputs[0])
    return importer.add("maximum", name, importer.add("negative", name).name)


def _sign(importer: Importer, settings: Settings, inputs: list[Value]) -> Value:
    above, below = (combined(importer, "compare", inputs[0], scalar(0), relation=r) for r in ("greater", "less"))
    return combined(importer, "subtract", above, below)


def _clamp(importer: Importer, settings: Settings, inputs: list[Value]) -> Value:
    least, x, most = inputs
    return combined(importer, "minimum", combined(importer, "maximum", x, least), most)


HANDLERS: Mapping[str, Handler] = {
    **{name: binary(kind) for name, kind in {
        "add": "add", "add_any": "add", "sub": "subtract", "mul": "multiply", "max": "maximum",
        "min": "minimum",
    }.items()},
    **{name: binary("compare", relation=relation) for name, relation in zip(COMPARISONS, RELATIONS)},
    **{name: unary(kind) for name, kind in {
        "exp": "exp", "tanh": "tanh", "neg": "negative", "logistic": "logistic", "rsqrt": "rsqrt", "sqrt": "sqrt",
        "log": "log", "sin": "sin", "cos": "cos", "erf": "erf",
    }.items()},
    "div": _divide,
    "and": logical("multiply"),
    "or": logical("maximum"),
    "not": logical("not"),
    "integer_pow": lambda importer, settings, inputs: _power(importer, inputs[0], settings["y"]),
    "square": lambda importer, settings, inputs: _power(importer, inputs[0], 2),
    "pow": _pow,
    "erfc": _erfc,
    "abs": _abs,
    "clamp": _clamp,
    "sign": _sign,
    "convert_element_type": _convert,
    "stop_gradient": _stop,
    "select_n": _select,
    "dot_general": _product,
    "reduce_sum": reducing("reduce_sum"),
    "reduce_max": reducing("reduce_max"),
    "broadcast_in_dim": _broadcast,
    "reshape": _reshape,
    "squeeze": lambda importer, settings, inputs: importer.tensor(inputs[0]).without(settings["dimensions"]),
    "transpose": lambda importer, settings, inputs: importer.add(
        "transpose", importer.plain(inputs[0]), order=tuple(settings["permutation"])
    ),
    "slice": _slice,
    "split": _split,
    "pad": _pad,
    "concatenate": _concatenate,
    "stack": _stack,
    "gather": gathered,
    "scatter-add": scattered,
    "dynamic_slice": sliced,
    "top_k": largest,
    "log1p": lambda importer, settings, inputs: importer.add(
        "log", importer.plain(combined(importer, "add", inputs[0], scalar(1)))
    ),
    "expm1": lambda importer, settings, inputs: combined(
        importer, "subtract", importer.add("exp", importer.plain(inputs[0])), scalar(1)
    ),
    "is_finite": lambda importer, settings, inputs: Known(np.broadcast_to(np.True_, inputs[0].shape)),
}  # fmt: skip
"""By primitive."""
