"""Why an operator of a plan has its layout: the decision that settled it, and the candidates with their costs."""

from dataclasses import dataclass
from typing import NamedTuple

from lib.layout.layouts.tensor_layout import TensorLayout
from lib.layout.program.candidates import candidates
from lib.layout.program.distributed import DistributedOperator
from lib.layout.program.graph import Graph
from lib.layout.redistribution.redistribution import least_bytes

from .mindspore import Rank, rank, ways

CONFIGURED = "configured"
OF_WEIGHT = "where its weight is stored"


class Candidate(NamedTuple):
    """A way to distribute an operator, and what the rule compares, in this order."""

    choice: DistributedOperator
    bytes: int
    """What the edge by which the operator was reached then moves, over all devices."""
    flops: int
    """Computation of each device."""
    held: int
    """Elements that a device needs: its pieces of inputs and output."""
    rank: Rank | None = None
    """What MindSpore compares instead."""

    @property
    def cost(self) -> tuple[int, int, int] | Rank:
        """The smaller, the better."""
        return self.rank or (self.bytes, self.flops, self.held)


class Reached(NamedTuple):
    """The edge by which the rule reaches an operator: `tensor` has the layout `known` at the settled end.

    The operator takes it as input number `place`, or computes it if that is None.
    """

    neighbor: str
    tensor: str
    known: TensorLayout
    place: int | None


@dataclass(frozen=True)
class Decision:
    """How the breadth-first rule settled an operator: `reason` in a few words.

    `reached` is None for a configured operator and for the optimizer, whose layouts no edge decides.
    """

    operator: str
    reason: str
    reached: Reached | None = None
    full: bool | None = None
    """Whether MindSpore's candidates used all devices; None for the rule of the puzzles."""

    def __str__(self) -> str:
        return f"{self.reason}, reached from {self.reached.neighbor}" if self.reached else self.reason


def compared(graph: Graph, name: str, reached: Reached, full: bool | None = None) -> list[Candidate]:
    """The ways to distribute an operator, with what each costs on that edge; partial sums are all-reduced."""
    operator = graph.operators[name]
    if full is None:
        choices = candidates(graph, operator, scatter=False)
    else:
        choices = ways(graph, operator, reached.known, reached.place, full)
    found = []
    for choice in choices:
        given = choice.output if reached.place is None else reached.known
        needed = reached.known if reached.place is None else choice.inputs[reached.place]
        moved = least_bytes(given, needed, graph.itemsize)
        ranked = None if full is None else rank(choice, given, needed)
        found.append(Candidate(choice, moved, choice.flops, choice.held, ranked))
    return found


def decide(graph: Graph, name: str, reached: Reached, full: bool | None = None) -> tuple[DistributedOperator, Decision]:
    """The cheapest candidate, the first of several, and what made it win."""
    found = compared(graph, name, reached, full)
    if full is not None:
        best = min(found, key=lambda each: each.cost)
        return best.choice, Decision(
            name, f"the first of {len(found)} candidates as MindSpore ranks them", reached, full
        )
    best = min(found, key=lambda each: each.cost)
    few, little, least = (sum(each.cost[:n] == best.cost[:n] for each in found) for n in (1, 2, 3))
    if len(found) == 1:
        reason = "the only candidate"
    elif few == 1:
        reason = f"fewest bytes of {len(found)} candidates"
    elif little == 1:
        reason = f"least computation of {few} with the fewest bytes"
    elif least == 1:
        reason = f"least memory of {little} that are equal in bytes and computation"
    else:
        reason = f"the first of {least} that are equal in all costs"
    return best.choice, Decision(name, reason, reached)
