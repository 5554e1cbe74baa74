"""Sharding Propagation by the breadth-first rule: from the configured operators outwards, the cheapest edge first.

Source: "Sharding Propagation", documentation of MindSpore 2.1.
"""

from collections import deque

from lib.layout.errors import LayoutError
from lib.layout.layouts.tensor_layout import TensorLayout
from lib.layout.program.candidates import beside_weight, candidates, source_layouts
from lib.layout.program.distributed import DistributedOperator, strategy_text
from lib.layout.program.graph import Graph, require_graph
from lib.layout.program.operators import Operator

from .decisions import CONFIGURED, OF_WEIGHT, Decision, Reached, decide
from .plan import GraphPlan


def propagate(graph: Graph, full: bool | None = None) -> GraphPlan:
    """The plan in which every operator is settled from a neighbor that was settled before it.

    For each operator, the strategy whose redistribution on that edge moves the fewest bytes is chosen. Ties are broken
    by less computation, then less memory for the operator, then order. Partial sums are all-reduced. Sources are stored
    in the layout that their first consumer needs. Where parts of the graph share only a source, the rule goes on
    through it: from the layout of an operator that takes it to the next operator that does.

    With `full` the rule ranks strategies as MindSpore 2.10 does (`mindspore.rank`): with True candidates use all
    devices or one, as with its `fully_use_devices=True`, the default of 2.1; with False any number, as in 2.10.

    In a training step, a weight whose `w.new` is configured is stored like that. If its `w.state.new` or `w.update` is
    configured, its optimizer follows that; otherwise it is where the weight is.

    Raises:
        LayoutError: no operator is configured, or some operator is not connected to a configured one.
    """
    require_graph(graph)
    if not graph.strategies:
        raise LayoutError("no operator is configured; give one a strategy with graph.shard(name, strategy)")
    settled: dict[str, DistributedOperator] = {}
    decisions: dict[str, Decision] = {}
    optimizer = graph.step.weights if graph.step else {}
    queue = deque(name for name in graph.operators if name in graph.strategies and name not in optimizer)
    for name in queue:
        settled[name] = candidates(graph, graph.operators[name], scatter=False)[0]
        decisions[name] = Decision(name, CONFIGURED)
    while queue or _pass_source(graph, settled, decisions, queue, full):
        here = graph.operators[queue.popleft()]
        producers = [(name, here, place) for place, name in enumerate(here.inputs) if name in graph.operators]
        consumers = [(op.name, op, place) for op, place in graph.consumers(here.name)]
        if full is not None:
            consumers.reverse()  # MindSpore goes to the last consumer first
        for name, consumer, place in producers + consumers:
            if name not in settled and name not in optimizer:
                reached = _from_operator(settled[here.name], name, consumer, place)
                settled[name], decisions[name] = decide(graph, name, reached, full)
                queue.append(name)
    for name in graph.operators:
        if name not in settled and name not in optimizer:
            raise LayoutError(f"'{name}' is not connected to a configured operator; configure it or a neighbor")
    stored = storage_layouts(graph, settled)
    if graph.step is not None:
        for new, source in graph.step.replaces.items():
            if new in graph.strategies and source in stored:
                stored[source] = _as_configured(graph, settled, new, stored[source])
    for name, weight in optimizer.items():
        settled[name] = _optimizer(graph, settled, name, stored[weight])
        decisions[name] = Decision(name, CONFIGURED if name in graph.strategies else OF_WEIGHT)
    stored = storage_layouts(graph, settled) | stored
    return GraphPlan(graph, {name: settled[name] for name in graph.operators}, stored, decisions=decisions)


def _optimizer(
    graph: Graph, settled: dict[str, DistributedOperator], name: str, home: TensorLayout
) -> DistributedOperator:
    """An operator of the optimizer: as the weight is stored, or as that weight's optimizer is configured."""
    assert graph.step is not None
    weight = graph.step.weights[name]
    stores = graph.step.replaces.get(name) == weight
    mine = [x for x, owner in graph.step.weights.items() if owner == weight and x in graph.strategies]
    mine = [x for x in mine if graph.step.replaces.get(x) != weight]
    if stores or not mine:
        return beside_weight(graph.operators[name], home)
    return beside_weight(graph.operators[name], _as_configured(graph, settled, name if name in mine else mine[0], home))


def _as_configured(
    graph: Graph, settled: dict[str, DistributedOperator], name: str, home: TensorLayout
) -> TensorLayout:
    """The layout of a weight with which an operator of its optimizer has its strategy.

    If possible, the layout in which the first operator needs it, or the layout of its gradient.
    """
    assert graph.step is not None
    gradient = settled[graph.step.gradients[graph.step.weights[name]]].output
    layouts = (home, gradient, *source_layouts(home.shape, graph))
    beside = {beside_weight(graph.operators[name], layout).strategy: layout for layout in reversed(layouts)}
    strategy = graph.strategies[name]
    if strategy not in beside:
        raise LayoutError(f"{name}: no layout of the weight has the strategy {strategy_text(strategy)}")
    return beside[strategy]


def _pass_source(
    graph: Graph,
    settled: dict[str, DistributedOperator],
    decisions: dict[str, Decision],
    queue: deque[str],
    full: bool | None,
) -> bool:
    """Settles and queues one operator that shares a source with a settled one; False if there is none."""
    for source in graph.sources:
        takers = graph.consumers(source)
        given = [settled[op.name].inputs[place] for op, place in takers if op.name in settled]
        for op, place in takers if given else ():
            if op.name not in settled:
                reached = Reached(source, source, given[0], place)
                settled[op.name], decisions[op.name] = decide(graph, op.name, reached, full)
                queue.append(op.name)
                return True
    return False


def storage_layouts(graph: Graph, operators: dict[str, DistributedOperator]) -> dict[str, TensorLayout]:
    """Every source as it is pinned, or in the layout that its first consumer needs; an unused one on every device."""
    found = {}
    for name in graph.sources:
        takers = graph.consumers(name)
        if name in graph.pins:
            found[name] = graph.pins[name]
            continue
        if takers and takers[0][0].name not in operators:
            continue  # the state of an optimizer that is not settled yet
        if takers:
            operator, place = takers[0]
            found[name] = operators[operator.name].inputs[place]
        else:
            shape = graph.shapes[name]
            first = next(iter(operators.values())).local.matrix
            found[name] = TensorLayout(shape, first, ((),) * len(shape))
    return found


def _from_operator(settled: DistributedOperator, name: str, consumer: Operator, place: int) -> Reached:
    """The edge from a settled operator to `name`, which is the consumer or computes what the settled one takes."""
    neighbor, tensor = settled.operator.name, consumer.inputs[place]
    if consumer.name == name:
        return Reached(neighbor, tensor, settled.output, place)
    return Reached(neighbor, tensor, settled.inputs[place], None)
