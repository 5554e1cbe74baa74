"""Gated MLPs, layer normalization, rotary embedding and experts: what they compute, and how they can be split."""

from __future__ import annotations

import numpy as np
import pytest

from lib.layout import Graph, LayoutError, mesh, plan
from tests.support.layout_examples import layer_norm, mixture_of_experts, rotary, swiglu
from tests.support.layout_strategies import assert_same_program


def numbers(graph: Graph) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {name: rng.standard_normal(graph.shapes[name]) for name in graph.sources}


def test_a_gated_mlp():
    graph = swiglu(devices=4, tokens=8, width=4, hidden=8)
    v = numbers(graph)
    gate = v["x"] @ v["gate"]
    right = (gate / (1 + np.exp(-gate)) * (v["x"] @ v["up"])) @ v["down"]
    assert np.allclose(graph.run(v)["lowered"], right)


def test_layer_normalization():
    graph = layer_norm(devices=4, tokens=8, width=4)
    v = {**numbers(graph), "epsilon": np.array([1e-5])}
    x = v["x"]
    right = (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5) * v["scale"] + v["shift"]
    assert np.allclose(graph.run(v)["shifted"], right)


def test_rotary_embedding_turns_pairs_of_numbers():
    graph = rotary(devices=2, batch=2, length=4, heads=2, each=4)
    v = numbers(graph)
    angles = np.arange(4)[:, None] * np.array([1.0, 0.1])
    v["cosines"], v["sines"] = (np.tile(f(angles), 2)[:, None, :] for f in (np.cos, np.sin))
    got = graph.run(v)
    pairs = got["queries"][..., :2] + 1j * got["queries"][..., 2:]
    turned = pairs * np.exp(1j * angles)[:, None, :]
    assert np.allclose(got["rotated"], np.concatenate([turned.real, turned.imag], axis=-1))


def test_each_token_goes_to_its_best_expert_while_there_is_room():
    graph = mixture_of_experts(devices=1, groups=2, tokens=4, experts=2, width=4, hidden=8)
    v = numbers(graph)
    got = graph.run(v)
    gates, capacity = got["gates"], 4
    right = np.zeros_like(v["x"])
    for group in range(2):
        taken = [0, 0]
        for token in range(4):
            expert = int(gates[group, token].argmax())
            if taken[expert] < capacity:
                hidden = np.maximum(v["x"][group, token] @ v["up"][expert], 0)
                right[group, token] = gates[group, token, expert] * (hidden @ v["down"][expert])
            taken[expert] += 1
    assert np.allclose(got["combined"], right)


def test_a_full_expert_takes_no_more_tokens():
    graph = Graph(1)
    graph.input("gates", (1, 4, 2))
    graph.route("table", "gates", 2)
    gates = np.array([[[3.0, 1], [2, 1], [5, 1], [0, 4]]])
    table = graph.run({"gates": gates})["table"]
    assert table[0, :, 0, :].tolist() == [[3, 0], [0, 2], [0, 0], [0, 0]]
    assert table[0, :, 1, :].tolist() == [[0, 0], [0, 0], [0, 0], [4, 0]]


def test_experts_on_their_own_devices_exchange_tokens_by_all_to_all():
    graph = mixture_of_experts()
    weight = 8 * 16 * 64 * 4
    found = plan(graph, tensor_caps={"up": weight // 8, "down": weight // 8, "x": 16 * 16 * 4, "combined": 16 * 16 * 4})
    assert found.operators["raised"].strategy[1] == (8, 1, 1), "each device has one expert"
    paid = {edge.tensor: found.redistribution(edge).names for edge in found.edges if edge.bytes}
    assert paid == {"sent": ("all-to-all",), "lowered": ("all-to-all",)}
    assert found.bytes == 2 * 7 * 8 * 4 * 16 * 4 * 8 // 8


@pytest.mark.sampled(1)
@pytest.mark.parametrize("build", [swiglu, layer_norm, rotary, mixture_of_experts])
def test_their_exact_plans_equal_one_device(build):
    graph = build()
    found = plan(graph, memory_cap=17_000 if build is layer_norm else plan(graph).memory * 3 // 4)
    values = {name: abs(value) + 1 for name, value in numbers(graph).items()}
    alone, together = graph.run(values), found.values(values)
    assert all(np.allclose(together[name], alone[name]) for name in alone)
    if build is not layer_norm:
        assert_same_program(found)


def test_an_odd_length_is_padded_and_then_split():
    """Seven rows on four devices: pad to eight, compute, and cut off what was added."""
    graph = Graph(mesh=mesh(data=4))
    graph.input("x", (7, 4))
    graph.parameter("w", (4, 4))
    graph.matmul("y", graph.pad("padded", "x", 0, after=1), "w")
    graph.slice("rows", "y", 0, 0, 7)
    graph.shard("y", ((4, 1), (1, 1)))
    found = plan(graph)
    assert found.operators["y"].local.local_shape == (2, 4)
    assert_same_program(found)


REFUSED = [
    (lambda g: g.concat("c", "x", "w", axis=0), "the shapes (4, 6), (6, 2) differ in more than axis 0"),
    (lambda g: g.concat("c", axis=0), "a concat takes one tensor or more"),
    (lambda g: g.slice("s", "x", 1, 4, 9), "axis 1 of shape (4, 6) has no part from 4 to 9"),
    (lambda g: g.slice("s", "x", 1, 3, 3), "no part from 3 to 3"),
    (lambda g: g.pad("p", "x", 0, before=-1), "whole number of zeros on each side; got -1 and 0"),
    (lambda g: g.top_k("t", "x", 7), "no 7 largest elements in the last axis of shape (4, 6)"),
    (lambda g: g.top_k("t", "x", True), "k is a whole number; got True"),
    (lambda g: g.route("r", "x", 0), "a capacity 1 or more; got (4, 6), 0"),
    (lambda g: g.scatter("s", "x", "w", 3), "vectors (..., e) and row numbers (...); got (4, 6) and (6, 2)"),
    (lambda g: g.multiply("m", "w", "x"), "the second is broadcast to the first"),
    (lambda g: g.repeat("r", "x", 5, 2), "there is no axis 5 in shape (4, 6, 2)"),
]


@pytest.mark.parametrize(("act", "sentence"), REFUSED)
def test_what_does_not_fit_is_refused(act, sentence):
    graph = Graph(2)
    graph.input("x", (4, 6))
    graph.parameter("w", (6, 2))
    with pytest.raises(LayoutError) as refusal:
        act(graph)
    assert sentence in str(refusal.value)
    assert list(graph.operators) == []
