"""Groups of JAX's primitives that are one operator here: a mean, a softmax, and row numbers counted from the end."""

from .jax_values import Importer, Known, TensorView, Value
from .operators import Operator


def mean_of(importer: Importer, total: Value, count: Value) -> Value | None:
    """reduce_sum / n, if n is the number of elements along that axis."""
    op = importer.operator(total)
    if op is None or op.kind != "reduce_sum" or not isinstance(count, Known) or not isinstance(total, TensorView):
        return None
    axis = dict(op.settings)["axis"]
    if count.scalar != op.input_shapes[0][axis]:
        return None
    made = importer.add("reduce_mean", op.inputs[0], axis=axis)
    return TensorView(made.name, total.shape, total.dims)


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
