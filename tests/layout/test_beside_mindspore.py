"""`propagate` chooses what MindSpore's Sharding Propagation chose (docs/generate/mindspore.py)."""

from __future__ import annotations

import random
import re
from math import prod

import numpy as np
import pytest

from docs.generate import mindspore, mindspore_page
from lib.layout import compared, cut, join, propagate, redistribute
from lib.layout.examples import feed_forward
from tests.support.layout_strategies import assert_same_program
from tests.support.mindspore_networks import SETTINGS, agreement, data, graph_of, remembering_costs
from tests.support.mindspore_pairs import beside_ours, layouts, least_of_mindspore, pairs
from tests.test_imports import ROOT

NETWORKS = data()["networks"]
OF_ONE_SHAPE = [network for network in NETWORKS if mindspore.DRAWS[network["seed"]].shape]
MIXED = [network for network in NETWORKS if not mindspore.DRAWS[network["seed"]].shape]


def test_the_network_of_the_documentation():
    graph = feed_forward()
    graph.shard("matmul1", ((2, 1), (1, 4)))
    strategies = {name: op.strategy for name, op in propagate(graph).operators.items()}
    assert strategies == {
        "matmul1": ((2, 1), (1, 4)),
        "add1": ((2, 4), (4,)),
        "relu": ((2, 4),),
        "matmul2": ((2, 4), (4, 1)),
        "add2": ((2, 4), (4,)),
    }


def test_the_file_has_the_networks_that_its_program_draws():
    for seed in mindspore.DRAWS:
        asked = [
            {name: part for name, part in network.items() if name not in ("seed", *SETTINGS)}
            for network in NETWORKS
            if network["seed"] == seed
        ]
        assert asked == mindspore.drawn(seed)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("setting", SETTINGS)
def test_it_chooses_what_mindspore_chose(setting):
    """In every eighth network whose tensors have one shape; all of them are compared below."""
    found = agreement(setting, OF_ONE_SHAPE[::8])
    assert (found.operators, found.networks) == (found.of_operators, found.of_networks)


@pytest.mark.slow
@pytest.mark.parametrize("setting", SETTINGS)
def test_it_chooses_what_mindspore_chose_in_all_networks(setting):
    found = agreement(setting, OF_ONE_SHAPE)
    assert (found.operators, found.networks) == (found.of_operators, found.of_networks)
    found = agreement(setting, MIXED)
    assert found.operators >= 0.94 * found.of_operators, found


@pytest.mark.slow
def test_what_mindspore_remembers_explains_the_rest():
    """Both settings in one process, in this order, as it was asked."""
    with remembering_costs():
        for setting in SETTINGS:
            found = agreement(setting, MIXED)
            assert found.operators >= found.of_operators - 2, found


@pytest.mark.slow
@pytest.mark.parametrize("setting", SETTINGS)
def test_its_plans_compute_the_program(setting):
    for network in random.Random(61).sample(NETWORKS, 2):
        graph = graph_of(network)
        plan = propagate(graph, full=SETTINGS[setting])
        assert_same_program(plan)
        for name, decision in plan.decisions.items():
            if decision.reached:
                options = compared(graph, name, decision.reached, decision.full)
                assert min(options, key=lambda each: each.rank).choice == plan.operators[name]


@pytest.mark.slow
def test_moves_between_layouts_beside_mindspore():
    """Ours move what was counted, and never more than the sequence of MindSpore's operators."""
    for pair in pairs()[:100]:
        source, target = layouts(pair)
        move = redistribute(source, target, 1)
        pieces = cut(np.arange(prod(source.shape)).reshape(source.shape), source)
        assert (join(move.run(pieces), target).ravel() == np.arange(prod(source.shape))).all()
        assert pair["plain"] is not None
        assert move.bytes <= least_of_mindspore(pair)


@pytest.mark.slow
def test_the_table_of_all_moves_is_measured():
    text = (ROOT / "docs" / "layout.md").read_text(encoding="utf-8")
    table = {name: int(number) for name, number in re.findall(r"^\| (more|the same|fewer) \| (\d+) \|$", text, re.M)}
    assert table == {"more": 0, "the same": 0, "fewer": 0} | beside_ours()


@pytest.mark.slow
def test_the_page_is_what_is_measured():
    assert mindspore_page.FILE.read_text(encoding="utf-8") == mindspore_page.page(), "out of date: make docs"
