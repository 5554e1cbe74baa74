"""What a setting is called in words: prices by size, in steps or in microseconds."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest

from lib import CLASSIC_SETTING, COSTS, Setting
from puzzles.catalog.schedule import differences, price_text
from tests.screens.texts import approved


@pytest.mark.parametrize(
    ("costs", "call", "words"),
    [
        ("classic", "forward", "1 step"),
        ("classic", "dispatch", ""),
        ("buckets", "allreduce", "0.15 steps a hop and 1 step for each 786,432 elements sent"),
        ("islands", "pass_to", "1 step for each 655,360 elements sent"),
        ("hopper_infiniband", "forward", "172 us"),
        ("hopper_infiniband", "update", "0 us"),
        ("hopper_infiniband", "allgather", "5 us a hop and 1 us for each 25,000 elements sent"),
        ("hopper_machines", "allreduce", "2 us a hop and 1 us for each 225,000 elements sent"),
        ("hopper_host", "fetch", "1 us for each 27,500 elements"),
        ("hopper_host", "allreduce", ""),
    ],
)
def test_a_price_in_words(costs: str, call: str, words: str) -> None:
    assert price_text(COSTS[costs], call) == words


def test_a_price_by_size_in_steps() -> None:
    costs = replace(COSTS["classic"], name="mine", beta={"allreduce": Fraction(1, 65536)}, alpha={"receive": 10})
    approved("setting_text", "a price by size in steps", price_text(costs, "allreduce"))
    approved("setting_text", "a price by size in steps, 2", price_text(costs, "receive"))


def test_a_price_between_machines_has_a_row_of_its_own() -> None:
    rows = differences(Setting("hopper_machines"), ("allreduce", "loss", "update"))
    approved("setting_text", "a price between machines has a row of its own", rows[:2])
    assert [row.what for row in differences(Setting("hopper_nvlink"), ("allreduce",))][:2] == [
        "`allreduce`",
        "a weight",
    ]


def test_the_size_of_a_weight_is_shown_where_it_is_not_the_classic_one() -> None:
    assert ("a weight", "16,777,216 elements", "262,144 elements") in differences(Setting("hopper_nvlink"), ())
    assert differences(CLASSIC_SETTING, ()) == []
