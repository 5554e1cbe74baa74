"""A program under construction: sources, and a method for each kind of operator that adds one.

Each method takes a name for the operator and the names of its inputs, and returns the name, which is also the name of
its output.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from inspect import signature
from typing import Any

from lib.layout.errors import LayoutError
from lib.layout.layouts.checks import nearest_name, require_ints

from ..words import SAYS
from .on_arrays import RELATIONS
from .operators import KINDS, Operator, in_order, of_einsum

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
        free = [letter for i, letter in enumerate(letters) if i != dim]
        return self.add_labelled(name, "softmax", (x,), shape, (letters,), letters, free, {"axis": dim})

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

    def state(self, name: str, shape: Sequence[int]) -> str:
        """A tensor of the optimizer that lasts from step to step."""
        return self._source(name, shape, "state")

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
