"""Tensors of identical layers, which an integer program may lay out alike.

Two are alike if what surrounds them is: the operators within a few edges, with their settings and shapes (colour
refinement: Weisfeiler and Leman 1968). So the first and the last of many layers may differ from those in between.
"""

from collections.abc import Hashable

from lib.layout.program.graph import Graph

ROUNDS = 3
"""How many edges away two surroundings may not differ."""


def alike(graph: Graph) -> dict[str, str]:
    """By tensor: the first one that is alike, if that is another one."""
    readers: dict[str, list[tuple[str, int]]] = {name: [] for name in graph.shapes}
    for name, op in graph.operators.items():
        for place, tensor in enumerate(op.inputs):
            readers[tensor].append((name, place))
    colors = _numbered({name: _own(graph, name) for name in graph.shapes})
    for _ in range(ROUNDS):
        seen: dict[str, Hashable] = {}
        for name in graph.shapes:
            inputs = graph.operators[name].inputs if name in graph.operators else ()
            beside = tuple(sorted((colors[reader], place) for reader, place in readers[name]))
            seen[name] = colors[name], tuple(colors[tensor] for tensor in inputs), beside
        colors = _numbered(seen)
    first: dict[int, str] = {}
    return {name: first[color] for name, color in colors.items() if first.setdefault(color, name) != name}


def _own(graph: Graph, name: str) -> Hashable:
    """What is known of a tensor alone."""
    given = graph.pins.get(name), name in graph.results
    if name not in graph.operators:
        return graph.sources[name], graph.shapes[name], given
    op = graph.operators[name]
    kept = graph.keeps(name), graph.phase(name), graph.strategies.get(name), graph.outs.get(name)
    return op.kind, op.settings, op.input_letters, op.output_letters, op.input_shapes, op.output_shape, kept, given


def _numbered(seen: dict[str, Hashable]) -> dict[str, int]:
    numbers: dict[Hashable, int] = {}
    return {name: numbers.setdefault(key, len(numbers)) for name, key in seen.items()}
