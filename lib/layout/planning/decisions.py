"""Why an operator of a plan has its layout: the decision that settled it, and the candidates with their costs."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import NamedTuple

from lib.layout.layouts.tensor_layout import TensorLayout
from lib.layout.program.candidates import candidates
from lib.layout.program.distributed import DistributedOperator, arrange
from lib.layout.program.graph import Graph
from lib.layout.program.on_arrays import BINARY, UNARY

from .cost_model import Cost, operator_cost, redistribution_cost

CONFIGURED = "configured"
OF_WEIGHT = "where its weight is stored"
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


class Reached(NamedTuple):
    """An edge by which the rule reaches an operator: `tensor` has the layout `known` at the settled end.

    The operator takes it as input number `place`, or computes it if that is None.
    """

    neighbor: str
    tensor: str
    known: TensorLayout
    place: int | None


@dataclass(frozen=True)
class Decision:
    """How the breadth-first rule settled an operator: `reason` in a few words.

    `reached` is empty for a configured operator and for the optimizer, whose layouts no edge decides.
    """

    operator: str
    reason: str
    reached: tuple[Reached, ...] = ()
    full: bool = True
    """Whether candidates used all devices or one."""

    def __str__(self) -> str:
        neighbors = " and ".join(dict.fromkeys(edge.neighbor for edge in self.reached))
        return f"{self.reason}, reached from {neighbors}" if neighbors else self.reason


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
