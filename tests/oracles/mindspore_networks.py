"""The networks of docs/generate/mindspore.json as graphs, and how often `propagate` chooses what MindSpore chose."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from lib.layout import Graph, TensorLayout, propagate, propagation
from lib.layout.propagation import Cost

FILE = Path(__file__).parents[2] / "docs" / "generate" / "mindspore.json"
SETTINGS = {"full": True, "some": False}


class Agreement(NamedTuple):
    """Operators and networks for which both choose the same, of how many."""

    operators: int
    of_operators: int
    networks: int
    of_networks: int


def data() -> dict[str, Any]:
    """The file."""
    read: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
    return read


def graph_of(network: dict[str, Any]) -> Graph:
    """A network with its configured operators."""
    graph = Graph(devices=8)
    graph.input("x", network["x"])
    for layer in network["layers"]:
        name, kind, inputs = layer["name"], layer["kind"], list(layer["inputs"])
        if layer["weight"]:
            inputs.append(graph.parameter(f"{name}.weight", layer["weight"]))
        settings: dict[str, Any] = {"axis": -1} if kind in ("softmax", "reduce_sum", "reduce_mean") else {}
        if layer.get("transposed"):
            settings = {"transpose_b": True}
        graph.operator("add" if kind == "plus" else kind, name, *inputs, **settings)
    for name, strategy in network["strategies"].items():
        graph.shard(name, strategy)
    return graph


def agreement(setting: str, networks: list[dict[str, Any]]) -> Agreement:
    """How often both agree."""
    same = of = whole = 0
    for network in networks:
        found = propagate(graph_of(network), full=SETTINGS[setting])
        equal = 0
        for name, operator in found.operators.items():
            theirs = tuple(map(tuple, network[setting][name]))
            equal += operator.strategy == theirs[: len(operator.inputs)]  # a reduction may also list its axis
        same, of, whole = same + equal, of + len(found.operators), whole + (equal == len(found.operators))
    return Agreement(same, of, whole, len(networks))


@contextmanager
def remembering_costs() -> Iterator[None]:
    """As MindSpore in one process: it remembers what a redistribution costs by its layouts, without the shape."""
    costs: dict[Any, Cost] = {}
    real = propagation.redistribution_cost

    def remembered(source: TensorLayout, target: TensorLayout, itemsize: int) -> Cost:
        key = (source.matrix, source.tensor_map, target.matrix, target.tensor_map)
        return costs.setdefault(key, real(source, target, itemsize))

    propagation.redistribution_cost = remembered  # type: ignore[assignment]
    try:
        yield
    finally:
        propagation.redistribution_cost = real
