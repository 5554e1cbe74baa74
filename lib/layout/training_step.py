"""A training step as a graph: forward, backward, gradients of the weights, and the optimizer's update.

Backward is what reverse-mode differentiation adds (Linnainmaa 1970). Every tensor of it is an ordinary tensor of the
graph, so a planner chooses its layout as well. Data parallelism, the stages of ZeRO (Rajbhandari et al. 2020), tensor
and sequence parallelism are plans of such a graph; none of them is built in.

Where its tensors are is left to the planners, as for any graph. A kind without a gradient is refused by name.
"""

from collections import Counter
from collections.abc import Callable, Mapping

from lib.errors import Sentences
from lib.layout.graph import Graph, TrainingStep, require_graph
from lib.layout.layouts import LayoutError, nearest_name
from lib.layout.operators import SLOPE, Operator

# --- Gradients of operators: for each kind, the operators that compute the gradients of its inputs ---

Gradient = Callable[[Graph, Operator, str, int, str], str]
"""Adds the gradient of input number `place`, given the output's gradient: (graph, operator, slope, place, name)."""


INDEX = {"gather": 1, "scatter": 1, "select": 2}
"""The input of a kind that says which elements it takes; it has no gradient."""


def add_gradient(graph: Graph, op: Operator, slope: str, place: int, name: str) -> str:
    """Adds the gradient of an operator's input, called `name`, to the graph; returns the tensor that has it."""
    rule = GRADIENTS.get(op.kind)
    if rule is None or place == INDEX.get(op.kind):
        raise LayoutError(SAYS("no gradient", name=op.name, kind=op.kind, tensor=op.inputs[place]))
    return rule(graph, op, slope, place, name)


def _of_product(graph: Graph, op: Operator, slope: str, place: int, name: str) -> str:
    """The product of the output's gradient and all other inputs, summed to the letters of this one."""
    others = [i for i in range(len(op.inputs)) if i != place]
    wanted = op.input_letters[place]
    rows = [op.output_letters, *(op.input_letters[i] for i in others)]
    known = {letter for row in rows for letter in row}
    given = [letter for letter in wanted if letter in known]
    spec = f"{','.join(map(''.join, rows))}->{''.join(given)}"
    grad = graph.einsum(
        name if len(given) == len(wanted) else f"{name}.sum", slope, *(op.inputs[i] for i in others), spec=spec
    )
    for dim, letter in enumerate(wanted):
        if letter not in known:  # summed alone: its gradient is the same everywhere
            given.insert(dim, letter)
            last = len(given) == len(wanted)
            size = op.input_shapes[place][dim]
            grad = graph.repeat(name if last else f"{name}.{letter}", grad, dim, size)
    return grad


def _reduced(graph: Graph, op: Operator, slope: str, place: int, name: str) -> str:
    """The gradient of a broadcast input: summed over the dimensions that it lacks or has only once."""
    letters = op.input_letters[place]
    if letters == op.output_letters:
        return slope
    kept = "".join(letter for letter in letters if letter != "1")
    alone = "1" not in letters
    summed = graph.einsum(name if alone else f"{name}.sum", slope, spec=f"{''.join(op.output_letters)}->{kept}")
    return summed if alone else graph.reshape(name, summed, op.input_shapes[place])


def _of_multiply(graph: Graph, op: Operator, slope: str, place: int, name: str) -> str:
    if place == 0:
        return graph.multiply(name, slope, op.inputs[1])
    whole = op.input_letters[1] == op.output_letters
    product = graph.multiply(name if whole else f"{name}.product", slope, op.inputs[0])
    return _reduced(graph, op, product, 1, name)


def _of_divide(graph: Graph, op: Operator, slope: str, place: int, name: str) -> str:
    if place == 0:
        return graph.divide(name, slope, op.inputs[1])
    product = graph.divide(f"{name}.quotient", graph.multiply(f"{name}.product", slope, op.name), op.inputs[1])
    return graph.negative(name, _reduced(graph, op, product, 1, f"{name}.minus"))


def _of_select(graph: Graph, op: Operator, slope: str, place: int, name: str) -> str:
    chosen = graph.multiply(name if place == 0 else f"{name}.chosen", slope, op.inputs[2])
    return chosen if place == 0 else _reduced(graph, op, graph.subtract(f"{name}.other", slope, chosen), 1, name)


def _of_slope(graph: Graph, op: Operator, slope: str, place: int, name: str) -> str:
    kept = op.name if op.kind == "softmax" or SLOPE[op.kind][0] == "output" else op.inputs[0]
    return graph.add_operator(name, f"{op.kind}_grad", (slope, kept), op)


def _of_sum(graph: Graph, op: Operator, slope: str, place: int, name: str) -> str:
    axis = dict(op.settings)["axis"]
    size = op.input_shapes[0][axis]
    return graph.repeat(name, slope, axis, size, 1 / size if op.kind == "reduce_mean" else 1.0)


def _of_repeat(graph: Graph, op: Operator, slope: str, place: int, name: str) -> str:
    settings = dict(op.settings)
    if settings["scale"] == 1.0:
        return graph.reduce_sum(name, slope, settings["axis"])
    raise LayoutError(f"'{op.name}': the gradient of a repeat with a scale is not supported")


def _of_transpose(graph: Graph, op: Operator, slope: str, place: int, name: str) -> str:
    order = dict(op.settings)["order"]
    return graph.transpose(name, slope, tuple(order.index(dim) for dim in range(len(order))))


def _of_part(graph: Graph, op: Operator, slope: str, place: int, name: str) -> str:
    """Of a slice the gradient is padded, of a pad or a concat it is sliced."""
    settings, axis = dict(op.settings), dict(op.settings)["axis"]
    size = op.input_shapes[place][axis]
    if op.kind == "slice":
        return graph.pad(name, slope, axis, settings["start"], size - settings["stop"])
    start = settings.get("before", sum(shape[axis] for shape in op.input_shapes[:place]))
    return graph.slice(name, slope, axis, start, start + size)


GRADIENTS: Mapping[str, Gradient] = {
    **dict.fromkeys(("matmul", "einsum"), _of_product),
    **dict.fromkeys(("reduce_sum", "reduce_mean"), _of_sum),
    **dict.fromkeys(("slice", "pad", "concat"), _of_part),
    **dict.fromkeys(("softmax", *SLOPE), _of_slope),
    "add": _reduced,
    "subtract": lambda graph, op, slope, place, name: (
        graph.negative(name, _reduced(graph, op, slope, place, f"{name}.minus")) if place else slope
    ),
    "multiply": _of_multiply,
    "divide": _of_divide,
    "select": _of_select,
    "negative": lambda graph, op, slope, place, name: graph.negative(name, slope),
    "repeat": _of_repeat,
    "reshape": lambda graph, op, slope, place, name: graph.reshape(name, slope, op.input_shapes[0]),
    "transpose": _of_transpose,
    "gather": lambda graph, op, slope, place, name: graph.scatter(name, slope, op.inputs[1], op.input_shapes[0][0]),
    "scatter": lambda graph, op, slope, place, name: graph.gather(name, slope, op.inputs[1]),
}
"""Kinds whose gradient is made of operators that a program may have, or of one of its own."""


# --- The step ---

MOMENTS: Mapping[str, int] = {"sgd": 0, "momentum": 1, "adam": 2}
"""By optimizer: the tensors of the weight's size that it keeps as state."""


def training(graph: Graph, optimizer: str = "adam") -> Graph:
    """The graph of a full training step: its forward is `graph`, with the strategies that are configured there.

    The loss is half the squared distance of the only result from a new input, `<result>.target`. Further tensors, for
    a weight `w`: the gradient `w.grad`, the optimizer's state `w.state` of shape (moments, *shape), its new value
    `w.state.new`, the updated weight `w.update`, and `w.new`, which is stored where the weight is. The gradient of any
    other tensor `x` is `x.grad`. A plan's memory counts the sources (weights, states, inputs), the gradients of
    weights, and the outputs of forward that backward uses.

    Raises:
        LayoutError: the graph has no weight or several results, is a training step already, or has an operator
            without a gradient; or there is no such optimizer.
    """
    require_graph(graph)
    if graph.step:
        raise LayoutError("this graph is a training step already; call training with the graph of the forward program")
    if not isinstance(optimizer, str) or optimizer not in MOMENTS:
        raise LayoutError(f"there is no optimizer {optimizer!r}; {nearest_name(optimizer, MOMENTS)}")
    step = graph.copied()
    results = [name for name in graph.operators if not graph.consumers(name)]
    if len(results) != 1:
        names = ", ".join(map(repr, results)) or "none"
        raise LayoutError(f"a program that is trained has one result; this one has {len(results)}: {names}")
    gradients = _backward(step, results[0])
    if not gradients:
        raise LayoutError(SAYS("no parameter", result=results[0]))
    replaces: dict[str, str] = {}
    weights: dict[str, str] = {}
    for weight, grad in gradients.items():
        _optimize(step, weight, grad, MOMENTS[optimizer], replaces, weights)
    backward = [op for name, op in step.operators.items() if name not in graph.operators]
    used = frozenset(name for op in backward for name in op.inputs if name in graph.operators)
    step.step = TrainingStep(
        optimizer, f"{results[0]}.target", frozenset(graph.operators), used, gradients, replaces, weights
    )
    return step


def _backward(step: Graph, result: str) -> dict[str, str]:
    trained = {name for name, role in step.sources.items() if role == "parameter"}
    forward = list(step.operators.values())
    for op in forward:
        if trained & set(op.inputs):
            trained.add(op.name)
    if result not in trained:
        return {}
    target = step.input(f"{result}.target", step.shapes[result])
    slopes = {result: step.subtract(f"{result}.grad", result, target)}
    missing = Counter(name for op in forward if op.name in trained for name in op.inputs if name in trained)
    shared = {name for name, times in missing.items() if times > 1}
    for op in reversed(forward):
        for place, name in enumerate(op.inputs):
            if op.name not in trained or name not in trained:
                continue
            missing[name] -= 1
            place_name = f".{place}" if op.inputs.count(name) > 1 else ""
            share_name = f"{name}.grad.{op.name}{place_name}" if name in shared else f"{name}.grad"
            share = add_gradient(step, op, slopes[op.name], place, share_name)
            if name in slopes:
                total = f"{name}.grad.sum{missing[name]}" if missing[name] else f"{name}.grad"
                share = step.add(total, slopes[name], share)
            slopes[name] = share
    return {name: slopes[name] for name, role in step.sources.items() if role == "parameter" and name in slopes}


def _optimize(
    step: Graph, weight: str, grad: str, moments: int, replaces: dict[str, str], weights: dict[str, str]
) -> None:
    letters = tuple("ijlmnopq"[: len(step.shapes[weight])])
    by, row = grad, letters
    if moments:
        by, row = f"{weight}.state.new", ("s", *letters)
        state = step.state(f"{weight}.state", (moments, *step.shapes[weight]))
        step.add_labelled(by, "moments", (state, grad), step.shapes[state], (row, letters), row, letters)
        replaces[by] = state
        weights[by] = weight
    shape = step.shapes[weight]
    step.add_labelled(f"{weight}.update", "update", (weight, by), shape, (letters, row), letters, letters)
    step.add_labelled(f"{weight}.new", "store", (f"{weight}.update",), shape, (letters,), letters, letters)
    replaces[f"{weight}.new"] = weight
    weights.update({f"{weight}.update": weight, f"{weight}.new": weight})


SAYS = Sentences(
    {
        "no gradient": "'{name}': {kind} has no gradient for '{tensor}', which is computed from weights",
        "no parameter": "'{result}' depends on no parameter; add one with graph.parameter(name, shape)",
    }
)
"""The refusals of this chapter: a reason, and a sentence over its facts."""
