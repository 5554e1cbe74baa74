"""Sharding Propagation: from the configured operators outwards, the cheapest edge first, and why each won.

Sources: "Sharding Propagation", documentation of MindSpore 2.1; the order of visits and of costs is from MindSpore
2.10. The rule is greedy, as MindSpore's is; `exact` shows what it misses.

The figures of the plan are left to `plans`. Rejected: ranking edges by the fewest bytes that can move. It would often
be cheaper, but it would not be MindSpore's choice, with which it is compared (docs/mindspore.md).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from math import prod
from typing import NamedTuple

from lib.layout.graph import (
    DistributedOperator,
    Graph,
    arrange,
    beside_weight,
    candidates,
    require_graph,
    source_layouts,
    strategy_text,
)
from lib.layout.layouts import DeviceMatrix, LayoutError, TensorLayout, blocks_of, common_shape, respelled
from lib.layout.operators import BINARY, UNARY
from lib.layout.plans import CONFIGURED, OF_WEIGHT, Decision, GraphPlan, Reached

# --- MindSpore's cost model: what an edge between two layouts costs, and what an operator costs by itself ---
#
# Read from its source (`edge_costmodel.cc`, `tensor_redistribution.cc`, `operator_costmodel.cc`) and compared with its
# choices (docs/mindspore.md). Its redistribution gathers and slices: no all-to-all, and no exchange of exactly what is
# missing. So propagation ranks edges by these sequences, although a plan's edges move the fewest bytes.

SHORT, SHORT_COSTS, START = 2048, 3072, 1024
"""Bytes of a message up to which all cost the same, what these cost, and what a longer one costs besides its bytes."""

Parts = tuple[int | None, ...]
"""For each part of a tensor's dimensions, the axis that splits it."""


class Cost(NamedTuple):
    """Bytes that a device sends, in forward and backward, and bytes that it copies or reads."""

    communication: float
    computation: float


def operator_cost(way: DistributedOperator, itemsize: int) -> Cost:
    """The all-reduce of an operator's own sums; and its pieces of the inputs, with the sums.

    A byte less each if the first dimension is split over all devices: MindSpore prefers data parallelism.
    """
    summed = way.local.elements * itemsize if way.local.partial else 0
    read = sum(layout.elements for layout in way.inputs) * itemsize
    read += summed * (2 if way.operator.kind == "reduce_mean" else 1)
    first = way.inputs[0]
    less = int(bool(first.splits) and first.splits[0] == first.matrix.size)
    return Cost(_message(summed - less if summed else 0), read - less)


@lru_cache(maxsize=65536)
def redistribution_cost(source: TensorLayout, target: TensorLayout, itemsize: int) -> Cost:
    """What it costs to gather and slice pieces until the target's layout is reached.

    Each step is counted for pieces of the source, also where earlier steps have changed their size.
    """
    have, want, sizes = _on_common_parts(source, target)
    steps = list(_steps(have, want, sizes))
    piece = source.elements * itemsize
    gathers = [(part, size) for part, size, gathered in steps if gathered]
    copies = len(steps) - len(gathers)
    copies += sum(1 if part == 0 else 1 + 2 * size for part, size in gathers)  # other parts are gathered as rows first
    if steps and len(have) > len(source.shape):
        copies += 2  # the tensor is reshaped to its parts, and back
    forward, backward = piece * sum(size for _, size in gathers) / 2, piece * len(gathers) / 2
    return Cost(_message(forward) + _message(backward), piece * copies)


def _message(length: float) -> float:
    if length > SHORT:
        return length + START
    return SHORT_COSTS if length else 0


def _steps(have: Parts, want: Parts, sizes: tuple[int, ...]) -> Iterator[tuple[int, int, bool]]:
    """The part, the size of the axis, and whether it is gathered there or sliced, until all parts are as wanted.

    Slices by an axis that is free come first. An axis that splits another part is gathered there. Then follow gathers
    of axes that are not wanted; if there is none, the first part is gathered.
    """
    now = list(have)
    while now != list(want):
        open_parts = [part for part, axis in enumerate(now) if axis != want[part]]
        sliced = [part for part in open_parts if now[part] is None and want[part] not in now]
        moved = [part for part in open_parts if now[part] is None and want[part] in now]
        unused = [part for part in open_parts if now[part] is not None and now[part] not in want]
        if sliced or moved:
            part = (sliced or moved)[0]
            axis = want[part]
            assert axis is not None
            if moved and not sliced:
                there = now.index(axis)
                yield there, sizes[axis], True
                now[there] = None
            yield part, sizes[axis], False
            now[part] = axis
            continue
        part = (unused or open_parts)[0]
        gathered = now[part]
        assert gathered is not None
        yield part, sizes[gathered], True
        now[part] = None


def _on_common_parts(source: TensorLayout, target: TensorLayout) -> tuple[Parts, Parts, tuple[int, ...]]:
    """Both layouts on the coarsest matrix, and the coarsest parts of dimensions, such that an axis splits each part.

    Without such a matrix, their axes have nothing in common.
    """
    sizes = common_shape([source.matrix, target.matrix])
    while sizes is not None:
        matrix = DeviceMatrix(sizes, source.matrix.devices)
        starts = [
            [_starts(axes, sizes) for axes in respelled(layout, matrix).tensor_map] for layout in (source, target)
        ]
        cuts = [sorted({*source_starts, *target_starts}) for source_starts, target_starts in zip(*starts)]
        inside = [
            (axis, start, cut)
            for by_dim in starts
            for begins, dim_cuts in zip(by_dim, cuts)
            for start, axis in begins.items()
            for cut in dim_cuts
            if axis is not None and start < cut < start * sizes[axis]
        ]
        if not inside:
            have, want = (
                tuple(
                    begins.get(cut)
                    for begins, dim_cuts in zip(by_dim, cuts)
                    for cut in dim_cuts[: max(1, len(dim_cuts) - 1)]
                )
                for by_dim in starts
            )
            return have, want, sizes
        if any(cut % start or start * sizes[axis] % cut for axis, start, cut in inside):
            break
        blocks = blocks_of(sizes)
        finer = {blocks[axis] // (cut // start) for axis, start, cut in inside}
        sizes = tuple(a // b for a, b in pairwise(sorted({*blocks, *finer}, reverse=True)))
    gathered = [axis for axes in source.tensor_map for axis in axes]
    sliced = [axis + len(source.matrix.shape) for axes in target.tensor_map for axis in axes]
    have, want = (*gathered, *(None for _ in sliced)), (*(None for _ in gathered), *sliced)
    return have, want, source.matrix.shape + target.matrix.shape


def _starts(axes: tuple[int, ...], sizes: tuple[int, ...]) -> dict[int, int | None]:
    """The axes that split a dimension, each by the number of pieces before it; and where the last one ends."""
    return {prod(sizes[axis] for axis in axes[:i]): axis for i, axis in enumerate(axes)} | {
        prod(sizes[axis] for axis in axes): None
    }


# --- Why an operator of a plan has its layout: the decision that settled it, and the candidates with their costs ---

CRITERIA = {
    "communication": "least communication",
    "copying": "least copying",
    "computation": "least computation",
    "sums": "least all-reduced",
    "parts": "most parts",
    "order": "first",
}
"""What the rule compares, and what it says of the candidate that wins by it."""
ALONG_AN_EDGE = ("communication", "copying", "sums", "parts", "order")
FROM_ITS_INPUTS = ("communication", "copying", "computation", "sums", "order")
"""What it compares, in this order, for an operator that an edge reaches, and for one that waited for its inputs."""


class Candidate(NamedTuple):
    """A way to distribute an operator, and what the rule compares."""

    choice: DistributedOperator
    edges: Cost
    """Of the edges by which the operator was reached."""
    own: Cost
    """Of the operator by itself."""
    rank: tuple[tuple[float, ...], ...]
    """The smaller, the better."""


def compared(graph: Graph, name: str, reached: Sequence[Reached], full: bool = True) -> list[Candidate]:
    """The ways to distribute an operator, with what each costs on those edges; partial sums are all-reduced."""
    compares = compares_of(graph, name, reached)
    costed = []
    for choice in _ways(graph, name, reached, full):
        ends = (
            (choice.output, edge.known) if edge.place is None else (edge.known, choice.inputs[edge.place])
            for edge in reached
        )
        costs = [redistribution_cost(*pair, graph.itemsize) for pair in ends]
        edges = Cost(sum(cost.communication for cost in costs), sum(cost.computation for cost in costs))
        own = operator_cost(choice, graph.itemsize)
        costed.append(Candidate(choice, edges, own, _rank(choice, edges, own, compares)))
    return costed


def _ways(graph: Graph, name: str, reached: Sequence[Reached], full: bool) -> list[DistributedOperator]:
    """With `full` the candidates that use all devices or one, otherwise any number.

    An operator on single elements may also keep the layout of a neighbor, on the same device matrix; of several inputs,
    if all have it.
    """
    operator = graph.operators[name]
    used = (1, graph.devices) if full else range(1, graph.devices + 1)
    ways = candidates(graph, operator, scatter=False, used=used)
    known, *others = (edge.known for edge in reached)
    keeps = operator.kind in UNARY or (operator.kind in BINARY and len(reached) == len(operator.inputs))
    if not keeps or graph.mesh is not None or name in graph.pins or any(layout != known for layout in others):
        return ways
    split = {letter: axes for letter, axes in zip(operator.output_letters, known.tensor_map) if axes}
    if known.shape != operator.output_shape or not operator.free.issuperset(split):
        return ways
    (same,) = arrange(operator, known.matrix, split)
    is_new = same not in ways and same.strategy in [way.strategy for way in ways]
    return [*ways, same] if is_new else ways


def compares_of(graph: Graph, name: str, reached: Sequence[Reached]) -> tuple[str, ...]:
    """What the rule compares for an operator that is reached by these edges."""
    waited = reached[0].place is not None and len(graph.operators[name].inputs) > 1
    return FROM_ITS_INPUTS if waited else ALONG_AN_EDGE


def _rank(
    choice: DistributedOperator, edges: Cost, own: Cost, compares: tuple[str, ...]
) -> tuple[tuple[float, ...], ...]:
    """Where all else is equal, more parts of the first dimensions win along an edge, and fewer parts otherwise."""
    parts = tuple(n for splits in choice.strategy for n in splits)
    costs: dict[str, tuple[float, ...]] = {
        "communication": (edges.communication,),
        "copying": (edges.computation,),
        "computation": (own.computation,),
        "sums": (own.communication,),
        "parts": (-prod(parts),),
        "order": tuple(-n for n in parts) if compares is ALONG_AN_EDGE else parts,
    }
    return tuple(costs[what] for what in compares)


def decide(graph: Graph, name: str, reached: Sequence[Reached], full: bool) -> tuple[DistributedOperator, Decision]:
    """The cheapest candidate, the first of several, and what made it win."""
    costed = compared(graph, name, reached, full)
    best = min(costed, key=lambda candidate: candidate.rank)
    compares = compares_of(graph, name, reached)
    reason, equal = "the only candidate", len(costed)
    for i, what in enumerate(compares):
        left = sum(candidate.rank[: i + 1] == best.rank[: i + 1] for candidate in costed)
        if left < equal:
            among = f" that are equal in {', '.join(compares[:i])}" if i else " candidates"
            reason, equal = f"{CRITERIA[what]} of {equal}{among}", left
    return best.choice, Decision(name, reason, tuple(reached), full)


# --- The breadth-first rule ---


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
    optimizer = graph.step.weights
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
