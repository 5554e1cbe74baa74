"""Fronts of cost and loads: the minimum that trying every choice finds, for random tables."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from lib.layout.planning import pareto
from lib.layout.planning.elimination import FORBIDDEN, Elimination
from lib.layout.planning.loads import Load, narrowed, total
from lib.layout.planning.memory_cap import total_cost
from lib.layout.planning.pareto import ParetoElimination
from lib.layout.planning.partial_plans import TooManyPlans, undominated

MOMENTS = 5


def random_problem(rng: np.random.Generator):
    """Costs, costs of pairs, some of them forbidden, and loads of one, two or three variables."""
    sizes = rng.integers(1, 5, size=rng.integers(1, 7))
    costs = [rng.integers(0, 8, size).astype(float) for size in sizes]
    pairs = {}
    scopes = [(int(v),) for v in rng.integers(0, len(sizes), 3)]
    for i in range(2 * len(sizes)):
        names = tuple(rng.permutation(len(sizes))[: rng.integers(1, 4)].tolist())
        scopes.append(names)
        if len(names) > 1 and i < len(sizes):
            table = rng.integers(0, 8, sizes[list(names)]).astype(float)
            pairs[names] = np.where(rng.random(table.shape) < 0.1, FORBIDDEN, table)
    loads = []
    for names in scopes:
        start = int(rng.integers(0, MOMENTS))
        stop = int(rng.integers(start, MOMENTS)) + 1
        loads.append(Load(names, start, stop, rng.integers(0, 9, sizes[list(names)]).astype(float)))
    return costs, pairs, loads


def least_by_trying(costs, pairs, loads, caps) -> float:
    found = np.inf
    for chosen in product(*(range(len(table)) for table in costs)):
        if (total(loads, chosen, MOMENTS) <= caps).all():
            found = min(found, total_cost(costs, pairs, chosen))
    return found if found < FORBIDDEN else np.inf


@pytest.mark.sampled(40)
@pytest.mark.parametrize("seed", range(150))
def test_the_minimum_under_caps_is_what_trying_everything_finds(seed):
    """The bounds may have only some of the loads in their tables; more of them are exact all the same."""
    rng = np.random.default_rng(seed)
    costs, pairs, loads = random_problem(rng)
    caps = rng.integers(8, 60, MOMENTS).astype(float)
    prices = rng.integers(0, 3, MOMENTS) * rng.random(MOMENTS)
    weighed, tables = list(costs), dict(pairs)
    for names, start, stop, table in loads[: rng.integers(0, len(loads) + 1)]:
        price = prices[start:stop].sum()
        if len(names) == 1:
            weighed[names[0]] = weighed[names[0]] + price * table
        else:
            tables[names] = tables[names] + price * table if names in tables else price * table
    priced = Elimination(weighed, tables)
    through = [table - float(prices @ caps) for table in priced.through()]
    least = least_by_trying(costs, pairs, loads, caps)
    for target in (least - 1, least, least + 5) if least < np.inf else (60.0,):
        keep = [np.flatnonzero(table <= target + 1e-6) for table in through]
        held, offset = narrowed(loads, keep), float(prices @ caps)
        fronts = ParetoElimination(costs, pairs, keep, held, caps, target + 1e-6, priced, offset)
        chosen = fronts.best() if all(map(len, keep)) else None
        if least == np.inf or target < least:
            assert chosen is None
        else:
            assert total_cost(costs, pairs, chosen) == least
            assert (total(loads, chosen, MOMENTS) <= caps).all()


@pytest.mark.parametrize("moments", [0, 1, 3])
def test_a_row_is_dropped_if_and_only_if_another_one_is_as_good_in_everything(moments):
    rng = np.random.default_rng(moments)
    key, cost = rng.integers(0, 4, 60), rng.integers(0, 6, 60).astype(float)
    loads = rng.integers(0, 4, (moments, 60)).astype(float)
    kept = undominated(key, cost, loads).tolist()
    rows = np.vstack([cost, loads])

    def beats(i: int, j: int) -> bool:
        return bool(key[i] == key[j] and (rows[:, i] <= rows[:, j]).all())

    assert kept
    assert not any(beats(i, j) for i in kept for j in kept if i != j)
    assert all(any(beats(i, j) for i in kept) for j in range(60))


def test_fronts_that_grow_too_large_are_refused(monkeypatch):
    costs = [np.arange(4.0)] * 3
    pairs = {(0, 1): np.zeros((4, 4)), (1, 2): np.zeros((4, 4))}
    loads = [Load((v,), 0, 1, np.arange(4.0)[::-1]) for v in range(3)]
    keep = [np.arange(4)] * 3
    priced = Elimination(costs, pairs)
    priced.through()

    def fronts() -> ParetoElimination:
        return ParetoElimination(costs, pairs, keep, loads, np.array([5.0]), 20.0, priced, 0.0)

    assert sum(fronts().best()) == 4
    for limit in ("MAX_PARTIAL_PLANS", "MAX_LOADS"):
        with monkeypatch.context() as patch:
            patch.setattr(pareto, limit, 3)
            with pytest.raises(TooManyPlans, match=r"would have to compare [\d,]+ partial plans"):
                fronts().best()
