"""Costs by size: what communication and matrix products take, against formulas written out here."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from math import ceil
from types import MappingProxyType
from typing import Any

import pytest

from lib import COSTS, Costs, Model, Setting, Size, referee
from lib.ledger.costs import CLASSIC
from puzzles.catalog.schedule import PUZZLES
from puzzles.sandbox.worker.stages.functions import Schedule
from puzzles.tracks.schedule.judge import request_at
from tests.support import finished
from tests.support.step_costs import STEP_COSTS

ALPHA, BETA = {"allreduce": 3, "pass_to": 7}, {"allreduce": Fraction(1, 1000), "pass_to": Fraction(3, 2)}
SIZED = Costs("sized", alpha=MappingProxyType(ALPHA), beta=MappingProxyType(BETA), hidden=8, length=4)


@pytest.mark.parametrize("n", [1, 2, 3, 8])
@pytest.mark.parametrize("elements", [0, 1, 64, 10**6])
def test_a_ring_takes_alpha_for_each_hop_and_beta_for_each_element_sent(n: int, elements: int) -> None:
    sent = 2 * (n - 1) * elements // n
    expected = 3 + 3 * 2 * (n - 1) + ceil(Fraction(sent, 1000))
    assert SIZED.transfer("allreduce", 1, elements, range(n)) == expected
    assert SIZED.transfer("pass_to", 2, elements, (0, 1)) == 2 * 2 + 7 + ceil(Fraction(3 * elements, 2))
    assert SIZED.transfer("allgather", 1, elements, range(n)) == 3


def test_a_group_in_several_machines_takes_longer() -> None:
    islands = STEP_COSTS["islands"]
    assert islands.transfer("allreduce", 1, 0, (4, 5, 6, 7)) == 3
    assert islands.transfer("allreduce", 1, 0, (3, 4)) == 12
    assert islands.transfer("pass_to", 1, 0, (3, 4)) == islands.transfer("pass_to", 1, 0, (0, 1)) == 2


def test_a_bucket_pays_for_its_call_once() -> None:
    assert [STEP_COSTS["buckets"].transfer("allreduce", k, 0, range(4)) for k in (1, 2, 6)] == [10, 15, 35]


def test_a_share_of_a_weight_takes_its_share_of_the_time_rounded_up() -> None:
    assert [CLASSIC.duration("forward", 1, held, 4) for held in (1, 2, 3, 4)] == [3, 5, 8, 10]
    assert CLASSIC.duration("forward", 2, 1, 4) == 5
    assert CLASSIC.duration("update", 1, 1, 4) == 5


def test_matrix_products_are_priced_by_their_size() -> None:
    """2 h h t for each batch, and twice that for a backward (Kaplan et al. 2020, section 2.1)."""
    costs = Costs("flops", hidden=8, length=4, flops_per_tick=100)
    assert costs.duration("forward", 3) == ceil(Fraction(3 * 2 * 8 * 8 * 4, 100))
    assert costs.duration("backward", 3) == ceil(Fraction(3 * 4 * 8 * 8 * 4, 100))
    assert costs.duration("forward", 3, 1, 2) == ceil(Fraction(3 * 2 * 8 * 8 * 4, 200))
    assert costs.duration("update") == 5


async def sends(model: Model) -> None:
    weight, state = model.load_weights(0)
    if model.rank == 0:
        await model.pass_to(1, (weight, state))
    else:
        await model.receive(0)
    inp = model.get_activation([model.rank])
    grad, _ = model.backward(0, inp, model.loss(model.forward(0, inp, weight)), weight)
    grad = await model.allreduce(grad, 0)
    model.set_final_weight(0, model.update(0, grad, weight, state)[0])


def test_a_run_and_the_referee_agree_on_times_by_size() -> None:
    outcome = finished(sends, 1, 2, 2, setting=Setting(SIZED))
    message = 2 * 2 + 7 + ceil(Fraction(3 * 128, 2))
    summed = 3 + 3 * 2 + 1
    report = referee(outcome.trace)
    assert report.error is None
    assert report.makespan == (message + 4 + 10 + 10 + summed + 5) / 10


def test_the_request_to_a_sandbox_carries_the_setting() -> None:
    puzzle: Any = PUZZLES["basic"]
    assert request_at(puzzle, Size(1, 2, 3)).data == {"size": [1, 2, 3]}
    assert Schedule().prepare({"size": [1, 2, 3]}) == (Size(1, 2, 3), Setting())
    setting = Setting(COSTS["slow"], (("dp", 3),), 4, "block", "local")
    other = replace(puzzle, goal=replace(puzzle.goal, setting=setting))
    assert Schedule().prepare(request_at(other, Size(1, 2, 3)).data) == (Size(1, 2, 3), setting)
