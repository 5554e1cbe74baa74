"""Costs of H100-like machines: their prices in microseconds are the hardware's speeds."""

from __future__ import annotations

from fractions import Fraction
from math import ceil

import pytest

from lib import COSTS, Costs
from lib.ledger.named_costs import HOPPER

GIGA = 10**9


@pytest.mark.parametrize("costs", HOPPER, ids=lambda costs: costs.name)
def test_every_record_counts_in_microseconds(costs: Costs) -> None:
    assert (costs.unit, costs.time_unit, costs.text(1234)) == (1, "us", "1234")
    assert COSTS[costs.name] is costs


@pytest.mark.parametrize(
    ("name", "forward"),
    [
        ("hopper_infiniband", 172),
        ("hopper_nvlink", 172),
        ("hopper_node", 172),
        ("hopper_machines", 172),
        ("hopper_long_machines", 344),
        ("hopper_narrow", 43),
        ("hopper_host", 774),
    ],
)
def test_a_forward_runs_at_400_tflops_and_a_backward_takes_twice_as_long(name: str, forward: int) -> None:
    costs = COSTS[name]
    flops = 2 * costs.hidden**2 * costs.length
    assert costs.product("forward") * Fraction(1, 10**6) == Fraction(flops, 400 * 10**12)
    assert costs.product("backward") == 2 * costs.product("forward")
    assert costs.duration("forward") == forward


@pytest.mark.parametrize(
    ("name", "ranks", "gigabytes", "hop"),
    [
        ("hopper_infiniband", range(8), 50, 5),
        ("hopper_nvlink", range(8), 450, 2),
        ("hopper_node", range(8), 450, 2),
        ("hopper_machines", range(4), 450, 2),
        ("hopper_machines", range(0, 16, 4), 50, 5),
        ("hopper_machines", range(16), 50, 5),
        ("hopper_long_machines", (4, 7), 450, 2),
        ("hopper_long_machines", (3, 4), 50, 5),
        ("hopper_narrow", range(8), 50, 5),
    ],
)
def test_a_ring_sends_elements_of_two_bytes_over_its_slowest_link(
    name: str, ranks: tuple[int, ...], gigabytes: int, hop: int
) -> None:
    costs, n = COSTS[name], len(ranks)
    microseconds = Fraction(2 * costs.weight, gigabytes * GIGA) * 10**6
    assert costs.transfer("allreduce", 1, costs.weight, ranks) == 2 * (n - 1) * hop + ceil(
        microseconds * 2 * (n - 1) / n
    )
    halves = costs.transfer("scatterreduce", 1, costs.weight, ranks) + costs.transfer(
        "allgather", 1, costs.weight // n, ranks
    )
    assert 0 <= halves - costs.transfer("allreduce", 1, costs.weight, ranks) <= 1
    assert costs.transfer("pass_to", 1, costs.activation, ranks[:: n - 1]) == hop + ceil(
        Fraction(2 * costs.activation, gigabytes * GIGA) * 10**6
    )


def test_a_copy_to_the_host_or_back_takes_the_time_of_pcie() -> None:
    costs = COSTS["hopper_host"]
    assert costs.by_size("offload", 1, costs.activation) == costs.by_size("fetch", 1, costs.activation) == 1831
    assert ceil(Fraction(2 * costs.activation, 55 * GIGA) * 10**6) == 1831
