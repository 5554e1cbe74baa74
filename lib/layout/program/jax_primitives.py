"""By primitive of JAX: the operators that stand for it. Settings are as in jax 0.10.

Recognized as one operator: a softmax, a mean, silu, relu, and the rows of a table.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from .jax_rows import behind, gathered, is_same_row, largest, mean_of, scattered, sliced, softmax_of
from .jax_values import Importer, Known, NoOperatorError, TensorView, Value
from .on_arrays import RELATIONS

Settings = dict[str, Any]
Handler = Callable[[Importer, Settings, list[Value]], Value | list[Value]]

CALLS = (
    "jit", "pjit", "closed_call", "core_call", "custom_jvp_call", "custom_vjp_call", "custom_vjp_call_jaxpr",
    "remat", "remat2", "checkpoint",
)  # fmt: skip
"""Primitives that call a jaxpr; it becomes part of the graph."""

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
    part = TensorView.whole(importer.plain(inputs[0]), inputs[0].shape)
    for axis, (start, stop) in enumerate(zip(settings["start_indices"], settings["limit_indices"])):
        if (start, stop) != (0, part.shape[axis]):
            part = importer.add("slice", part.name, axis=axis, start=int(start), stop=int(stop))
    return part


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
