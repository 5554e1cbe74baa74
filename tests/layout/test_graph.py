"""Graphs as data, from traced numpy programs, and from functions of JAX."""

import json
import re
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lib.layout import Graph, from_jax, mesh, propagate
from lib.layout.layouts import DeviceMatrix, LayoutError
from lib.layout.notation import graph_from_data, graph_to_data
from lib.layout.spmd import follow, mesh_split, replicate, split
from puzzles.tracks.layout import LAYOUT_PUZZLES
from tests.support.layout_examples import layer_norm, mixture_of_experts, rotary, swiglu
from tests.support.layout_strategies import numbers
from tests.support.refusals import Refused
from tests.test_imports import ROOT

# === A graph as data ===


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


# === Traced numpy programs ===


SHAPES = {"x": (4, 8), "w": (8, 8), "b": (8,)}
GRID = mesh(data=2, model=2)

PROGRAMS: dict[str, Callable[..., Any]] = {
    "einsum": lambda x, w, b: np.einsum("id,df,if->f", x, w, x),
    "matmul and add": lambda x, w, b: x @ w + b,
    "a bias first": lambda x, w, b: np.add(np.matmul(x, w), b),
    "relu": lambda x, w, b: np.maximum(x @ w, 0),
    "sums": lambda x, w, b: np.sum(x @ w, axis=0) + w.sum(1) + x.reshape(8, 4).sum(axis=-1),
    "transposed": lambda x, w, b: np.transpose(x.T, (1, 0)) @ w.transpose(),
    "reshaped": lambda x, w, b: np.reshape(x, (2, 2, 8)) @ w.reshape((8, 8)),
    "annotated": lambda x, w, b: replicate(split(mesh_split(x, GRID, ("data", None)) @ w, 1, 4) + b),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_graph_is_the_function(name: str) -> None:
    values = {source: numbers(shape) for source, shape in SHAPES.items()}
    program = follow(PROGRAMS[name], {"x": SHAPES["x"]}, {"w": SHAPES["w"], "b": SHAPES["b"]}, GRID)
    np.testing.assert_array_equal(program.graph.run(values)[program.output], PROGRAMS[name](**values))


def test_annotations_leave_arrays_alone_and_a_second_one_moves_a_copy() -> None:
    x = numbers((4, 8))
    assert mesh_split(x, GRID, ("data", None)) is x
    assert split(x, 0, 2) is replicate(x) is x
    program = follow(lambda x: np.maximum(replicate(split(x, 0, 4)), 0), {"x": (4, 8)}, {}, GRID)
    assert {name: str(layout) for name, layout in program.annotations.items()} == {
        "x": "[data+model, -] on 2x2",
        "reshape1": "[-, -] on 2x2",
    }
    assert program.copies == {"reshape1"}


def test_split_finds_the_axis_with_so_many_devices() -> None:
    wide = mesh(data=2, model=4)
    for parts, axis in ((2, "data"), (4, "model"), (8, "data+model")):
        program = follow(lambda x, n=parts: split(x, 1, n) + x, {"x": (4, 8)}, {}, wide)
        assert str(program.annotations["x"]) == f"[-, {axis}] on 2x4"


REFUSED: dict[str, tuple[Callable[..., Any], str]] = {
    "an unknown function": (
        lambda x, w, b: np.exp(x),
        "the planner does not support numpy.exp with these arguments; it supports einsum, @, +, maximum(x, 0), sum "
        "over one",
    ),
    "another maximum": (
        lambda x, w, b: np.maximum(x, 1),
        "the planner does not support numpy.maximum with these arguments",
    ),
    "an unknown function of arrays": (lambda x, w, b: np.sort(x), "the planner does not support numpy.sort"),
    "an array that is no input": (
        lambda x, w, b: x + np.ones(8),
        "'x' is combined with an array of shape (8,), which is not part of the program",
    ),
    "a number": (lambda x, w, b: x + 1, "'x' is combined with 1, which is not part"),
    "a question": (
        lambda x, w, b: x if x.sum(0) else w,
        "'reduce_sum1' has no values yet",
    ),
    "an index": (lambda x, w, b: x[0], "'x' is indexed with 0; the planner supports einsum, @, +"),
    "numbers": (lambda x, w, b: np.asarray(x), "'x' has no values yet; the planner supports einsum"),
    "shapes that do not fit": (lambda x, w, b: x @ x, "matmul1: the shapes (4, 8) and (4, 8) do not fit: 8 columns"),
    "nothing returned": (
        lambda x, w, b: None,
        "the program must return one tensor that it has computed; it returned",
    ),
    "an input returned": (
        lambda x, w, b: x,
        "the program must return one tensor that it has computed; it returned tensor 'x' of",
    ),
    "another mesh": (
        lambda x, w, b: mesh_split(x, mesh(data=4), ("data", None)),
        "'x' is annotated on a mesh 4; the program is planned for 2x2",
    ),
    "which axis": (
        lambda x, w, b: split(x, 0, 2),
        "'x' cannot be split into 2 parts: of the axes of the mesh 2x2 2 have that many devices; use mesh_split",
    ),
    "no axis": (lambda x, w, b: split(x, 0, 3), "'x' cannot be split into 3 parts: of the axes of the mesh 2x2 none "),
    "unequal parts": (
        lambda x, w, b: mesh_split(x @ w, GRID, (("data", "model"), None)).reshape(2, 16) @ split(w, 0, 5),
        "'w' cannot be split into 5 parts",
    ),
    "no such dimension": (
        lambda x, w, b: split(x, 2, 4),
        "'x' of shape (4, 8): there is no dimension 2: the tensor of shape (4, 8) has 2",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_is_refused_by_the_name_of_the_tensor(what: str) -> None:
    does, wanted = REFUSED[what]
    with pytest.raises(LayoutError) as caught:
        follow(does, {"x": SHAPES["x"]}, {"w": SHAPES["w"], "b": SHAPES["b"]}, GRID)
    assert str(caught.value).startswith(wanted), caught.value


# === Functions of JAX ===


SUPPORT = Path("tests", "support")


@pytest.mark.skipif(find_spec("jax") is None, reason="jax is not installed: pip install -e '.[jax]'")
@pytest.mark.parametrize("name", ["from_jax_checks.py", pytest.param("from_jax_enumerated.py", marks=pytest.mark.slow)])
def test_graphs_compute_what_jax_does_and_the_rest_is_refused(name: str) -> None:
    checks = SUPPORT / name
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-W", "error", str(checks)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-5000:]
    cases = sum(line.count(".") for line in done.stdout.splitlines() if re.fullmatch(r"\.+ *\[ *\d+%\]", line))
    assert cases >= len(re.findall(r"^def test_", (ROOT / checks).read_text(encoding="utf-8"), re.MULTILINE)) > 3


def test_without_jax_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jax", None)
    with Refused("no JAX", install="pip install -e '.[jax]'", error=LayoutError):
        from_jax(lambda x: x, (4,), devices=2)
