"""The networks of docs/generate/mindspore.json as graphs, and how often `propagate` chooses what MindSpore chose."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from lib.layout import Graph, propagate

FILE = Path(__file__).parents[2] / "docs" / "generate" / "mindspore.json"
SETTINGS = {"full": True, "some": False}


class Agreement(NamedTuple):
    """Operators and networks for which both choose the same, of how many; and the operators where they first differ."""

    operators: int
    of_operators: int
    networks: int
    of_networks: int
    first_differences: tuple[str, ...]


def data() -> dict[str, Any]:
    """The file."""
    read: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
    return read


def graph_of(network: dict[str, Any]) -> Graph:
    """A network with its configured operator."""
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
    graph.shard(network["configured"], network["strategy"])
    return graph


def answers(setting: str, networks: list[dict[str, Any]]) -> Iterator[tuple[Graph, dict[str, Any]]]:
    """The networks that MindSpore compiled, each with its strategies."""
    for network in networks:
        if network[setting] is not None:
            yield graph_of(network), network[setting]


def agreement(setting: str, networks: list[dict[str, Any]]) -> Agreement:
    """How often both agree."""
    same = of = whole = compiled = 0
    first = []
    for graph, chosen in answers(setting, networks):
        found = propagate(graph, full=SETTINGS[setting])
        differ = []
        for name, operator in found.operators.items():
            theirs = tuple(map(tuple, chosen[name]))[: len(operator.inputs)]  # a reduction also lists its axis
            if operator.strategy != theirs:
                differ.append(operator.operator.kind)
        same, of = same + len(chosen) - len(differ), of + len(chosen)
        whole, compiled = whole + (not differ), compiled + 1
        first += differ[:1]
    return Agreement(same, of, whole, compiled, tuple(first))
