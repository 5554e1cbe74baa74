"""A training step as a graph: forward, backward, gradients of the weights, and the optimizer's update.

Backward is what reverse-mode differentiation adds (Linnainmaa 1970). Every tensor of it is an ordinary tensor of the
graph, so a planner chooses its layout as well. Data parallelism, the stages of ZeRO (Rajbhandari et al. 2020), tensor
and sequence parallelism are plans of such a graph.
"""

from collections import Counter
from collections.abc import Mapping

from lib.layout.errors import LayoutError
from lib.layout.layouts.checks import nearest_name

from ..words import SAYS
from .gradients import add_gradient
from .graph import Graph, TrainingStep, require_graph

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
    if graph.step is not None:
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
