"""`propagate(graph, full=...)` chooses what MindSpore's Sharding Propagation chose (docs/generate/mindspore.py)."""

from __future__ import annotations

import random
from math import prod

import numpy as np
import pytest

from docs.generate import mindspore, mindspore_page
from lib.layout import compared, cut, join, propagate, redistribute
from lib.layout.examples import feed_forward
from tests.support.layout_strategies import assert_same_program
from tests.support.mindspore_networks import SETTINGS, agreement, answers, data

NETWORKS = data()["networks"]
FOUND_WITH = [network for network in NETWORKS if network["seed"] == mindspore.FOUND_WITH]
APART = [network for network in NETWORKS if network["seed"] != mindspore.FOUND_WITH]


def test_the_network_of_the_documentation():
    graph = feed_forward()
    graph.shard("matmul1", ((2, 1), (1, 4)))
    strategies = {name: op.strategy for name, op in propagate(graph, full=True).operators.items()}
    assert strategies == {
        "matmul1": ((2, 1), (1, 4)),
        "add1": ((2, 4), (4,)),
        "relu": ((2, 4),),
        "matmul2": ((2, 4), (4, 1)),
        "add2": ((2, 4), (4,)),
    }


def test_the_file_has_the_networks_that_its_program_draws():
    """Except those that MindSpore did not compile."""
    for seed, count in mindspore.DRAWS.items():
        left = iter(mindspore.drawn(seed, count))
        for network in (each for each in NETWORKS if each["seed"] == seed):
            asked = {name: part for name, part in network.items() if name not in ("seed", *SETTINGS)}
            assert asked in left, network


@pytest.mark.parametrize(
    ("networks", "setting", "operators", "whole"),
    [
        (FOUND_WITH, "full", 0.99, 0.99),
        (FOUND_WITH, "some", 0.98, 0.96),
        pytest.param(APART, "full", 0.97, 0.92, marks=pytest.mark.slow),
        pytest.param(APART, "some", 0.93, 0.84, marks=pytest.mark.slow),
    ],
    ids=["found with, full", "found with", "kept apart, full", "kept apart"],
)
def test_it_chooses_what_mindspore_chose(networks, setting, operators, whole):
    found = agreement(setting, networks)
    assert found.operators >= operators * found.of_operators, found
    assert found.networks >= whole * found.of_networks, found


@pytest.mark.parametrize("setting", SETTINGS)
def test_its_plans_compute_the_program(setting):
    for graph, _ in random.Random(61).sample(list(answers(setting, NETWORKS)), 3):
        plan = propagate(graph, full=SETTINGS[setting])
        assert_same_program(plan)
        for name, decision in plan.decisions.items():
            if decision.reached is not None:
                options = compared(graph, name, decision.reached, decision.full)
                assert min(options, key=lambda each: each.cost).choice == plan.operators[name]


def test_moves_between_layouts_beside_mindspore():
    """Ours move what was counted, and never more than the sequence of MindSpore's operators."""
    for pair in mindspore_page.pairs()[:100]:
        source, target = mindspore_page.layouts(pair)
        move = redistribute(source, target, 1)
        pieces = cut(np.arange(prod(source.shape)).reshape(source.shape), source)
        assert (join(move.run(pieces), target).ravel() == np.arange(prod(source.shape))).all()
        assert pair["plain"] is not None
        assert move.bytes <= mindspore_page.least_of_mindspore(pair)


@pytest.mark.slow
def test_the_page_is_what_is_measured():
    assert mindspore_page.FILE.read_text(encoding="utf-8") == mindspore_page.page(), "out of date: make docs"
