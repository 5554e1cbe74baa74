"""The plan of a graph: its run on numpy and on the engine, and what it does as text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lib.layout.layouts.pieces import Array, Pieces, cut, join
from lib.layout.program.distributed import strategy_text

from .placed_graph import PlacedGraph

if TYPE_CHECKING:
    from lib.layout.on_engine import Executed


@dataclass(frozen=True)
class GraphPlan(PlacedGraph):
    """Distributed operators, and a stored layout for every source."""

    def run(self, values: Mapping[str, Array]) -> dict[str, Pieces]:
        """The distributed program on numpy, all devices side by side: the pieces of every tensor.

        The reference for `on_engine`, where each device has only its own pieces.
        """
        tensors = {name: cut(values[name], self.storage_layouts[name]) for name in self.graph.check_values(values)}
        copies: dict[int, Pieces] = {}
        for name, op in self.operators.items():
            inputs = []
            for move, tensor, fetch in zip(self.moves[name], op.operator.inputs, self.fetches[name]):
                source = tensors[tensor] if fetch.source is None else copies[fetch.source]
                moved = copies[fetch.copy] if fetch.copy in copies else move.run(source)
                if fetch.copy is not None:
                    copies[fetch.copy] = moved
                inputs.append(moved)
            pieces = {d: op.compute(d, [operand[d] for operand in inputs]) for d in range(self.graph.devices)}
            for step in op.reduction:
                pieces = step.run(pieces)
            tensors[name] = pieces
        return tensors

    def on_engine(self, values: Mapping[str, Array], on: str | None = None) -> Executed:
        """The program on `lib.engine`, where every device holds its own pieces and gets everything else by engine
        calls.

        `on` is as for `lib.engine.launch`: "inprocess", or "mpi" in a program that mpiexec started. If elements
        have `graph.itemsize` bytes, the meters read what `sent` predicts.

        Raises:
            LayoutError: the value of a source is missing or has another shape.
        """
        from .planned_device import execute  # imported here, because planning does not need the engine

        self.graph.check_values(values)
        return execute(self, values, on)

    def values(self, values: Mapping[str, Array]) -> dict[str, Array]:
        """The same run, with every tensor joined from its pieces."""
        return {name: join(pieces, self.layout(name)) for name, pieces in self.run(values).items()}

    def paying(self) -> list[tuple[int, str]]:
        """Edges and operators that cost bytes, most expensive first: 'relu -> matmul2 pays 12,288 bytes
        (all-to-all)'."""
        payments = []
        for edge in self.edges:
            if edge.bytes:
                names = ", ".join(self.redistribution(edge).names)
                payments.append((edge.bytes, f"{edge} pays {edge.bytes:,} bytes ({names})"))
        for name, op in self.operators.items():
            if op.moved:
                names = ", ".join(step.name for step in op.reduction)
                payments.append(
                    (self.collective_bytes(name), f"{name} pays {self.collective_bytes(name):,} bytes ({names})")
                )
        return sorted(payments, key=lambda pair: -pair[0])

    def explain(self) -> str:
        """The plan operator by operator, as text: strategies, local shapes, collectives, bytes."""
        lines = []
        edges = {(edge.operator, edge.place): edge for edge in self.edges}
        for name, op in self.operators.items():
            for place in range(len(op.inputs)):
                edge = edges[name, place]
                if edge.moved_for:
                    lines.append(f"  {edge}: as moved for {edge.moved_for}, 0 bytes")
                elif edge.source.elements != edge.target.elements or edge.bytes:
                    steps = ", ".join(self.redistribution(edge).names)
                    of = f" from the copy of {edge.copied_from}" if edge.copied_from else ""
                    lines.append(f"  {edge}: {steps}{of}, {edge.bytes:,} bytes")
            shapes = " x ".join(str(layout.local_shape) for layout in op.inputs)
            lines.append(f"{name}: {op.operator.kind} {strategy_text(op.strategy)}, {shapes} -> {op.local.local_shape}")
            for step in op.reduction:
                moved = int(step.received.sum()) * self.graph.itemsize
                lines.append(f"  {name}: {step.name}, {moved:,} bytes, -> {step.target.local_shape}")
        for (name, shape), extra in self.padding.items():
            lines.append(
                f"'{name}' is padded from {self.graph.shapes[name]} to {shape}: {extra:,} bytes on all devices"
            )
        if self.tied:
            lines.append("there may be cheaper plans: identical layers are laid out alike; plan(effort=) compares all")
        if self.at_least is not None:
            saved = f", so that at most {self.gap:.1%} could be saved" if self.gap else ""
            of = "equivalent bytes, computing included" if self.rate else "bytes"
            lines.append(
                f"there may be cheaper plans: not all were considered, but none is below {self.at_least:,} {of}{saved}"
            )
        if self.redundancy > 1.005:
            lines.append(
                f"{self.flops:,} flops on each device: together {self.redundancy:.2f} times as many as on one device"
            )
        lines.append(f"at most {self.peak:,} bytes at a time on a device, when {self.peak_moment}")
        if self.rate:
            each = self.flops // self.rate
            whole = self.bytes + each * self.graph.devices
            lines.append(
                f"computing takes as long as sending {each:,} bytes from each device: {whole:,} equivalent bytes"
            )
        most = int(self.sent.max())
        lines.append(f"{self.bytes:,} bytes moved, at most {most:,} by a device; {self.memory:,} bytes on each device")
        return "\n".join(lines)
