"""The choices of a graph: how each operator can be distributed, and where each source can be stored."""

from __future__ import annotations

from collections.abc import Mapping

from lib.layout.errors import LayoutError
from lib.layout.layouts.tensor_layout import TensorLayout
from lib.layout.program.candidates import beside_weights, candidates, source_layouts
from lib.layout.program.distributed import DistributedOperator
from lib.layout.program.graph import Graph, TrainingStep
from lib.layout.program.operators import Operator
from lib.layout.redistribution.links import Links

from .pairing import along_tensor, paired_choices
from .partial_sums import PartialSums

NO_STEP = TrainingStep()


class Choices:
    """What a plan of a graph may choose from, under caps of single tensors.

    If `paired`, operators of backward compute as those of forward that they belong to. With `links`, sums are completed
    in the least time.
    """

    def __init__(
        self,
        graph: Graph,
        caps: Mapping[str, int],
        scatter: bool,
        paired: bool = False,
        links: Links | None = None,
    ) -> None:
        self.graph, self.scatter = graph, scatter
        self.step = graph.step or NO_STEP
        self.coupled = self.step.pairs if paired else {}
        """By operator: the operator of forward that decides how it computes."""
        self.summed = {name: x for name, x in self.step.sums.items() if paired and x in graph.operators}
        """By operator: the tensor that decides how it computes."""
        self.consumers: dict[str, list[tuple[Operator, int]]] = {name: [] for name in graph.shapes}
        for op in graph.operators.values():
            for place, name in enumerate(op.inputs):
                self.consumers[name].append((op, place))
        all_even = graph.uneven is not True and graph.mesh is not None
        self.partial = PartialSums(graph) if scatter and all_even and not paired else None
        self.operators: dict[str, list[DistributedOperator]] = {}
        """By operator: the ways to distribute it."""
        self.aligned: dict[str, dict[tuple[TensorLayout, ...], list[DistributedOperator]]] = {}
        """By operator that is coupled to another one: its ways, by the inputs of that one."""
        for name in graph.operators:
            if name not in self.step.weights:
                self.operators[name] = self._choices(name)
        self.storage_layouts = {name: self._storage_layouts(name) for name in graph.sources}
        """By source: the layouts in which it may be stored."""
        for name, weight in self.step.weights.items():
            self.operators[name] = beside_weights(graph, name, self.storage_layouts[weight])
        self.storage_layouts |= {
            name: self._storage_layouts(name) for name, role in graph.sources.items() if role == "state"
        }
        for name, cap in caps.items():
            self._limit(name, cap)
        if links is not None and scatter:
            for name, ways in self.operators.items():
                self.operators[name] = [_quickest(way, links, graph.itemsize) for way in ways]

    def _choices(self, name: str) -> list[DistributedOperator]:
        if name in self.summed:
            outputs = dict.fromkeys(choice.output for choice in self.operators[self.summed[name]])
            ways = along_tensor(self.graph, list(outputs), name)
        elif name in self.coupled:
            forward = self.coupled[name]
            if name not in self.aligned:
                mine = [other for other, owner in self.coupled.items() if owner == forward]
                one_each = {choice.inputs: choice for choice in self.operators[forward]}
                for other, aligned in paired_choices(self.graph, list(one_each.values()), mine, self.scatter).items():
                    self.aligned[other] = dict(zip(one_each, aligned))
            ways = list(self.aligned[name].values())
        else:
            found = candidates(self.graph, self.graph.operators[name], self.scatter)
            return self.partial.ways(name, found) if self.partial else found
        strategy, out = self.graph.strategies.get(name), self.graph.outs.get(name)
        found = [c for each in ways for c in each if strategy in (None, c.strategy) and out in (None, c.output.splits)]
        if not found:
            raise LayoutError(
                f"this graph is too entangled to plan '{name}' apart from forward, and no way to split it like forward "
                "has the strategy that it is configured with; leave it open"
            )
        return list({(c.inputs, c.output, c.reduction): c for c in found}.values())

    def _storage_layouts(self, name: str) -> list[TensorLayout]:
        if name in self.graph.pins:
            return [self.graph.pins[name]]
        found = dict.fromkeys(
            choice.inputs[place] for op, place in self.consumers[name] for choice in self.operators.get(op.name, ())
        )
        gradient = self.step.gradients.get(name)
        if gradient is not None:
            found.update(dict.fromkeys(choice.output for choice in self.operators[gradient]))
        if self.graph.sources[name] != "state":
            found.update(dict.fromkeys(source_layouts(self.graph.shapes[name], self.graph)))
        return list(found)

    def _layouts(self, name: str) -> list[TensorLayout]:
        return (
            self.storage_layouts[name]
            if name in self.storage_layouts
            else [choice.output for choice in self.operators[name]]
        )

    def _limit(self, name: str, cap: int) -> None:
        """Removes the choices that hold more than `cap` bytes of a tensor, as stored or as an operator's input."""
        size = self.graph.itemsize

        def fits(layout: TensorLayout) -> bool:
            return layout.elements * size <= cap

        smallest = min(layout.elements for layout in self._layouts(name)) * size
        if name in self.storage_layouts:
            self.storage_layouts[name] = [layout for layout in self.storage_layouts[name] if fits(layout)]
        else:
            self.operators[name] = [choice for choice in self.operators[name] if fits(choice.output)]
        for op, place in self.consumers[name]:
            choices: list[DistributedOperator] = [c for c in self.operators[op.name] if fits(c.inputs[place])]
            if not choices:
                smallest = max(smallest, min(c.inputs[place].elements for c in self.operators[op.name]) * size)
            self.operators[op.name] = choices
            if not choices:
                raise LayoutError(
                    f"'{op.name}' needs more than {cap:,} bytes of '{name}' on each device; "
                    f"the smallest possible is {smallest:,}"
                )
        if not self._layouts(name):
            raise LayoutError(
                f"'{name}' does not fit into {cap:,} bytes on each device; the smallest possible is {smallest:,}"
            )


def _quickest(way: DistributedOperator, links: Links, itemsize: int) -> DistributedOperator:
    """The same operator, with its output completed in the least time."""
    if not way.reduction:
        return way
    steps = links.quickest(way.local, way.output, itemsize)
    return DistributedOperator(way.operator, way.inputs, way.local, steps)
