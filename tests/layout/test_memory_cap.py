"""The search under a cap, on tables of random numbers: it finds the same as trying everything."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from lib.layout import LayoutError
from lib.layout.planning.elimination import FORBIDDEN, Elimination
from lib.layout.planning.memory_cap import cheapest
from tests.support.layout_strategies import brute_force
from tests.support.selection import first_of_each_kind


def random_problem(seed: int) -> SimpleNamespace:
    """Up to six variables of up to four values; small numbers, so that there are many ties."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 5, rng.integers(1, 7))
    top = int(rng.choice([4, 100]))
    costs = [rng.integers(0, top, n).astype(float) for n in sizes]
    memory = [rng.integers(0, top, n).astype(float) for n in sizes]
    pairs = {
        (u, v): rng.integers(0, top, (sizes[u], sizes[v])).astype(float)
        for u in range(len(sizes))
        for v in range(u + 1, len(sizes))
        if rng.random() < 0.5
    }
    return SimpleNamespace(costs=costs, memory=memory, pairs=pairs)


def cost(problem: SimpleNamespace, chosen: list[int]) -> float:
    alone = sum(table[state] for table, state in zip(problem.costs, chosen))
    return alone + sum(table[chosen[u], chosen[v]] for (u, v), table in problem.pairs.items())


def seeds(count: int) -> list[Any]:
    """Every eighth is enough for `make test`."""
    return first_of_each_kind(((seed,) for seed in range(count)), lambda case: case[0] // 8)


@pytest.mark.parametrize("seed", seeds(120))
def test_the_minimum_cost_under_every_cap(seed: int):
    problem = random_problem(seed)
    assert cost(problem, cheapest(problem.costs, problem.memory, problem.pairs, None)) == brute_force(problem, None)
    low, high = (sum(f(table) for table in problem.memory) for f in (np.min, np.max))
    for cap in np.unique(np.linspace(low, high, 5).astype(int)):
        if cap < low:
            continue
        chosen = cheapest(problem.costs, problem.memory, problem.pairs, float(cap))
        assert sum(table[state] for table, state in zip(problem.memory, chosen)) <= cap
        assert cost(problem, chosen) == brute_force(problem, int(cap))


@pytest.mark.parametrize("seed", seeds(60))
def test_values_that_do_not_go_together_are_never_chosen(seed: int):
    problem = random_problem(seed)
    rng = np.random.default_rng(seed)
    for table in problem.pairs.values():
        table[rng.random(table.shape) < 0.4] = FORBIDDEN
    high = sum(float(table.max()) for table in problem.memory)
    for cap in sorted({int(high * part) for part in (0.3, 0.5, 0.7, 1)}):
        least_of_all = brute_force(problem, cap)
        if least_of_all is not None and least_of_all < FORBIDDEN:
            chosen = cheapest(problem.costs, problem.memory, problem.pairs, float(cap))
            assert sum(table[state] for table, state in zip(problem.memory, chosen)) <= cap
            assert cost(problem, chosen) == least_of_all


@pytest.mark.parametrize("seed", seeds(20))
def test_the_bound_through_each_value_is_that_of_trying_everything(seed: int):
    problem = random_problem(seed)
    for v, through in enumerate(Elimination(problem.costs, problem.pairs).through()):
        for state, bound in enumerate(through):
            fixed = [np.where(np.arange(len(t)) == state, t, 1e9) if u == v else t for u, t in enumerate(problem.costs)]
            alone = SimpleNamespace(costs=fixed, memory=problem.memory, pairs=problem.pairs)
            assert bound == pytest.approx(brute_force(alone, None))


def test_too_many_partial_plans_are_refused_with_the_numbers(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("lib.layout.planning.pareto.MAX_PARTIAL_PLANS", 1)

    def all_of_them() -> None:
        for seed in range(120):  # most are decided by the bounds alone
            problem = random_problem(seed)
            low = sum(float(table.min()) for table in problem.memory)
            cheapest(problem.costs, problem.memory, problem.pairs, low + 3)

    with pytest.raises(LayoutError, match=r"\d+ partial plans at once; \d+ is the limit: configure"):
        all_of_them()


def test_what_is_too_entangled_is_refused_with_the_numbers():
    n, size = 6, 60
    costs = [np.zeros(size)] * n
    pairs = {(u, v): np.zeros((size, size)) for u in range(n) for v in range(u + 1, n)}
    with pytest.raises(
        LayoutError, match=r"too entangled .* 5 tensors or operators of up to 60 choices .* 46,656,000,000"
    ):
        Elimination(costs, pairs)
