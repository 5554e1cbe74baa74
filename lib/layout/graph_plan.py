"""A whole graph with every tensor placed: what moves on which edge, what a device holds, and the run on numpy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from .distributed import DistributedOperator, strategy_text
from .graph import Graph
from .pieces import Array, Pieces, cut, join
from .redistribution import Redistribution, least_bytes, redistribute
from .tensor_layout import TensorLayout


class Edge(NamedTuple):
    """A tensor on its way to the operator that takes it as input number `place`; `bytes` over all devices."""

    tensor: str
    operator: str
    place: int
    source: TensorLayout
    target: TensorLayout
    bytes: int

    def __str__(self) -> str:
        return f"{self.tensor} -> {self.operator}"


@dataclass(frozen=True)
class GraphPlan:
    """Operators distributed, and a home for every source."""

    graph: Graph
    operators: Mapping[str, DistributedOperator]
    homes: Mapping[str, TensorLayout]

    def layout(self, tensor: str) -> TensorLayout:
        """Where a tensor lives: at home, or as its operator leaves it."""
        return self.homes[tensor] if tensor in self.homes else self.operators[tensor].output

    @cached_property
    def edges(self) -> tuple[Edge, ...]:
        """Every edge, in the order of the program."""
        found = []
        for name, op in self.graph.operators.items():
            for place, (tensor, wanted) in enumerate(zip(op.inputs, self.operators[name].inputs)):
                moved = least_bytes(self.layout(tensor), wanted, self.graph.itemsize)
                found.append(Edge(tensor, name, place, self.layout(tensor), wanted, moved))
        return tuple(found)

    def collective_bytes(self, name: str) -> int:
        """What an operator's own collectives move, over all devices."""
        return self.operators[name].moved * self.graph.itemsize

    @cached_property
    def bytes(self) -> int:
        """What moves in all: redistribution on the edges and the operators' own collectives."""
        return sum(edge.bytes for edge in self.edges) + sum(map(self.collective_bytes, self.operators))

    @cached_property
    def memory(self) -> int:
        """Bytes on each device: sources at home, and every operator's output, which training keeps for backward."""
        kept = [*self.homes.values(), *(op.output for op in self.operators.values())]
        return sum(layout.elements for layout in kept) * self.graph.itemsize

    @property
    def flops(self) -> int:
        """Floating-point operations of each device."""
        return sum(op.flops for op in self.operators.values())

    def redistribution(self, edge: Edge) -> Redistribution:
        """How an edge's tensor moves."""
        return redistribute(edge.source, edge.target, self.graph.itemsize)

    def run(self, values: Mapping[str, Array]) -> dict[str, Pieces]:
        """The distributed program on numpy, device by device: every tensor's pieces where it lives.

        This function is the executor. What it needs of one is `Step.run` and `Operator.compute` for each
        device; an engine with real transports can take its place.
        """
        tensors = {name: cut(values[name], self.homes[name]) for name in self.graph.check_values(values)}
        edges = {(edge.operator, edge.place): edge for edge in self.edges}
        for name, op in self.graph.operators.items():
            placed = self.operators[name]
            inputs = []
            for place, tensor in enumerate(op.inputs):
                inputs.append(self.redistribution(edges[name, place]).run(tensors[tensor]))
            pieces = {}
            for device in range(self.graph.devices):
                offset = placed.inputs[0].box(device)[0].start if op.kind == "gather" else 0
                arrays = [input[device] for input in inputs]
                pieces[device] = op.compute(arrays, placed.local.local_shape, offset)
            for step in placed.reduction:
                pieces = step.run(pieces)
            tensors[name] = pieces
        return tensors

    def values(self, values: Mapping[str, Array]) -> dict[str, Array]:
        """The same run, put together: every tensor whole."""
        return {name: join(pieces, self.layout(name)) for name, pieces in self.run(values).items()}

    def paying(self) -> list[tuple[int, str]]:
        """What costs bytes, dearest first: 'relu -> matmul2 pays 12,288 bytes (all-to-all)'."""
        found = []
        for edge in self.edges:
            if edge.bytes:
                names = ", ".join(self.redistribution(edge).names)
                found.append((edge.bytes, f"{edge} pays {edge.bytes:,} bytes ({names})"))
        for name, op in self.operators.items():
            if op.moved:
                names = ", ".join(step.name for step in op.reduction)
                found.append(
                    (self.collective_bytes(name), f"{name} pays {self.collective_bytes(name):,} bytes ({names})")
                )
        return sorted(found, key=lambda pair: -pair[0])

    def explain(self) -> str:
        """The plan operator by operator, as people read it."""
        lines = []
        edges = {(edge.operator, edge.place): edge for edge in self.edges}
        for name, op in self.operators.items():
            for place in range(len(op.inputs)):
                edge = edges[name, place]
                if edge.source.elements != edge.target.elements or edge.bytes:
                    steps = ", ".join(self.redistribution(edge).names)
                    lines.append(f"  {edge}: {steps}, {edge.bytes:,} bytes")
            shapes = " x ".join(str(layout.local_shape) for layout in op.inputs)
            lines.append(f"{name}: {op.operator.kind} {strategy_text(op.strategy)}, {shapes} -> {op.local.local_shape}")
            for step in op.reduction:
                moved = int(step.received.sum()) * self.graph.itemsize
                lines.append(f"  {name}: {step.name}, {moved:,} bytes, -> {step.target.local_shape}")
        lines.append(f"{self.bytes:,} bytes moved, {self.memory:,} bytes on each device")
        return "\n".join(lines)
