"""Named cost records: an all-reduce costs its halves, a larger message costs more, and old traces keep their prices."""

from __future__ import annotations

import pytest

from lib import COSTS, Setting
from lib.ledger.named_costs import MEANINGS
from lib.ledger.setting import costs_from_json, setting_to_json
from puzzles.catalog.schedule import CLASSICS, PUZZLES

HALVES = ("scatterreduce", "allgather")
MODERN = {
    puzzle.goal.costs.name: puzzle.goal.costs
    for slug, puzzle in PUZZLES.items()
    if slug not in CLASSICS.slugs and puzzle.goal.size.ranks > 1 and puzzle.goal.costs.name != "classic"
}
"""The other costs of the puzzles after the classics that have several ranks."""

ALL_THREE = {name: costs for name, costs in MODERN.items() if all(map(costs.priced, ("allreduce", *HALVES)))}
BY_SIZE = {name: costs for name, costs in ALL_THREE.items() if costs.beta}


def test_only_the_papers_pipelines_leave_a_collective_without_a_price() -> None:
    assert MODERN.keys() - ALL_THREE.keys() == {"stages", "parts", "pairs", "gathers", "straggler", "vocabulary"} | {
        *("vocabulary_shards", "sequences", "context", "grouped", "outer_steps", "matrices", "context on machines")
    }
    assert ALL_THREE.keys() - BY_SIZE.keys() == {"long_quarters"}, "its halves cost half of an all-reduce, by value"


@pytest.mark.sampled(40)
@pytest.mark.parametrize("name", ALL_THREE)
@pytest.mark.parametrize("ranks", range(2, 17))
def test_an_all_reduce_costs_what_its_halves_cost(name: str, ranks: int) -> None:
    """Up to a tick for each call, since prices are rounded up."""
    costs, group = COSTS[name], range(ranks)
    for elements in (costs.weight, costs.activation, costs.weight // 4):
        whole = costs.transfer("allreduce", 1, elements, group)
        scattered, gathered = (
            costs.transfer(HALVES[0], 1, elements, group),
            costs.transfer(HALVES[1], 1, elements // ranks, group),
        )
        assert abs(whole - scattered - gathered) <= 2


@pytest.mark.parametrize("name", [name for name, costs in BY_SIZE.items() if costs.time_unit == "steps"])
def test_a_message_of_a_weight_costs_more_than_one_of_an_activation(name: str) -> None:
    costs = COSTS[name]
    weight, activation = (costs.transfer("pass_to", 1, size, (0, 1)) for size in (costs.weight, costs.activation))
    assert weight > activation > 0
    assert costs.transfer("receive", 1, costs.weight, (0, 1)) == 0, "its sender has paid"


@pytest.mark.parametrize(
    ("name", "ranks", "steps"),
    [
        ("ring", range(4), {"allreduce": 0.6, "allgather": 0.3, "scatterreduce": 0.3, "pass_to": 0.8}),
        ("overlap", range(4), {"allreduce": 1.0, "allgather": 0.5, "scatterreduce": 0.5}),
        ("slow", range(4), {"allreduce": 4.0, "allgather": 2.0, "scatterreduce": 2.0}),
        ("buckets", range(4), {"allreduce": 1.4, "allgather": 0.7, "scatterreduce": 0.7}),
        ("islands", range(4), {"allreduce": 0.6, "allgather": 0.3}),
        ("islands", (0, 4), {"allreduce": 1.6}),
    ],
)
def test_a_weight_on_these_ranks_takes_these_steps(name: str, ranks: range, steps: dict[str, float]) -> None:
    costs = COSTS[name]
    for operation, expected in steps.items():
        size = costs.weight // len(ranks) if operation == "allgather" else costs.weight
        assert costs.steps(costs.transfer(operation, 1, size, ranks)) == expected


@pytest.mark.parametrize("name", sorted(COSTS))
def test_a_known_record_is_written_as_its_name(name: str) -> None:
    assert setting_to_json(Setting(name)) == {"costs": name}


def test_what_people_write_means_the_prices_of_today() -> None:
    assert Setting("slow").costs is COSTS["slow"] is costs_from_json("slow")
    assert MEANINGS.keys() == COSTS.keys()
