"""The integer program: it plans to the end, and where it is stopped, it says how close it is."""

from math import prod

import numpy as np
import pytest

from lib.layout import LayoutError, P, exact, mesh, plan, training
from lib.layout.choices import BYTES, Choices, Objective
from lib.layout.exact import alike
from lib.layout.examples import embedding_and_head, feed_forward
from lib.layout.integer_program import IntegerProgram, undivided
from tests.support.layout_examples import grouped_attention, swiglu, transformer
from tests.support.layout_strategies import assert_same_program, eight_devices
from tests.support.refusals import Refused

GRID = mesh(data=2, model=4)


def pins(layers: int) -> dict[str, P]:
    columns, rows, sequence = P(None, "model"), P("model", None), P("data", "model", None)
    found = {"x": sequence, f"l{layers - 1}.lowered": sequence}
    for layer in range(layers):
        found |= {f"l{layer}.{name}": columns for name in ("wq", "wk", "wv", "gate", "up")}
        found |= {f"l{layer}.{name}": rows for name in ("wo", "down")}
    return found


@pytest.mark.slow
def test_grouped_attention_with_rotary_embedding_is_planned_to_the_end() -> None:
    graph = grouped_attention(1, GRID)
    found = plan(graph, layouts=pins(1), effort=5_000)
    assert (found.at_least, found.gap) == (None, 0)
    rng = np.random.default_rng(0)
    given = {name: rng.standard_normal(graph.shapes[name]) / 8 for name in graph.sources}
    alone, together = graph.run(given), found.values(given)
    assert all(np.allclose(together[name], alone[name]) for name in alone)


@pytest.mark.slow
def test_a_fraction_of_a_copy_is_no_cheaper_than_the_copy() -> None:
    """Queries, keys and values read one tensor, gate and up another: without a gap, little is left to search."""
    graph = grouped_attention(1, GRID)
    caps = {name: prod(graph.shapes[name]) // 2 for name, role in graph.sources.items() if role == "parameter"}
    built = IntegerProgram(Choices(graph, caps, True), BYTES)
    built.program.is_whole = [False] * len(built.program.costs)
    relaxed = built.program.solve(built.program.costs, 60).bound
    assert round(relaxed) == plan(graph, tensor_caps=caps).bytes == 280_576


@pytest.mark.slow
def test_identical_layers_cost_the_same_each() -> None:
    one, two = (plan(grouped_attention(n, GRID), layouts=pins(n), effort=5_000).bytes for n in (1, 2))
    assert two == 2 * one


@pytest.mark.slow
def test_identical_layers_of_a_large_step_are_laid_out_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    """No plan of this step moves less; between the first and the last layer, all are the same."""
    monkeypatch.setattr(exact, "MAX_QUICK_CHOICES", 0)
    forward = transformer(5, mesh(data=2, model=2), 4, 8, 4, 16)
    sizes = {name: int(np.prod(forward.shapes[name])) for name in forward.sources}
    caps = {name: 2 * sizes[name] for name, role in forward.sources.items() if role == "parameter"}
    step = training(forward, "sgd")
    found = plan(step, tensor_caps=caps)
    assert found.tied
    assert "identical layers are laid" in found.explain()
    for name in ("q", "scores", "up", "q.grad", "wq.grad"):
        layers = [found.operators[f"l{layer}.{name}"] for layer in (1, 2, 3) if f"l{layer}.{name}" in step.operators]
        assert len({(way.inputs, way.output) for way in layers}) <= 1
    every = IntegerProgram(Choices(step, caps, True), BYTES).solve(5_000)
    assert found.bytes == every.bound
    assert_same_program(found)


def test_only_what_has_the_same_surroundings_is_alike() -> None:
    same = alike(transformer(4, mesh(data=2, model=2), 4, 8, 4, 16))
    assert same["l2.scores"] == same["l1.scores"] == "l0.scores"
    assert "l0.k" not in same, "queries and keys are different inputs of the scores"
    assert same["l3.wq"] == same["l2.wq"]
    assert not alike(feed_forward())


@pytest.mark.slow
def test_a_search_that_ends_early_states_the_bound_and_the_gap() -> None:
    graph = embedding_and_head()
    cap = plan(graph).memory // 2
    best, early = (plan(graph, memory_cap=cap, effort=effort) for effort in (None, 2))
    assert best.at_least is None
    assert early.memory <= cap
    cost = Objective.of_graph(graph, exact.USUAL_FLOPS).of_plan
    assert early.at_least is not None
    assert early.at_least <= cost(best) < cost(early)
    assert early.gap == 1 - early.at_least / cost(early)
    assert f"{early.at_least:,}" in early.explain()


@pytest.mark.slow
def test_the_same_effort_has_the_same_plan_however_long_it_takes() -> None:
    """A search is limited in the solver's steps: it is interrupted at the same step, with the same plan."""
    cap = plan(embedding_and_head()).memory // 2
    for effort in (2, 5):
        first, second = (plan(embedding_and_head(), memory_cap=cap, effort=effort) for _ in range(2))
        assert first.explain() == second.explain()
        assert (first.at_least, first.gap) == (second.at_least, second.gap)


def test_an_impossible_cap_names_the_smallest_memory() -> None:
    graph = feed_forward()
    program = IntegerProgram(Choices(graph, {}, True), BYTES, 8_000)
    with Refused("no plan fits", cap=8000, error=LayoutError):
        program.solve(60)


def test_without_the_solver_the_refusal_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exact, "is_solver_here", lambda: False)
    with Refused("no highspy", install="pip install -e '.[exact]'", error=LayoutError):
        plan(swiglu())


def test_moves_that_are_left_out_cost_what_others_in_their_place_do() -> None:
    layouts = eight_devices((16, 16))[::2]
    costs = BYTES.between(layouts, layouts, 4)
    arcs = undivided(costs)
    assert arcs is not None
    assert 0 < len(arcs) < len(layouts) * (len(layouts) - 1)
    through = np.full(costs.shape, np.inf)
    np.fill_diagonal(through, 0)
    for i, j, cost in arcs:
        through[i, j] = cost
    for k in range(len(layouts)):  # Floyd and Warshall
        through = np.minimum(through, through[:, [k]] + through[[k]])
    assert (through == costs).all()


def test_a_move_that_costs_more_than_two_others_needs_each_on_its_own() -> None:
    assert undivided(np.array([[0.0, 1, 3], [1, 0, 1], [3, 1, 0]])) is None
    assert undivided(np.array([[0.0, 1, 2], [1, 0, 1], [2, 1, 0]])) == [(0, 1, 1), (1, 0, 1), (1, 2, 1), (2, 1, 1)]
