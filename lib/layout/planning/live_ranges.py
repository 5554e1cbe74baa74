"""Live ranges: which tensors are freed when an operator has computed its output.

A source is there for the whole step. A weight or a state that the optimizer replaces is there until its replacement is
computed, and the replacement from then on. Any other tensor is there from its production until its last reader has
computed; a result, which the program returns or nobody reads, to the end. Operators run in the order of the graph.
"""

from lib.layout.program.graph import Graph


def ends(graph: Graph) -> dict[str, tuple[str, ...]]:
    """By operator: the tensors that are freed once it has computed."""
    last = {tensor: name for name, op in graph.operators.items() for tensor in op.inputs}
    number = {name: i for i, name in enumerate(graph.operators)}
    replaces = graph.step.replaces if graph.step else {}
    for new, source in replaces.items():
        last[source] = max(new, last.get(source, new), key=number.__getitem__)
    stay = {*graph.sources, *replaces, *graph.results}.difference(replaces.values())
    found: dict[str, tuple[str, ...]] = dict.fromkeys(graph.operators, ())
    for tensor, reader in last.items():
        if tensor not in stay:
            found[reader] += (tensor,)
    return found
