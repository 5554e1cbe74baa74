"""Sharding Propagation by the breadth-first rule: from the configured operators outwards, the cheapest edge first.

Source: "Sharding Propagation", documentation of MindSpore 2.1; the order of visits and of costs is from MindSpore 2.10.
"""

from collections import deque
from collections.abc import Mapping, Sequence

from lib.layout.errors import LayoutError
from lib.layout.layouts.tensor_layout import TensorLayout
from lib.layout.program.candidates import beside_weight, candidates, source_layouts
from lib.layout.program.distributed import DistributedOperator, strategy_text
from lib.layout.program.graph import Graph, require_graph

from .decisions import CONFIGURED, OF_WEIGHT, Decision, Reached, decide
from .plan import GraphPlan


def propagate(graph: Graph, full: bool = True) -> GraphPlan:
    """The plan in which every operator is settled from neighbors that were settled before it.

    From one configured operator after the other, the rule goes breadth first, to consumers and producers. A producer,
    and a consumer with one input, are settled along the edge. A consumer with several inputs waits until all are
    settled, or until nothing else is left to visit. The strategy wins whose edges cost least; equal ones are told
    apart by what the operator costs itself (`decisions.compared`). Candidates use all devices or one, as with
    MindSpore's `fully_use_devices=True`, the default of 2.1; unless `full`, any number, the default of 2.10.

    Partial sums are all-reduced. Sources are stored in the layout that their first consumer needs. Where parts of the
    graph share only a source, the rule goes on through it: from the layout of an operator that takes it to the next
    operator that does.

    In a training step, a weight whose `w.new` is configured is stored like that. If its `w.state.new` or `w.update` is
    configured, its optimizer follows that; otherwise it is where the weight is.

    Raises:
        LayoutError: no operator is configured, or some operator is not connected to a configured one.
    """
    require_graph(graph)
    if not graph.strategies:
        raise LayoutError("no operator is configured; give one a strategy with graph.shard(name, strategy)")
    optimizer = graph.step.weights if graph.step else {}
    visits = _Visits(graph, full, optimizer)
    for name in [name for name in graph.operators if name in visits.settled]:
        visits.start(name)
    while visits.through_a_source():
        pass
    settled, decisions = visits.settled, visits.decisions
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


class _Visits:
    """The operators of a graph but for the optimizer's, as the rule settles them; the configured ones are settled."""

    def __init__(self, graph: Graph, full: bool, optimizer: Mapping[str, str]) -> None:
        self.graph, self.full, self.optimizer = graph, full, optimizer
        self.settled: dict[str, DistributedOperator] = {}
        self.decisions: dict[str, Decision] = {}
        self.waiting: set[str] = set()
        """Consumers with several inputs of which at least one is settled."""
        for name in graph.operators:
            if name in graph.strategies and name not in optimizer:
                self.settled[name] = candidates(graph, graph.operators[name], scatter=False)[0]
                self.decisions[name] = Decision(name, CONFIGURED)

    def start(self, name: str) -> None:
        """Visits all that an operator leads to."""
        queue = deque([name])
        while queue or self.waiting:
            if not queue:
                first = next(name for name in self.graph.operators if name in self.waiting)
                self._settle(first, self._from_inputs(first), queue)
                continue
            here = self.graph.operators[queue.popleft()]
            for consumer, _ in reversed(self.graph.consumers(here.name)):
                if consumer.name in self.settled or consumer.name in self.optimizer:
                    continue
                reached = self._from_inputs(consumer.name)
                if len(reached) == len(consumer.inputs):
                    self._settle(consumer.name, reached, queue)
                else:
                    self.waiting.add(consumer.name)
            for place, name in enumerate(here.inputs):
                if name in self.graph.operators and name not in self.settled:
                    needed = self.settled[here.name].inputs[place]
                    self._settle(name, [Reached(here.name, name, needed, None)], queue)

    def through_a_source(self) -> bool:
        """Goes on at one operator that shares a source with a settled one; False if there is none."""
        for source in self.graph.sources:
            takers = self.graph.consumers(source)
            given = [self.settled[op.name].inputs[place] for op, place in takers if op.name in self.settled]
            for op, place in takers if given else ():
                if op.name not in self.settled and op.name not in self.optimizer:
                    self._settle(op.name, [Reached(source, source, given[0], place)], deque())
                    self.start(op.name)
                    return True
        return False

    def _from_inputs(self, name: str) -> list[Reached]:
        """The edges from the settled operators whose outputs an operator takes."""
        inputs = enumerate(self.graph.operators[name].inputs)
        return [Reached(x, x, self.settled[x].output, place) for place, x in inputs if x in self.settled]

    def _settle(self, name: str, reached: Sequence[Reached], queue: deque[str]) -> None:
        self.settled[name], self.decisions[name] = decide(self.graph, name, reached, self.full)
        self.waiting.discard(name)
        queue.append(name)


def _optimizer(
    graph: Graph, settled: dict[str, DistributedOperator], name: str, home: TensorLayout
) -> DistributedOperator:
    """An operator of the optimizer: as the weight is stored, or as that weight's optimizer is configured."""
    assert graph.step is not None
    weight = graph.step.weights[name]
    stores = graph.step.replaces.get(name) == weight
    configured = [x for x, owner in graph.step.weights.items() if owner == weight and x in graph.strategies]
    configured = [x for x in configured if graph.step.replaces.get(x) != weight]
    if stores or not configured:
        return beside_weight(graph.operators[name], home)
    first = name if name in configured else configured[0]
    return beside_weight(graph.operators[name], _as_configured(graph, settled, first, home))


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


def storage_layouts(graph: Graph, operators: dict[str, DistributedOperator]) -> dict[str, TensorLayout]:
    """Every source as it is pinned, or in the layout that its first consumer needs; an unused one on every device."""
    layouts = {}
    for name in graph.sources:
        takers = graph.consumers(name)
        if name in graph.pins:
            layouts[name] = graph.pins[name]
            continue
        if takers and takers[0][0].name not in operators:
            continue  # the state of an optimizer that is not settled yet
        if takers:
            operator, place = takers[0]
            layouts[name] = operators[operator.name].inputs[place]
        else:
            shape = graph.shapes[name]
            first = next(iter(operators.values())).local.matrix
            layouts[name] = TensorLayout(shape, first, ((),) * len(shape))
    return layouts
