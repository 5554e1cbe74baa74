"""A program as a graph: tensors, operators between them, and strategies for some of the operators."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from inspect import signature
from math import prod
from typing import Any

import numpy as np

from lib.layout.errors import LayoutError
from lib.layout.layouts.checks import nearest_name, require_int, require_ints, require_itemsize
from lib.layout.layouts.device_matrix import DeviceMatrix
from lib.layout.layouts.pieces import Array

from .dimension_labels import in_order, of_einsum, of_reshape
from .distributed import distribute, strategy_of, with_out
from .operators import KINDS, Operator

Strategy = tuple[tuple[int, ...], ...]
"""A Sharding Strategy: the number of parts for each dimension of each input."""

Out = tuple[int, ...]
"""An out-strategy: the number of parts for each dimension of the output."""

LEADING_LETTERS = "bcdefgh"
DEVICES_WANTED = "a graph needs 1 device or more"


class Graph:
    """Operators in the order of the program, for `devices` devices or for a named `mesh`.

    Each method that adds an operator takes a name for it and the names of its inputs, and returns the name, which is
    also the name of its output.
    """

    def __init__(self, devices: int | None = None, mesh: DeviceMatrix | None = None, itemsize: int = 4) -> None:
        if (devices is None) == (mesh is None):
            raise LayoutError("a graph takes either a number of devices or a mesh: give exactly one of them")
        if devices is not None and require_int(devices, DEVICES_WANTED) < 1:
            raise LayoutError(f"{DEVICES_WANTED}; got {devices}")
        if mesh is not None and not isinstance(mesh, DeviceMatrix):
            raise LayoutError(f"a graph takes a mesh, such as mesh(data=2, model=4); got {mesh!r}")
        self.mesh = mesh
        self.devices = mesh.size if mesh is not None else int(devices or 1)
        self.itemsize = require_itemsize(itemsize)
        self.shapes: dict[str, tuple[int, ...]] = {}
        """Shapes of all tensors, sources and outputs."""
        self.sources: dict[str, str] = {}
        """Name to 'input' or 'parameter'."""
        self.operators: dict[str, Operator] = {}
        self.strategies: dict[str, Strategy] = {}
        """Strategies of the configured operators."""
        self.outs: dict[str, Out] = {}
        """Out-strategies of those that have one."""

    def input(self, name: str, shape: Sequence[int]) -> str:
        """A tensor that is given from outside."""
        return self._source(name, shape, "input")

    def parameter(self, name: str, shape: Sequence[int]) -> str:
        """A weight."""
        return self._source(name, shape, "parameter")

    def matmul(self, name: str, a: str, b: str, transpose_a: bool = False, transpose_b: bool = False) -> str:
        """a @ b: the same leading dimensions on both, or a matrix b for all of a's."""
        one, two = self._shape(a), self._shape(b)
        if len(one) < 2 or len(two) < 2 or len(two) not in (2, len(one)):
            raise LayoutError(f"{name}: a matmul takes a (..., m, k) and a (k, n) or (..., k, n); got {one} and {two}")
        m, k = one[-2:][::-1] if transpose_a else one[-2:]
        k2, n = two[-2:][::-1] if transpose_b else two[-2:]
        lead, lead2 = one[:-2], two[:-2]
        if k != k2 or (lead2 and lead != lead2):
            misfit = f"{k} columns meet {k2} rows" if k != k2 else f"the leading dimensions {lead} and {lead2} differ"
            flags = " transposed" if transpose_a or transpose_b else ""
            raise LayoutError(f"{name}: the shapes {one} and {two}{flags} do not fit: {misfit}")
        letters = tuple(LEADING_LETTERS[i] for i in range(len(lead)))
        left = letters + (("k", "m") if transpose_a else ("m", "k"))
        right = (letters if lead2 else ()) + (("n", "k") if transpose_b else ("k", "n"))
        settings = {"transpose_a": transpose_a, "transpose_b": transpose_b}
        return self._add(name, "matmul", (a, b), (*lead, m, n), (left, right), (*letters, "m", "n"), settings=settings)

    def add(self, name: str, a: str, b: str) -> str:
        """a + b, where b may lack leading dimensions or have dimensions of size 1."""
        one, two = self._shape(a), self._shape(b)
        aligned = one[len(one) - len(two) :]
        if len(two) > len(one) or any(m not in (1, n) for n, m in zip(aligned, two)):
            raise LayoutError(f"{name}: the shapes {one} and {two} do not fit: the second is broadcast to the first")
        letters = in_order(len(one))
        right = tuple("1" if m != n else x for x, n, m in zip(letters[len(one) - len(two) :], aligned, two))
        return self._add(name, "add", (a, b), one, (letters, right), letters)

    def relu(self, name: str, x: str) -> str:
        """max(x, 0)."""
        return self._elementwise(name, "relu", x)

    def gelu(self, name: str, x: str) -> str:
        """x times the normal distribution function of x (Hendrycks and Gimpel 2016)."""
        return self._elementwise(name, "gelu", x)

    def softmax(self, name: str, x: str, axis: int = -1) -> str:
        """Softmax along one axis, which stays whole."""
        shape = self._shape(x)
        dim = self._axis(name, shape, axis)
        letters = in_order(len(shape))
        free = [letter for i, letter in enumerate(letters) if i != dim]
        return self._add(name, "softmax", (x,), shape, (letters,), letters, free, {"axis": dim})

    def reduce_sum(self, name: str, x: str, axis: int) -> str:
        """The sum over one axis."""
        return self._reduce(name, "reduce_sum", x, axis)

    def reduce_mean(self, name: str, x: str, axis: int) -> str:
        """The mean over one axis."""
        return self._reduce(name, "reduce_mean", x, axis)

    def transpose(self, name: str, x: str, order: Sequence[int]) -> str:
        """Dimensions in another order."""
        shape, order = self._shape(x), require_ints(order, f"{name}: an order is a tuple of dimensions")
        if sorted(order) != list(range(len(shape))):
            raise LayoutError(f"{name}: {order} is no order of the {len(shape)} dimensions of shape {shape}")
        letters = in_order(len(shape))
        out = tuple(letters[i] for i in order)
        return self._add(
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
        return self._add(name, "reshape", (x,), after, (left,), right, free)

    def gather(self, name: str, table: str, rows: str) -> str:
        """Rows of a table of shape (v, e), such as an embedding; the row numbers may have any shape."""
        one, two = self._shape(table), self._shape(rows)
        if len(one) != 2:
            raise LayoutError(f"{name}: a gather takes a two-dimensional table; got {one}")
        letters = in_order(len(two))
        return self._add(name, "gather", (table, rows), (*two, one[1]), (("v", "e"), letters), (*letters, "e"))

    def einsum(self, name: str, *inputs: str, spec: str) -> str:
        """Products and sums in numpy.einsum's notation: einsum("hidden", "x", "w", spec="bd,df->bf")."""
        shapes = [self._shape(x) for x in inputs]
        left, right, sizes = of_einsum(name, spec, shapes)
        return self._add(name, "einsum", inputs, tuple(sizes[x] for x in right), left, right, settings={"spec": spec})

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

    def shard(self, name: str, strategy: Iterable[Iterable[int]], out: Iterable[int] | None = None) -> None:
        """Configures an operator with a Sharding Strategy: for each input, the number of parts of each dimension.

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
            with_out(base, out)
        self.strategies[name] = chosen
        self.outs.pop(name, None)
        if out is not None:
            self.outs[name] = out

    def operator_named(self, name: str) -> Operator:
        """The operator of this name.

        Raises:
            LayoutError: there is none; the message names the closest match.
        """
        if isinstance(name, str) and name in self.operators:
            return self.operators[name]
        raise LayoutError(f"there is no operator named '{name}' in this graph; {nearest_name(name, self.operators)}")

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
                raise LayoutError(f"no value was given for {self.sources[name]} '{name}' of shape {self.shapes[name]}")
            if np.shape(values[name]) != self.shapes[name]:
                raise LayoutError(
                    f"'{name}' has shape {self.shapes[name]}; the given value has {np.shape(values[name])}"
                )
        return list(self.sources)

    def _source(self, name: str, shape: Sequence[int], role: str) -> str:
        self._new(name)
        shape = require_ints(shape, f"{name}: a shape is a tuple of whole numbers")
        if not all(n >= 1 for n in shape):
            raise LayoutError(f"{name}: every dimension of a tensor is at least 1; got {shape}")
        self.shapes[name], self.sources[name] = shape, role
        return name

    def _elementwise(self, name: str, kind: str, x: str) -> str:
        letters = in_order(len(self._shape(x)))
        return self._add(name, kind, (x,), self._shape(x), (letters,), letters)

    def _reduce(self, name: str, kind: str, x: str, axis: int) -> str:
        shape = self._shape(x)
        dim = self._axis(name, shape, axis)
        letters = in_order(len(shape))
        rest = letters[:dim] + letters[dim + 1 :]
        return self._add(name, kind, (x,), shape[:dim] + shape[dim + 1 :], (letters,), rest, settings={"axis": dim})

    def _add(
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
        self._new(name)
        every = {letter for one in (*letters, output) for letter in one} - {"1"}
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


def require_graph(graph: Any) -> None:
    """Refuses to plan anything except a Graph."""
    if not isinstance(graph, Graph):
        raise LayoutError(f"only a Graph can be planned; got {graph!r}")
