"""A graph as data: every graph of the catalog comes back the same, and what cannot be a graph is refused by name."""

from __future__ import annotations

import json
from typing import Any

import pytest

from lib.layout import Graph, propagate
from lib.layout.layouts import DeviceMatrix, LayoutError
from lib.layout.notation import graph_from_data, graph_to_data
from puzzles.tracks.layout import LAYOUT_PUZZLES
from tests.support.layout_examples import layer_norm, mixture_of_experts, rotary, swiglu


def there_and_back(graph: Graph) -> Graph:
    return graph_from_data(json.loads(json.dumps(graph_to_data(graph))))


@pytest.mark.parametrize("uneven", [None, True, False])
def test_the_setting_for_uneven_splits_comes_back(uneven: bool | None) -> None:
    graph = Graph(2, uneven=uneven)
    graph.relu("y", graph.input("x", (3,)))
    assert there_and_back(graph).uneven is uneven
    assert ("uneven" in graph_to_data(graph)) == (uneven is not None)


@pytest.mark.parametrize("slug", LAYOUT_PUZZLES)
def test_a_graph_comes_back_the_same(slug: str) -> None:
    graph = LAYOUT_PUZZLES[slug].graph()
    again = there_and_back(graph)
    for name in ("devices", "itemsize", "shapes", "sources", "operators", "strategies", "outs"):
        assert getattr(again, name) == getattr(graph, name), name
    if graph.strategies:
        assert propagate(again).bytes == propagate(graph).bytes


def test_what_repeats_in_a_loop_comes_back() -> None:
    graph = Graph(2)
    graph.relu("z", graph.relu("y", graph.input("x", (4, 4))))
    assert "repeats" not in graph_to_data(graph)
    graph.repeats["z"] = "y"
    again = there_and_back(graph)
    assert again.repeats == {"z": "y"}
    again.shard("z", ((2, 1),))
    assert set(again.strategies) == {"y", "z"}


def test_a_mesh_and_an_out_strategy_come_back() -> None:
    graph = Graph(mesh=DeviceMatrix((2, 3), (5, 4, 3, 2, 1, 0), ("data", "model")), itemsize=2)
    graph.input("x", (6, 6))
    graph.parameter("w", (6, 12))
    graph.matmul("product", "x", "w")
    graph.reshape("flat", "product", (72,))
    graph.shard("product", ((2, 3), (3, 1)), out=(6, 1))
    again = there_and_back(graph)
    assert again.mesh is not None
    assert (again.mesh, again.mesh.names) == (graph.mesh, ("data", "model"))
    assert (again.itemsize, again.operators, again.outs) == (2, graph.operators, {"product": (6, 1)})


@pytest.mark.parametrize("build", [swiglu, layer_norm, rotary, mixture_of_experts])
def test_the_operators_of_modern_layers_come_back(build) -> None:
    graph = build()
    graph.input("numbers", graph.shapes["x"][:-1])
    graph.scatter("table", "x", "numbers", 5)
    assert there_and_back(graph).operators == graph.operators


X = {"input": "x", "shape": [4, 4]}
RELU = {"relu": "y", "inputs": ["x"]}


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({"devices": 2, "tensors": [X], "operators": [RELU], "nodes": []}, "nodes"),
        ({"devices": 2, "operators": [RELU]}, "tensors"),
        ({"tensors": [X], "operators": [RELU]}, "devices or a mesh"),
        ({"devices": 2, "tensors": [{"weight": "x", "shape": [4]}], "operators": [RELU]}, "input, parameter"),
        ({"devices": 2, "tensors": [{"input": "x"}], "operators": [RELU]}, "x: its shape"),
        ({"devices": 2, "tensors": [X], "operators": [{"relo": "y", "inputs": ["x"]}]}, "relu"),
        ({"devices": 2, "tensors": [X], "operators": [{"relu": "y", "inputs": "x"}]}, "list of names"),
        ({"devices": 2, "tensors": [X], "operators": [{"relu": "y", "inputs": ["z"]}]}, "'z'"),
        ({"devices": 2, "tensors": [X], "operators": [RELU], "configured": {"y": [[3, 1]]}}, "makes 3 parts, which"),
        ({"devices": 2, "tensors": [X], "operators": [RELU], "repeats": {"y": "y"}}, "'y' cannot repeat 'y'"),
        ({"devices": 2, "tensors": [X], "operators": [RELU], "repeats": {"y": "u"}}, "no operator named 'u'"),
        ({"devices": 2, "uneven": 1, "tensors": [X], "operators": [RELU]}, "uneven is True, False, or None .* got 1"),
    ],
)
def test_what_is_no_graph_is_refused(data: dict[str, Any], words: str) -> None:
    with pytest.raises(LayoutError, match=words):
        graph_from_data(data)


def test_an_optimizer_that_does_not_exist_is_refused() -> None:
    data = {"devices": 2, "tensors": [X, {"parameter": "w", "shape": [4, 4]}], "training": "adamw",
            "operators": [{"matmul": "y", "inputs": ["x", "w"]}]}  # fmt: skip
    with pytest.raises(LayoutError, match="adamw"):
        graph_from_data(data)
