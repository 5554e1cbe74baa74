"""Plans on an axis for each prime factor of the devices: parts of axes, and devices that stay unused."""

from __future__ import annotations

from math import inf

import pytest
from hypothesis import given

from lib.layout import (
    DeviceMatrix,
    Graph,
    LayoutError,
    TensorLayout,
    candidates,
    mesh,
    plan,
    propagate,
    training,
)
from lib.layout.choices import BYTES, Choices
from lib.layout.examples import embedding_and_head, megatron_mlp
from lib.layout.integer_program import IntegerProgram, Solved
from lib.layout.layouts import placement, prime_factors
from tests.layout.test_peak import assert_peaks_are_measured
from tests.layout.test_propagation import small_graphs
from tests.support.examples import examples
from tests.support.layout_strategies import assert_same_program


@pytest.mark.parametrize(("number", "factors"), [(1, []), (2, [2]), (8, [2, 2, 2]), (12, [2, 2, 3]), (7, [7])])
def test_prime_factors(number: int, factors: list[int]):
    assert prime_factors(number) == factors


@examples(60)
@given(small_graphs())
def test_more_choices_never_move_more(graph):
    found = plan(graph, every_split=True)
    assert found.bytes <= plan(graph).bytes
    assert_same_program(found)


def test_the_devices_of_a_mesh_stay_where_they_are():
    """An axis of 4 becomes two of 2: the same split of the same devices."""
    graph = Graph(mesh=DeviceMatrix((4, 2), (7, 6, 5, 4, 3, 2, 1, 0)))
    finer = graph.on_prime_axes().mesh
    assert finer.shape == (2, 2, 2)
    before = TensorLayout((8, 8), graph.mesh, ((0,), (1,)))
    after = TensorLayout((8, 8), finer, ((0, 1), (2,)))
    assert [before.part(d) for d in range(8)] == [after.part(d) for d in range(8)]


@pytest.mark.slow
def test_parts_of_axes_may_move_less():
    graph = embedding_and_head()
    full, every = (plan(graph, memory_cap=52_000, every_split=each) for each in (False, True))
    assert (full.bytes, every.bytes) == (178_176, 163_840)
    assert every.memory <= 52_000
    assert_peaks_are_measured(every)
    known = {
        name: {tuple(map(placement, c.inputs)) for c in candidates(graph, op)} for name, op in graph.operators.items()
    }
    new = [name for name, op in every.operators.items() if tuple(map(placement, op.inputs)) not in known[name]]
    assert new, "otherwise the plan without every_split would have been as cheap"


@pytest.mark.slow
def test_configured_strategies_hold_there_too():
    graph = megatron_mlp()
    graph.shard("matmul1", ((2, 1), (1, 4)))
    found = plan(graph, every_split=True)
    assert found.operators["matmul1"].strategy == ((2, 1), (1, 4))
    step = training(graph, "sgd")
    assert step.on_prime_axes().step is step.step
    assert step.on_prime_axes().strategies == step.strategies


@pytest.mark.slow
@pytest.mark.parametrize("is_found", [False, True])
def test_without_a_proof_the_plan_on_the_given_axes_counts_too(monkeypatch: pytest.MonkeyPatch, is_found: bool) -> None:
    """A search over parts of axes that ends with nothing, or with a dearer plan, is no reason for a worse answer."""
    graph, solve = embedding_and_head(), IntegerProgram.solve
    graph = graph.copied(mesh(data=2, model=4))
    own = plan(graph, memory_cap=52_000)
    finer = graph.on_prime_axes()
    finer.shard("head", ((1, 1, 8), (1, 8)))
    finer.shard("gelu", ((8, 1, 1),))
    dearer = propagate(finer)
    assert dearer.bytes > own.bytes

    def ended(program: IntegerProgram, effort: int, known: float = inf) -> Solved:
        if len(program.graph.mesh.shape) == 2:
            return solve(program, effort, known)
        return Solved(dearer if is_found else None, 1_000)

    monkeypatch.setattr(IntegerProgram, "solve", ended)
    found = plan(graph, memory_cap=52_000, every_split=True)
    assert (found.bytes, found.at_least) == (own.bytes, 1_000)
    assert found.gap > 0
    monkeypatch.setattr(IntegerProgram, "solve", lambda *_: Solved(None, 1_000))
    with pytest.raises(LayoutError, match="no plan was found"):
        plan(graph, memory_cap=52_000, every_split=True)


def test_a_program_that_is_too_large_to_write_down_finds_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lib.layout.integer_program.MAX_VARIABLES", 1_000)
    program = IntegerProgram(Choices(embedding_and_head(), {}, True), BYTES, 52_000)
    assert program.solve(60) == (None, 0)
