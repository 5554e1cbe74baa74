"""The choices of a graph: how each operator can be distributed, and where each source can be stored."""

from collections.abc import Mapping

from lib.layout.errors import LayoutError
from lib.layout.layouts.tensor_layout import TensorLayout
from lib.layout.program.candidates import beside_weights, candidates, source_layouts
from lib.layout.program.distributed import DistributedOperator
from lib.layout.program.graph import Graph, TrainingStep
from lib.layout.program.operators import Operator

from .partial_sums import PartialSums

NO_STEP = TrainingStep()


class Choices:
    """What a plan of a graph may choose from, under caps of single tensors."""

    def __init__(self, graph: Graph, caps: Mapping[str, int], scatter: bool) -> None:
        self.graph, self.scatter = graph, scatter
        self.step = graph.step or NO_STEP
        self.consumers: dict[str, list[tuple[Operator, int]]] = {name: [] for name in graph.shapes}
        for op in graph.operators.values():
            for place, name in enumerate(op.inputs):
                self.consumers[name].append((op, place))
        all_even = graph.uneven is not True and graph.mesh is not None
        self.partial = PartialSums(graph) if scatter and all_even else None
        self.operators: dict[str, list[DistributedOperator]] = {}
        """By operator: the ways to distribute it."""
        for name in graph.operators:
            if name not in self.step.weights:
                first = graph.repeats.get(name)
                self.operators[name] = self._choices(name) if first is None else self.operators[first]
        self.storage_layouts = {name: self._storage_layouts(name) for name in graph.sources}
        """By source: the layouts in which it may be stored."""
        for name, weight in self.step.weights.items():
            self.operators[name] = beside_weights(graph, name, self.storage_layouts[weight])
        self.storage_layouts |= {
            name: self._storage_layouts(name) for name, role in graph.sources.items() if role == "state"
        }
        for name, cap in caps.items():
            self._limit(name, cap)

    def _choices(self, name: str) -> list[DistributedOperator]:
        ways = candidates(self.graph, self.graph.operators[name], self.scatter)
        return self.partial.ways(name, ways) if self.partial else ways

    def way(self, name: str, chosen: DistributedOperator) -> DistributedOperator:
        """A choice of an operator, which may be one of the same operator in the first step of a loop."""
        operator = self.graph.operators[name]
        if chosen.operator is operator:
            return chosen
        return DistributedOperator(operator, chosen.inputs, chosen.local, chosen.reduction)

    def _storage_layouts(self, name: str) -> list[TensorLayout]:
        if name in self.graph.pins:
            return [self.graph.pins[name]]
        layouts = dict.fromkeys(
            choice.inputs[place] for op, place in self.consumers[name] for choice in self.operators.get(op.name, ())
        )
        gradient = self.step.gradients.get(name)
        if gradient is not None:
            layouts.update(dict.fromkeys(choice.output for choice in self.operators[gradient]))
        if self.graph.sources[name] != "state":
            layouts.update(dict.fromkeys(source_layouts(self.graph.shapes[name], self.graph)))
        return list(layouts)

    def _layouts(self, name: str) -> list[TensorLayout]:
        return (
            self.storage_layouts[name]
            if name in self.storage_layouts
            else [choice.output for choice in self.operators[name]]
        )

    def _limit(self, name: str, cap: int) -> None:
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
