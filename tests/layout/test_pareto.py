"""Fronts of cost and memory."""

from __future__ import annotations

import numpy as np
import pytest

from lib.layout.planning import pareto
from lib.layout.planning.elimination import Elimination, TooEntangledError
from lib.layout.planning.pareto import ParetoElimination, undominated


@pytest.mark.parametrize("rows", [0, 1, 60])
def test_a_row_is_dropped_if_and_only_if_another_one_is_as_good_in_both(rows):
    rng = np.random.default_rng(rows)
    key, cost = rng.integers(0, 4, rows), rng.integers(0, 6, rows).astype(float)
    held = rng.integers(0, 4, rows).astype(float)
    kept = undominated(key, cost, held).tolist()

    def beats(i: int, j: int) -> bool:
        return bool(key[i] == key[j] and cost[i] <= cost[j] and held[i] <= held[j])

    assert not any(beats(i, j) for i in kept for j in kept if i != j)
    assert all(any(beats(i, j) for i in kept) for j in range(rows))


def test_fronts_that_grow_too_large_are_refused(monkeypatch):
    costs = [np.arange(4.0)] * 3
    pairs = {(0, 1): np.zeros((4, 4)), (1, 2): np.zeros((4, 4))}
    memory = [np.arange(4.0)[::-1]] * 3
    keep = [np.arange(4)] * 3
    priced = Elimination(costs, pairs)
    priced.through()

    def fronts() -> ParetoElimination:
        return ParetoElimination(costs, memory, pairs, keep, 5.0, 20.0, priced, 0.0)

    assert sum(fronts().best()) == 4
    for limit in ("MAX_PARTIAL_PLANS", "MAX_PAIRS"):
        with monkeypatch.context() as patch:
            patch.setattr(pareto, limit, 3)
            with pytest.raises(TooEntangledError, match=r"would have to compare [\d,]+ partial plans"):
                fronts().best()
