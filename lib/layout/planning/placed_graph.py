"""A graph with every tensor placed: traffic on each edge, memory per device, and how each input is fetched."""

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from math import prod
from typing import NamedTuple

import numpy as np

from lib.layout.layouts.device_matrix import Ints
from lib.layout.layouts.tensor_layout import Placement, TensorLayout, parts, placement, same_placement
from lib.layout.program.distributed import DistributedOperator
from lib.layout.program.graph import Graph
from lib.layout.redistribution.redistribution import Redistribution, can_become, least_bytes, redistribute
from lib.layout.redistribution.steps import Step

from .decisions import CONFIGURED, Decision
from .peak import MemoryTimeline, Moment, OperandFetch, ends


class Edge(NamedTuple):
    """A tensor on its way to the operator that takes it as input number `place`; `bytes` over all devices.

    If an earlier operator took it in the same layout, that one is `moved_for`, and nothing moves again. If it moves
    from the copy that an earlier operator took in another layout, that one is `copied_from`.
    """

    tensor: str
    operator: str
    place: int
    source: TensorLayout
    target: TensorLayout
    bytes: int
    moved_for: str = ""
    copied_from: str = ""

    def __str__(self) -> str:
        return f"{self.tensor} -> {self.operator}"


@dataclass(frozen=True)
class PlacedGraph:
    """Distributed operators, and a stored layout for every source."""

    graph: Graph
    operators: Mapping[str, DistributedOperator]
    storage_layouts: Mapping[str, TensorLayout]
    tied: bool = False
    """True if identical layers are laid out alike, and other plans were not compared."""
    at_least: int | None = None
    """What every plan under the same caps costs, if it is not known that this one is the cheapest: bytes, and if it was
    planned for a `rate`, also the bytes that could be sent while devices compute."""
    gap: float = 0.0
    """How far that is below what this plan costs: at most this part of it could be saved."""
    rate: int | None = None
    """Operations of a device in the time of a byte, for which it was planned."""
    taken_from: Mapping[tuple[str, int], TensorLayout | None] = field(default_factory=dict)
    """By operator and input, if it is fixed: the layout of the copy from which the input moves, or None."""
    decisions: Mapping[str, Decision] = field(default_factory=dict, compare=False)
    """By operator: how the breadth-first rule settled it. Empty for other plans."""

    def layout(self, tensor: str) -> TensorLayout:
        """The layout of a tensor: as a source is stored, or as its operator leaves it."""
        return self.storage_layouts[tensor] if tensor in self.storage_layouts else self.operators[tensor].output

    @cached_property
    def edges(self) -> tuple[Edge, ...]:
        """Every edge, in the order of the program.

        A tensor moves from where it lives, or from a copy that an earlier operator of the same phase took, if that is
        cheaper.
        """
        edges = []
        copies: dict[tuple[str, int], dict[Placement, tuple[str, TensorLayout]]] = {}
        for name, op in self.graph.operators.items():
            for place, (tensor, wanted) in enumerate(zip(op.inputs, self.operators[name].inputs)):
                home, taken = self.layout(tensor), copies.setdefault((tensor, self.graph.phase(name)), {})
                given, before, source = home, "", ""
                if placement(wanted) in taken and not same_placement(home, wanted):
                    before = taken[placement(wanted)][0]
                else:
                    given, source = self._source(name, place, home, wanted, taken)
                moved = 0 if before else self._cost(given, wanted)
                edges.append(Edge(tensor, name, place, given, wanted, moved, before, source))
                if not same_placement(home, wanted):
                    taken.setdefault(placement(wanted), (name, wanted))
        return tuple(edges)

    def _source(
        self,
        name: str,
        place: int,
        home: TensorLayout,
        wanted: TensorLayout,
        copies: Mapping[Placement, tuple[str, TensorLayout]],
    ) -> tuple[TensorLayout, str]:
        """The layout from which an input moves, and the operator that took a copy in it, or ''."""
        if (name, place) in self.taken_from:
            fixed = self.taken_from[name, place]
            if fixed is None or placement(fixed) not in copies:  # an earlier operator took it from where it lives
                return home, ""
            return fixed, copies[placement(fixed)][0]
        best, source, least = home, "", self._cost(home, wanted)
        for reader, layout in copies.values() if least else ():
            if can_become(layout, wanted) and self._cost(layout, wanted) < least:
                best, source, least = layout, reader, self._cost(layout, wanted)
        return best, source

    def _cost(self, given: TensorLayout, wanted: TensorLayout) -> int:
        return least_bytes(given, wanted, self.graph.itemsize)

    @cached_property
    def padding(self) -> dict[tuple[str, tuple[int, ...]], int]:
        """Bytes of padding on all devices, by tensor and padded shape, of each that some pieces have: as it is stored,
        or as an operator takes it or computes it."""
        padding: dict[tuple[str, tuple[int, ...]], int] = {}
        placed = [*((edge.tensor, edge.target) for edge in self.edges), *self.storage_layouts.items()]
        placed += [(name, layout) for name, op in self.operators.items() for layout in (op.local, op.output)]
        for name, layout in placed:
            if layout.uneven:
                copies = layout.devices // prod(layout.splits)
                extra = copies * (prod(layout.padded_shape) - prod(layout.shape)) * self.graph.itemsize
                key = name, layout.padded_shape
                padding[key] = max(padding.get(key, 0), extra)
        return padding

    def collective_bytes(self, name: str) -> int:
        """Bytes that an operator's own collectives move, over all devices."""
        return self.operators[name].moved * self.graph.itemsize

    @cached_property
    def bytes(self) -> int:
        """Bytes moved in total: redistribution on the edges plus the operators' own collectives."""
        return sum(edge.bytes for edge in self.edges) + sum(map(self.collective_bytes, self.operators))

    @cached_property
    def memory(self) -> int:
        """Bytes on each device: stored sources, and every operator's output, which training keeps for backward.

        In a training step, where backward is known: stored sources, that is inputs, weights and the optimizer's state;
        gradients of weights; and the outputs of forward that backward uses.
        """
        return sum(self.memory_by_role.values())

    @cached_property
    def memory_by_role(self) -> dict[str, int]:
        """Bytes on each device of inputs, weights, optimizer state, gradients and activations."""
        kept = {name: layout.elements for name, layout in self.storage_layouts.items()}
        kept |= {name: op.output.elements for name, op in self.operators.items() if self.graph.keeps(name)}
        return self.graph.bytes_by_role(kept)

    @property
    def peak(self) -> int:
        """Most bytes that a device holds at the same time when operators run in the order of the graph.

        Counts every tensor in its live range, moved copies, and the buffers of moves and reductions (`peak_moment` has
        the operator, and what is held then). The meters of `on_engine` read the same.
        """
        return self.peak_moment.bytes

    @property
    def peak_moment(self) -> Moment:
        """When a device first holds the most."""
        return self.timeline.fullest

    @cached_property
    def timeline(self) -> MemoryTimeline:
        """What devices hold at every moment; `timeline.peaks` is the peak of each device."""
        return MemoryTimeline(self.graph, self.operators, self.storage_layouts, self.fetches)

    def reason(self, operator: str) -> str:
        """Why an operator has its layout."""
        if operator in self.decisions:
            return str(self.decisions[operator])
        return CONFIGURED if operator in self.graph.strategies else ""

    @property
    def flops(self) -> int:
        """Floating-point operations per device."""
        return sum(op.flops for op in self.operators.values())

    @property
    def redundancy(self) -> float:
        """How many times the operations of all matrix products are computed, on all devices together."""
        products = [op for op in self.operators.values() if op.operator.is_product]
        alone = sum(op.operator.flops({}) for op in products)
        return sum(op.flops for op in products) * self.graph.devices / alone if alone else 1.0

    def redistribution(self, edge: Edge) -> Redistribution:
        """The redistribution of an edge's tensor."""
        return self.moves[edge.operator][edge.place]

    @cached_property
    def moves(self) -> dict[str, list[Redistribution]]:
        """By operator: the redistribution of each of its inputs."""
        moves: dict[str, list[Redistribution]] = {name: [] for name in self.operators}
        for edge in self.edges:
            moves[edge.operator].append(redistribute(edge.source, edge.target, self.graph.itemsize))
        return moves

    @cached_property
    def sent(self) -> Ints:
        """Bytes that each device sends."""
        return self._in_bytes(step.sent for step in self._steps)

    @cached_property
    def received(self) -> Ints:
        """Bytes that each device receives."""
        return self._in_bytes(step.received for step in self._steps)

    def _in_bytes(self, elements: Iterable[Ints]) -> Ints:
        return sum(elements, np.zeros(self.graph.devices, dtype=np.int64)) * self.graph.itemsize

    @property
    def _steps(self) -> list[Step]:
        """Every step that takes place; the steps of a shared move once."""
        moves = [step for edge in self.edges if not edge.moved_for for step in self.redistribution(edge).steps]
        return moves + [step for op in self.operators.values() for step in op.reduction]

    @cached_property
    def freed(self) -> dict[str, tuple[str, ...]]:
        """By operator: the tensors that are freed once it has computed, before its output is reduced."""
        return ends(self.graph)

    def prepare(self) -> None:
        """Computes the tables that devices look up. Otherwise the first device to look would be charged for them."""
        _ = self.freed
        for layout in (*self.storage_layouts.values(), *(x for op in self.operators.values() for x in op.inputs)):
            parts(layout)
        taken = (fetch.steps for fetches in self.fetches.values() for fetch in fetches)
        for step in chain(*taken, *(op.reduction for op in self.operators.values())):
            step.prepare()

    @cached_property
    def fetches(self) -> dict[str, tuple[OperandFetch, ...]]:
        """By operator: how each input comes to its layout."""
        taken: dict[Hashable, list[Edge]] = {}
        """By copy: the edges that take it, or move from it, in order."""

        def key(edge: Edge, layout: TensorLayout) -> Hashable:
            return edge.tensor, placement(layout), self.graph.phase(edge.operator)

        for edge in self.edges:
            taken.setdefault(key(edge, edge.target), []).append(edge)
            if edge.copied_from:
                taken[key(edge, edge.source)].append(edge)
        number = {copy: i for i, (copy, edges) in enumerate(taken.items()) if len(edges) > 1}
        fetches: dict[str, list[OperandFetch]] = {name: [] for name in self.operators}
        for edge in self.edges:
            copy, steps = key(edge, edge.target), self.redistribution(edge).named_steps
            shared = number.get(copy) if steps else None
            fetch = OperandFetch(steps, shared, edge is taken[copy][-1])
            if edge.copied_from:
                source = key(edge, edge.source)
                fetch = fetch._replace(source=number[source], source_ends=edge is taken[source][-1])
            fetches[edge.operator].append(fetch)
        return {name: tuple(operands) for name, operands in fetches.items()}
