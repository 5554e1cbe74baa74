"""Operators: their kinds, what each computes on pieces, and a program to which they are added.

An operator has a letter for each dimension, as in einsum: a letter that tensors share is one loop, and what may be
split follows from the letters alone. A rule for each kind, as MindSpore has, would repeat that; only a few kinds have
rows of letters of their own.

How an operator is divided among devices is left to `graph`, and what a division costs to `plans`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from inspect import signature
from math import erf, prod
from typing import Any, NamedTuple

import numpy as np

from lib.errors import Sentences
from lib.layout.layouts import Array, LayoutError, nearest_name, require_int, require_ints

# --- Each kind of operator on numpy arrays: the output's piece from the inputs' pieces ---

RATE = 0.125
"""Learning rate of the updates: a power of two, so that SGD on small whole numbers is exact."""
MOMENTUM, SQUARES, EPSILON = 0.5, 0.75, 1.0
"""Decay of the first moment and of the second, and what is added to its root (Kingma and Ba 2015): much, so that it
never magnifies rounding."""


class Task(NamedTuple):
    """The pieces of an operator's inputs, its settings, and the shape of its output's piece."""

    arrays: list[Array]
    settings: Mapping[str, Any]
    shape: tuple[int, ...]
    whole: tuple[tuple[int, ...], ...]
    """Shapes of the whole inputs."""
    offset: int = 0
    """Where this part of a table starts, in rows."""


_erf = np.vectorize(erf, otypes=[np.float64])


def _normal(x: Array) -> Array:
    cdf: Array = 0.5 * (1 + _erf(x / np.sqrt(2.0)))
    return cdf


def _sigmoid(x: Array) -> Array:
    sigmoid: Array = 1 / (1 + np.exp(-x))
    return sigmoid


UNARY: Mapping[str, Callable[[Array], Array]] = {
    "relu": lambda x: np.maximum(x, 0),
    "gelu": lambda x: x * _normal(x),
    "silu": lambda x: x * _sigmoid(x),
    "exp": np.exp,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "tanh": np.tanh,
    "negative": np.negative,
    "logistic": _sigmoid,
    "reciprocal": lambda x: 1 / x,
    "sqrt": np.sqrt,
    "log": np.log,
    "sin": np.sin,
    "cos": np.cos,
    "erf": lambda x: np.asarray(_erf(x)),
}
"""Kinds that map each element."""

BINARY: Mapping[str, Callable[[Array, Array], Array]] = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "divide": np.divide,
    "maximum": np.maximum,
    "minimum": np.minimum,
}
"""Kinds that combine elements; the second input is broadcast to the first."""

RELATIONS: Mapping[str, Callable[[Array, Array], Array]] = {
    "less": np.less,
    "less_equal": np.less_equal,
    "greater": np.greater,
    "greater_equal": np.greater_equal,
    "equal": np.equal,
    "not_equal": np.not_equal,
}
"""What a compare asks of each pair of elements."""

SLOPE: Mapping[str, tuple[str, Callable[[Array], Array]]] = {
    "relu": ("output", lambda y: (y > 0).astype(y.dtype)),
    "gelu": ("input", lambda x: _normal(x) + x * np.exp(-x * x / 2) / np.sqrt(2 * np.pi)),
    "silu": ("input", lambda x: _sigmoid(x) * (1 + x * (1 - _sigmoid(x)))),
    "exp": ("output", lambda y: y),
    "rsqrt": ("output", lambda y: -0.5 * y**3),
    "tanh": ("output", lambda y: 1 - y * y),
    "logistic": ("output", lambda y: y * (1 - y)),
    "reciprocal": ("output", lambda y: -y * y),
    "sqrt": ("output", lambda y: 0.5 / y),
    "log": ("input", lambda x: 1 / x),
    "sin": ("input", np.cos),
    "cos": ("input", lambda x: -np.sin(x)),
    "erf": ("input", lambda x: 2 / np.sqrt(np.pi) * np.exp(-x * x)),
    "top_k": ("output", lambda y: (y != 0).astype(y.dtype)),
}
"""For a kind that maps elements: whether its derivative is computed from its input or its output, and how."""


def compute(kind: str, task: Task) -> Array:
    """The piece that an operator of this kind computes, with the dtype of its first input."""
    first = task.arrays[0]
    if kind in UNARY:
        piece = UNARY[kind](first)
    elif kind in BINARY:
        piece = BINARY[kind](first, task.arrays[1])
    elif kind.endswith("_grad") and kind.removesuffix("_grad") in SLOPE:
        piece = first * SLOPE[kind.removesuffix("_grad")][1](task.arrays[1])
    else:
        piece = OTHERS[kind](task)
    if first.dtype.kind == "f" and piece.dtype.kind == "f":
        piece = piece.astype(first.dtype, copy=False)
    return np.asarray(piece)  # numpy returns a scalar instead of a 0-d array


def _matmul(task: Task) -> Array:
    a, b = task.arrays
    product: Array = _turned(a, task.settings["transpose_a"]) @ _turned(b, task.settings["transpose_b"])
    return product


def _turned(matrix: Array, turn: bool) -> Array:
    return np.swapaxes(matrix, -1, -2) if turn else matrix


def _softmax(task: Task) -> Array:
    (x,), axis = task.arrays, task.settings["axis"]
    raised = np.exp(x - x.max(axis=axis, keepdims=True))
    softmax: Array = raised / raised.sum(axis=axis, keepdims=True)
    return softmax


def _softmax_grad(task: Task) -> Array:
    (slope, y), axis = task.arrays, task.settings["axis"]
    grad: Array = y * (slope - (slope * y).sum(axis=axis, keepdims=True))
    return grad


def _mean(task: Task) -> Array:
    axis = task.settings["axis"]
    # divide by the full length, so that the summands of a split axis add up to the mean
    mean: Array = task.arrays[0].sum(axis=axis) / task.whole[0][axis]
    return mean


def _max(task: Task) -> Array:
    x, axis = task.arrays[0], task.settings["axis"]
    largest: Array = x.max(axis=axis) if x.shape[axis] else x.max(axis=axis, initial=-np.inf)  # a part that is padding
    return largest


def _compare(task: Task) -> Array:
    a, b = task.arrays
    return RELATIONS[task.settings["relation"]](a, b).astype(a.dtype)


def _repeat(task: Task) -> Array:
    wider = np.expand_dims(task.arrays[0] * task.settings["scale"], task.settings["axis"])
    return np.broadcast_to(wider, task.shape).copy()


def _slice(task: Task) -> Array:
    axis, start, stop = (task.settings[name] for name in ("axis", "start", "stop"))
    return np.take(task.arrays[0], np.arange(start, stop), axis=axis)


def _pad(task: Task) -> Array:
    widths = [(0, 0)] * task.arrays[0].ndim
    widths[task.settings["axis"]] = task.settings["before"], task.settings["after"]
    return np.pad(task.arrays[0], widths)


def _top_k(task: Task) -> Array:
    x, k = task.arrays[0], task.settings["k"]
    order = np.argsort(-x, axis=-1, kind="stable")[..., :k]
    kept = np.zeros(x.shape, dtype=bool)
    np.put_along_axis(kept, order, True, axis=-1)
    return np.where(kept, x, 0)


def _largest(task: Task) -> Array:
    x, k = task.arrays[0], task.settings["k"]
    order = np.argsort(-x, axis=-1, kind="stable")[..., :k]
    return order if task.settings["numbers"] else np.take_along_axis(x, order, axis=-1)


def _route(task: Task) -> Array:
    """Each token's gate at its expert and its place in that expert's queue; zeros for a token that finds it full."""
    gates, capacity = task.arrays[0], task.settings["capacity"]
    values = np.ones_like(gates) if task.settings["ones"] else gates
    chosen = gates.argmax(axis=-1)
    at_expert = np.eye(gates.shape[-1], dtype=np.int64)[chosen]
    place = (np.cumsum(at_expert, axis=-2) * at_expert).sum(axis=-1) - 1
    at_place = np.arange(capacity) == place[..., None]
    routed: Array = (values * at_expert)[..., None] * at_place[..., None, :]
    return routed


def _gather(task: Task) -> Array:
    """Rows of a table; zeros for rows that are not in this part of the table."""
    table, rows = task.arrays[0], task.arrays[1].astype(np.int64) - task.offset
    here = (rows >= 0) & (rows < len(table))
    if not len(table):  # this part is padding only
        return np.zeros((*rows.shape, *table.shape[1:]), dtype=table.dtype)
    return np.where(here[..., None], table[np.where(here, rows, 0)], 0).astype(table.dtype)


def _scatter(task: Task) -> Array:
    """A table whose rows are sums of the given ones, by row number; the rows of other parts are left out."""
    values, rows = task.arrays[0], task.arrays[1].astype(np.int64) - task.offset
    here = (rows >= 0) & (rows < task.shape[0])
    table = np.zeros(task.shape, dtype=values.dtype)
    np.add.at(table, rows[here], values[here])
    return table


def _moments(task: Task) -> Array:
    """The new optimizer state: the average gradient, and for Adam also the average of its squares."""
    state, grad = task.arrays
    parts = [MOMENTUM * state[0] + (1 - MOMENTUM) * grad]
    if len(state) > 1:
        parts.append(SQUARES * state[1] + (1 - SQUARES) * grad * grad)
    return np.stack(parts)


def _update(task: Task) -> Array:
    """The new weight: by its gradient (SGD), or by its optimizer state."""
    weight, by = task.arrays
    if by.ndim == weight.ndim:
        updated: Array = weight - RATE * by
    else:
        updated = weight - RATE * (by[0] / (np.sqrt(by[1]) + EPSILON) if len(by) > 1 else by[0])
    return updated


OTHERS: Mapping[str, Callable[[Task], Array]] = {
    "matmul": _matmul,
    "einsum": lambda task: np.einsum(task.settings["spec"], *task.arrays),
    "softmax": _softmax,
    "softmax_grad": _softmax_grad,
    "reduce_sum": lambda task: task.arrays[0].sum(axis=task.settings["axis"]),
    "reduce_max": _max,
    "reduce_mean": _mean,
    "compare": _compare,
    "select": lambda task: np.where(task.arrays[2] != 0, task.arrays[0], task.arrays[1]),
    "repeat": _repeat,
    "reshape": lambda task: task.arrays[0].reshape(task.shape),
    "transpose": lambda task: task.arrays[0].transpose(task.settings["order"]),
    "concat": lambda task: np.concatenate(task.arrays, axis=task.settings["axis"]),
    "slice": _slice,
    "pad": _pad,
    "top_k": _top_k,
    "largest": _largest,
    "route": _route,
    "gather": _gather,
    "scatter": _scatter,
    "moments": _moments,
    "update": _update,
    "store": lambda task: task.arrays[0].copy(),
    "opaque": lambda task: task.settings["call"](task.arrays),
}
"""All other kinds."""


# --- Operators: kind, shapes, a letter for each dimension, flops, and the computation of a piece on numpy ---
#
# An operator is written in einsum notation: matmul is "mk,kn->mn". A letter that the output lacks is contracted, and
# splitting it leaves summands. Letters that may not be split (the axis of a softmax) are not `free`.

GRADS = tuple(f"{kind}_grad" for kind in SLOPE)
"""Kinds that multiply a gradient by the derivative of an operator that maps elements."""
OPTIMIZER = ("moments", "update", "store")
"""Kinds that end a training step; each is laid out as one copy of its weight."""
KINDS = tuple(kind for kind in (*UNARY, *BINARY, *OTHERS) if kind not in (*OPTIMIZER, "softmax_grad", "opaque"))
"""Kinds of operators that a program may have. `training` adds the others, and `from_jax` the opaque ones."""

COMBINING = (*BINARY, "compare", "select")
"""Kinds that combine elements; the other inputs are broadcast to the first."""

FLOPS = {
    **dict.fromkeys((*UNARY, *COMBINING, "reduce_sum", "reduce_max", "reduce_mean"), 1),
    **dict.fromkeys(("gelu", "silu", "tanh", "logistic", "erf"), 8),
    **dict.fromkeys(GRADS, 2),
    **{"gelu_grad": 12, "silu_grad": 12, "softmax": 5, "softmax_grad": 4, "moments": 3, "update": 4},
}
"""Floating-point operations per element; a product has two for each combination of letters."""

DIMENSION_PRESERVING = (*UNARY, *COMBINING, *GRADS, "softmax", "softmax_grad", "top_k")
"""Kinds whose output has the dimensions of their first input."""


def fills(size: int, parts: int, uneven: bool = False) -> bool:
    """True if a dimension has so many equal parts; if `uneven`, parts of which none is padding only."""
    return size % parts == 0 or (uneven and (parts - 1) * -(-size // parts) < size)


@dataclass(frozen=True)
class Operator:
    """One operator of a graph: tensors by name, dimensions by letter. Its output has its own name.

    A dimension of size 1 that is broadcast has the letter "1".
    """

    name: str
    kind: str
    inputs: tuple[str, ...]
    input_shapes: tuple[tuple[int, ...], ...]
    output_shape: tuple[int, ...]
    input_letters: tuple[tuple[str, ...], ...]
    output_letters: tuple[str, ...]
    free: frozenset[str]
    settings: tuple[tuple[str, Any], ...] = ()

    @property
    def letters(self) -> tuple[str, ...]:
        """All letters, inputs first, each once."""
        return tuple(dict.fromkeys((*self.input_letters_once, *(x for x in self.output_letters if x != "1"))))

    @property
    def input_letters_once(self) -> tuple[str, ...]:
        """The letters of the inputs, each once."""
        every = {letter: None for letters in self.input_letters for letter in letters}
        return tuple(letter for letter in every if letter != "1")

    @property
    def contracted(self) -> tuple[str, ...]:
        """Free letters that the output lacks."""
        return tuple(letter for letter in self.letters if letter in self.free and letter not in self.output_letters)

    def sizes(self, letter: str) -> tuple[int, ...]:
        """The sizes of the dimensions of a letter: one, or more where a reshape merges dimensions."""
        sizes: dict[int, None] = {}
        for shape, letters in zip((*self.input_shapes, self.output_shape), (*self.input_letters, self.output_letters)):
            sizes.update({size: None for size, other in zip(shape, letters) if other == letter})
        return tuple(sizes)

    def divides(self, letter: str, parts: int, uneven: bool = False) -> bool:
        """True if the letter may be split into that many equal parts; if `uneven`, also into parts with padding of
        which none is padding only."""
        return self.splits(letter, parts) and all(fills(size, parts, uneven) for size in self.sizes(letter))

    def splits(self, letter: str, parts: int) -> bool:
        """True if the letter may be split into that many parts, padded where necessary.

        Where a reshape merges dimensions, their pieces have to be the same elements: of 6 rows of 4 in 4 parts, the
        first is 2 rows, which is 8 elements, but of 24 in 4 parts it is 6.
        """
        if parts == 1:
            return True
        first, *others = self.sizes(letter)
        return letter in self.free and all(-(-first // parts) * n == -(-n // parts) * first for n in others)

    @property
    def is_product(self) -> bool:
        """True for matrix products: what takes nearly all of the time."""
        return self.kind == "matmul" or (self.kind == "einsum" and len(self.inputs) > 1)

    def flops(self, parts: dict[str, int]) -> int:
        """Floating-point operations of a device without padding when each letter is split into that many parts."""
        if self.is_product:
            return 2 * prod(-(-self.sizes(letter)[0] // parts.get(letter, 1)) for letter in self.letters)
        shape, letters = self.input_shapes[0], self.input_letters[0]
        if self.kind in COMBINING:
            shape, letters = self.output_shape, self.output_letters
        return FLOPS.get(self.kind, 0) * prod(-(-n // parts.get(letter, 1)) for n, letter in zip(shape, letters))

    def compute(self, arrays: list[Array], local_shape: tuple[int, ...], offset: int = 0) -> Array:
        """The output's piece from the inputs' pieces, a summand where a contracted letter is split.

        `local_shape` is the output's; `offset` is where this part of a table starts.
        """
        return compute(self.kind, Task(arrays, dict(self.settings), local_shape, self.input_shapes, offset))


Letters = tuple[str, ...]


def in_order(n: int) -> Letters:
    """Letters for n dimensions that an operator preserves."""
    return tuple("ijlmnopq"[:n])


def of_reshape(before: tuple[int, ...], after: tuple[int, ...]) -> tuple[Letters, Letters, list[str]]:
    """Letters before and after a reshape, and the free ones.

    Both shapes are divided into groups of equal products; the first dimensions of a group share a free letter.
    Dimensions of size 1 belong to no group.
    """
    left, right = [f"s{i}" for i in range(len(before))], [f"t{i}" for i in range(len(after))]
    free: list[str] = []
    many = [[dim for dim, size in enumerate(shape) if size > 1] for shape in (before, after)]
    i = j = 0
    while i < len(many[0]):
        a, b = before[many[0][i]], after[many[1][j]]
        shared = f"g{len(free)}"
        free.append(shared)
        left[many[0][i]] = right[many[1][j]] = shared
        i, j = i + 1, j + 1
        while a != b:
            if a < b:
                a, i = a * before[many[0][i]], i + 1
            else:
                b, j = b * after[many[1][j]], j + 1
    return tuple(left), tuple(right), free


def of_einsum(
    name: str, spec: str, shapes: Sequence[tuple[int, ...]]
) -> tuple[tuple[Letters, ...], Letters, dict[str, int]]:
    """Of "bd,df->bf": the letters of each input and of the output, and the size of each."""
    terms, arrow, output = str(spec).replace(" ", "").partition("->")
    inputs = terms.split(",")
    if not arrow or not all(term.isalpha() for term in (*inputs, output) if term):
        raise LayoutError(f"{name}: an einsum has one letter per dimension, such as 'bd,df->bf'; got {spec!r}")
    if len(inputs) != len(shapes):
        raise LayoutError(f"{name}: {spec!r} is for {len(inputs)} inputs; got {len(shapes)}")
    sizes: dict[str, int] = {}
    for term, shape in zip(inputs, shapes):
        if len(term) != len(shape):
            raise LayoutError(f"{name}: '{term}' in {spec!r} has {len(term)} letters for an input of shape {shape}")
        for letter, size in zip(term, shape):
            if sizes.setdefault(letter, size) != size:
                raise LayoutError(
                    f"{name}: '{letter}' in {spec!r} is {sizes[letter]} in one input and {size} in another"
                )
    for term in (*inputs, output):
        twice = [letter for letter in term if term.count(letter) > 1]
        if twice:
            raise LayoutError(f"{name}: '{term}' in {spec!r} has '{twice[0]}' twice; a diagonal cannot be split")
    missing = [letter for letter in output if letter not in sizes]
    if missing:
        raise LayoutError(f"{name}: '{missing[0]}' in the output of {spec!r} does not occur in any input")
    return tuple(map(tuple, inputs)), tuple(output), sizes


# --- A program under construction: sources, and a method for each kind of operator that adds one ---
#
# Each method takes a name for the operator and the names of its inputs, and returns the name, which is also the name of
# its output.

LEADING_LETTERS = "bcdefgh"


def _of_each(kind: str, meaning: str) -> Callable[[ProgramBuilder, str, str], str]:
    def method(self: ProgramBuilder, name: str, x: str) -> str:
        return self._broadcast(name, kind, x)

    method.__name__, method.__doc__ = kind, meaning
    return method


def _of_pairs(kind: str, meaning: str) -> Callable[[ProgramBuilder, str, str, str], str]:
    """A method that adds an operator of this kind, which combines elements; the second input is broadcast."""

    def method(self: ProgramBuilder, name: str, a: str, b: str) -> str:
        return self._broadcast(name, kind, a, b)

    method.__name__, method.__doc__ = kind, meaning
    return method


def _of_axis(kind: str, meaning: str) -> Callable[[ProgramBuilder, str, str, int], str]:
    def method(self: ProgramBuilder, name: str, x: str, axis: int) -> str:
        shape = self._shape(x)
        dim = self._axis(name, shape, axis)
        letters = in_order(len(shape))
        rest = letters[:dim] + letters[dim + 1 :]
        less = shape[:dim] + shape[dim + 1 :]
        return self.add_labelled(name, kind, (x,), less, (letters,), rest, letters, {"axis": dim})

    method.__name__, method.__doc__ = kind, meaning
    return method


class ProgramBuilder:
    """Tensors and operators in the order of the program."""

    def __init__(self) -> None:
        self.shapes: dict[str, tuple[int, ...]] = {}
        """Shapes of all tensors, sources and outputs."""
        self.sources: dict[str, str] = {}
        """Name to 'input', 'parameter' or, in a training step, 'state'."""
        self.operators: dict[str, Operator] = {}

    def input(self, name: str, shape: Sequence[int]) -> str:
        """A tensor that is given from outside."""
        return self._source(name, shape, "input")

    def parameter(self, name: str, shape: Sequence[int]) -> str:
        """A weight."""
        return self._source(name, shape, "parameter")

    def state(self, name: str, shape: Sequence[int]) -> str:
        """A tensor of the optimizer that lasts from step to step."""
        return self._source(name, shape, "state")

    def matmul(self, name: str, a: str, b: str, transpose_a: bool = False, transpose_b: bool = False) -> str:
        """a @ b: the same leading dimensions on both, or a matrix b for all of a's."""
        shape_a, shape_b = self._shape(a), self._shape(b)
        if len(shape_a) < 2 or len(shape_b) < 2 or len(shape_b) not in (2, len(shape_a)):
            raise LayoutError(
                f"{name}: a matmul takes a (..., m, k) and a (k, n) or (..., k, n); got {shape_a} and {shape_b}"
            )
        m, k = shape_a[-2:][::-1] if transpose_a else shape_a[-2:]
        k2, n = shape_b[-2:][::-1] if transpose_b else shape_b[-2:]
        lead, lead2 = shape_a[:-2], shape_b[:-2]
        if k != k2 or (lead2 and lead != lead2):
            misfit = f"{k} columns meet {k2} rows" if k != k2 else f"the leading dimensions {lead} and {lead2} differ"
            flags = " transposed" if transpose_a or transpose_b else ""
            raise LayoutError(f"{name}: the shapes {shape_a} and {shape_b}{flags} do not fit: {misfit}")
        letters = tuple(LEADING_LETTERS[i] for i in range(len(lead)))
        left = letters + (("k", "m") if transpose_a else ("m", "k"))
        right = (letters if lead2 else ()) + (("n", "k") if transpose_b else ("k", "n"))
        settings = {"transpose_a": transpose_a, "transpose_b": transpose_b}
        return self.add_labelled(
            name, "matmul", (a, b), (*lead, m, n), (left, right), (*letters, "m", "n"), settings=settings
        )

    add = _of_pairs("add", "a + b, where b may lack leading dimensions or have dimensions of size 1.")
    subtract = _of_pairs("subtract", "a - b, broadcast like `add`.")
    multiply = _of_pairs("multiply", "a * b, element by element, broadcast like `add`.")
    divide = _of_pairs("divide", "a / b, element by element, broadcast like `add`.")
    maximum = _of_pairs("maximum", "The larger of a and b, element by element, broadcast like `add`.")
    minimum = _of_pairs("minimum", "The smaller of a and b, element by element, broadcast like `add`.")

    def compare(self, name: str, a: str, b: str, relation: str = "less") -> str:
        """1 where a is less than b (or another relation holds), otherwise 0; broadcast like `add`."""
        if relation not in tuple(RELATIONS):
            raise LayoutError(
                SAYS("no such relation", name=name, relation=relation, advice=nearest_name(str(relation), RELATIONS))
            )
        return self._broadcast(name, "compare", a, b, settings={"relation": relation})

    def select(self, name: str, a: str, b: str, mask: str) -> str:
        """a where the mask is not 0, otherwise b; both are broadcast to a, like `add`."""
        return self._broadcast(name, "select", a, b, mask)

    relu = _of_each("relu", "max(x, 0).")
    gelu = _of_each("gelu", "x times the normal distribution function of x (Hendrycks and Gimpel 2016).")
    silu = _of_each(
        "silu",
        "x times the logistic function of x (Hendrycks and Gimpel 2016); SwiGLU multiplies it by a second matmul.",
    )
    exp = _of_each("exp", "e to the power x.")
    rsqrt = _of_each("rsqrt", "1 / sqrt(x).")
    tanh = _of_each("tanh", "The hyperbolic tangent of x.")
    negative = _of_each("negative", "-x.")
    logistic = _of_each("logistic", "1 / (1 + exp(-x)), the sigmoid.")
    reciprocal = _of_each("reciprocal", "1 / x.")
    sqrt = _of_each("sqrt", "The square root of x.")
    log = _of_each("log", "The natural logarithm of x.")
    sin = _of_each("sin", "The sine of x.")
    cos = _of_each("cos", "The cosine of x.")
    erf = _of_each("erf", "The error function of x.")

    def softmax(self, name: str, x: str, axis: int = -1) -> str:
        """Softmax along one axis, which is not split."""
        shape = self._shape(x)
        dim = self._axis(name, shape, axis)
        letters = in_order(len(shape))
        return self._along(name, "softmax", (x,), shape, [letters], letters, dim)

    reduce_sum = _of_axis("reduce_sum", "The sum over one axis.")
    reduce_mean = _of_axis("reduce_mean", "The mean over one axis.")
    reduce_max = _of_axis("reduce_max", "The maximum over one axis.")

    def einsum(self, name: str, *inputs: str, spec: str) -> str:
        """Products and sums in numpy.einsum's notation: einsum("hidden", "x", "w", spec="bd,df->bf")."""
        shapes = [self._shape(x) for x in inputs]
        left, right, sizes = of_einsum(name, spec, shapes)
        return self.add_labelled(
            name, "einsum", inputs, tuple(sizes[x] for x in right), left, right, settings={"spec": spec}
        )

    def operator(self, kind: str, name: str, *inputs: str, **settings: Any) -> str:
        """An operator, given the name of its kind."""
        if kind not in tuple(KINDS):
            raise LayoutError(f"there is no operator '{kind}'; {nearest_name(kind, KINDS)}")
        method = getattr(self, kind)
        try:
            signature(method).bind(name, *inputs, **settings)
        except TypeError as why:
            form = ", ".join(signature(method).parameters)
            raise LayoutError(f"{name}: {kind} is called as {kind}({form}): {why}") from None
        return str(method(name, *inputs, **settings))

    # --- Operators that rearrange: other shapes, parts of it, rows of a table, tokens routed to experts ---

    def transpose(self, name: str, x: str, order: Sequence[int]) -> str:
        """Dimensions in another order."""
        shape, order = self._shape(x), require_ints(order, f"{name}: an order is a tuple of dimensions")
        if sorted(order) != list(range(len(shape))):
            raise LayoutError(f"{name}: {order} is not an order of the {len(shape)} dimensions of shape {shape}")
        letters = in_order(len(shape))
        out = tuple(letters[i] for i in order)
        return self.add_labelled(
            name, "transpose", (x,), tuple(shape[i] for i in order), (letters,), out, settings={"order": order}
        )  # fmt: skip

    def reshape(self, name: str, x: str, shape: Sequence[int]) -> str:
        """The same elements in another shape; of dimensions that are merged or divided, the first may be split."""
        before, after = self._shape(x), require_ints(shape, f"{name}: a shape is a tuple of whole numbers")
        if prod(before) != prod(after):
            raise LayoutError(
                f"{name}: shape {before} has {prod(before):,} elements, shape {after} has {prod(after):,}"
            )
        left, right, free = of_reshape(before, after)
        return self.add_labelled(name, "reshape", (x,), after, (left,), right, free)

    def gather(self, name: str, table: str, rows: str) -> str:
        """Rows of a table of shape (v, e), such as an embedding; the row numbers may have any shape."""
        table_shape, rows_shape = self._shape(table), self._shape(rows)
        if len(table_shape) != 2:
            raise LayoutError(f"{name}: a gather takes a two-dimensional table; got {table_shape}")
        letters = in_order(len(rows_shape))
        return self.add_labelled(
            name, "gather", (table, rows), (*rows_shape, table_shape[1]), (("v", "e"), letters), (*letters, "e")
        )

    def repeat(self, name: str, x: str, axis: int, size: int, scale: float = 1.0) -> str:
        """x times `scale`, with a new dimension of `size` equal parts at `axis`; the new dimension may be split."""
        shape = self._shape(x)
        size = require_int(size, f"{name}: the size of a dimension is a whole number")
        dim = self._axis(name, (*shape, size), axis)
        letters = in_order(len(shape))
        wider, out = (*shape[:dim], size, *shape[dim:]), (*letters[:dim], "r", *letters[dim:])
        return self.add_labelled(name, "repeat", (x,), wider, (letters,), out, settings={"axis": dim, "scale": scale})

    def concat(self, name: str, *inputs: str, axis: int) -> str:
        """Tensors one after the other along an axis, which is not split."""
        shapes = [self._shape(x) for x in inputs]
        if not shapes:
            raise LayoutError(f"{name}: a concat takes one tensor or more")
        dim = self._axis(name, shapes[0], axis)
        rest = {(*shape[:dim], *shape[dim + 1 :]) for shape in shapes}
        if len(rest) > 1 or len({len(shape) for shape in shapes}) > 1:
            raise LayoutError(f"{name}: the shapes {', '.join(map(str, shapes))} differ in more than axis {dim}")
        whole = (*shapes[0][:dim], sum(shape[dim] for shape in shapes), *shapes[0][dim + 1 :])
        letters = in_order(len(whole))
        rows = [tuple(f"c{n}" if i == dim else x for i, x in enumerate(letters)) for n in range(len(inputs))]
        return self._along(name, "concat", inputs, whole, rows, letters, dim)

    def slice(self, name: str, x: str, axis: int, start: int, stop: int) -> str:
        """The part of x from `start` to `stop` along an axis, which is not split."""
        shape = self._shape(x)
        dim = self._axis(name, shape, axis)
        start, stop = require_ints((start, stop), f"{name}: a slice starts and stops at whole numbers")
        if not 0 <= start < stop <= shape[dim]:
            raise LayoutError(f"{name}: axis {dim} of shape {shape} has no part from {start} to {stop}")
        return self._resized(name, "slice", x, dim, stop - start, {"start": start, "stop": stop})

    def pad(self, name: str, x: str, axis: int, before: int = 0, after: int = 0) -> str:
        """x with zeros before and after it along an axis, which is not split; readers can split it evenly."""
        shape = self._shape(x)
        dim = self._axis(name, shape, axis)
        before, after = require_ints((before, after), f"{name}: padding is a whole number of zeros on each side")
        if min(before, after) < 0:
            raise LayoutError(f"{name}: padding is a whole number of zeros on each side; got {before} and {after}")
        settings = {"before": before, "after": after}
        return self._resized(name, "pad", x, dim, before + shape[dim] + after, settings)

    def top_k(self, name: str, x: str, k: int) -> str:
        """The k largest elements of the last axis, in their places, with zeros elsewhere; the axis is not split."""
        shape, letters = self._with_largest(name, x, k)
        return self.add_labelled(name, "top_k", (x,), shape, (letters,), letters, letters[:-1], {"k": k})

    def largest(self, name: str, x: str, k: int, numbers: bool = False) -> str:
        """The k largest elements of the last axis in descending order, or their numbers; the axis is not split."""
        shape, letters = self._with_largest(name, x, k)
        row, out = (*letters[:-1], "c0"), (*letters[:-1], "c1")
        settings = {"k": k, "numbers": numbers}
        return self.add_labelled(name, "largest", (x,), (*shape[:-1], k), (row,), out, letters[:-1], settings)

    def route(self, name: str, gates: str, capacity: int, ones: bool = False) -> str:
        """The dispatch table (..., tokens, experts, capacity) of gates (..., tokens, experts), as in GShard.

        Each token goes to its best expert until that has `capacity` tokens, with its gate as the value, or 1 if `ones`.
        Tokens and experts are not split; leading dimensions (groups of tokens) may be split.
        """
        shape = self._shape(gates)
        if len(shape) < 2 or require_int(capacity, f"{name}: a capacity is a whole number of tokens") < 1:
            raise LayoutError(
                f"{name}: gates are (..., tokens, experts), a capacity 1 or more; got {shape}, {capacity}"
            )
        letters = in_order(len(shape))
        settings = {"capacity": capacity, "ones": ones}
        return self.add_labelled(
            name, "route", (gates,), (*shape, capacity), (letters,), (*letters, "z"), letters[:-2], settings
        )  # fmt: skip

    def scatter(self, name: str, x: str, rows: str, size: int) -> str:
        """A table of `size` rows: sums of the vectors of x (..., e), by row number (...). Reverses `gather`."""
        x_shape, rows_shape = self._shape(x), self._shape(rows)
        if x_shape[:-1] != rows_shape or not x_shape:
            raise LayoutError(
                f"{name}: a scatter takes vectors (..., e) and row numbers (...); got {x_shape} and {rows_shape}"
            )
        letters = in_order(len(rows_shape))
        size = require_int(size, f"{name}: the size of a table is a whole number of rows")
        return self.add_labelled(
            name, "scatter", (x, rows), (size, x_shape[-1]), ((*letters, "e"), letters), ("v", "e")
        )

    # --- How operators are added ---

    def _source(self, name: str, shape: Sequence[int], role: str) -> str:
        self._new(name)
        shape = require_ints(shape, f"{name}: a shape is a tuple of whole numbers")
        if not all(n >= 1 for n in shape):
            raise LayoutError(f"{name}: every dimension of a tensor is at least 1; got {shape}")
        self.shapes[name], self.sources[name] = shape, role
        return name

    def _broadcast(self, name: str, kind: str, a: str, *others: str, settings: Mapping[str, Any] | None = None) -> str:
        shape = self._shape(a)
        letters = in_order(len(shape))
        rows = [letters]
        for other in others:
            other_shape = self._shape(other)
            aligned = shape[len(shape) - len(other_shape) :]
            if len(other_shape) > len(shape) or any(m not in (1, n) for n, m in zip(aligned, other_shape)):
                raise LayoutError(
                    f"{name}: the shapes {shape} and {other_shape} do not fit: the second is broadcast to the first"
                )
            last = letters[len(shape) - len(other_shape) :]
            rows.append(tuple("1" if m != n else x for x, n, m in zip(last, aligned, other_shape)))
        return self.add_labelled(name, kind, (a, *others), shape, tuple(rows), letters, settings=settings)

    def add_operator(self, name: str, kind: str, inputs: tuple[str, ...], like: Operator) -> str:
        """An operator on tensors of one shape, with the free dimensions and settings of another one."""
        shape, settings = like.output_shape, dict(like.settings)
        letters = like.output_letters
        return self.add_labelled(name, kind, inputs, shape, (letters,) * len(inputs), letters, like.free, settings)

    def add_labelled(
        self,
        name: str,
        kind: str,
        inputs: tuple[str, ...],
        shape: tuple[int, ...],
        letters: tuple[tuple[str, ...], ...],
        output: tuple[str, ...],
        free: Iterable[str] | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> str:
        """An operator of any kind, with a letter for each dimension of its inputs and its output."""
        self._new(name)
        every = {letter for labels in (*letters, output) for letter in labels} - {"1"}
        shapes = tuple(self._shape(x) for x in inputs)
        free = frozenset(every if free is None else free)
        self.operators[name] = Operator(
            name, kind, inputs, shapes, shape, letters, output, free, tuple((settings or {}).items())
        )
        self.shapes[name] = shape
        return name

    def _new(self, name: str) -> None:
        if not isinstance(name, str) or not name:
            raise LayoutError(f"the name of a tensor is a string; got {name!r}")
        if name in self.shapes:
            raise LayoutError(f"there is already a tensor named '{name}'")

    def _shape(self, name: str) -> tuple[int, ...]:
        if not isinstance(name, str) or name not in self.shapes:
            raise LayoutError(f"there is no tensor named '{name}'; {nearest_name(name, self.shapes)}")
        return self.shapes[name]

    @staticmethod
    def _axis(name: str, shape: tuple[int, ...], axis: int) -> int:
        if not isinstance(axis, int) or isinstance(axis, bool) or not -len(shape) <= axis < len(shape):
            raise LayoutError(f"{name}: there is no axis {axis!r} in shape {shape}")
        return axis % len(shape)

    def _with_largest(self, name: str, x: str, k: int) -> tuple[tuple[int, ...], tuple[str, ...]]:
        """The shape and letters of a tensor whose last axis has k elements or more."""
        shape = self._shape(x)
        if not shape or not 1 <= require_int(k, f"{name}: k is a whole number") <= shape[-1]:
            raise LayoutError(f"{name}: there are no {k!r} largest elements in the last axis of shape {shape}")
        return shape, in_order(len(shape))

    def _resized(self, name: str, kind: str, x: str, dim: int, size: int, settings: Mapping[str, Any]) -> str:
        shape = self._shape(x)
        letters = in_order(len(shape))
        row = tuple("c0" if i == dim else letter for i, letter in enumerate(letters))
        whole = (*shape[:dim], size, *shape[dim + 1 :])
        return self._along(name, kind, (x,), whole, [row], letters, dim, settings)

    def _along(
        self,
        name: str,
        kind: str,
        inputs: tuple[str, ...],
        whole: tuple[int, ...],
        rows: Sequence[tuple[str, ...]],
        letters: tuple[str, ...],
        dim: int,
        settings: Mapping[str, Any] | None = None,
    ) -> str:
        free = [letter for i, letter in enumerate(letters) if i != dim]
        return self.add_labelled(
            name, kind, inputs, whole, tuple(rows), letters, free, {"axis": dim, **(settings or {})}
        )


SAYS = Sentences(
    {
        "no such relation": "{name}: there is no relation {relation!r}; {advice}",
    }
)
"""The refusals of this chapter: a reason, and a sentence over its facts."""
