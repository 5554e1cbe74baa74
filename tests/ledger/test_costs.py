"""Costs: what operations take, by the ring, by size and by name, and records that come back as they were."""

import json
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from math import ceil
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib import (
    COSTS,
    Costs,
    Model,
    PuzzleError,
    RuleError,
    Setting,
    Size,
    Trace,
    TraceError,
    referee,
    run,
    trace_from_json,
    trace_to_json,
)
from lib.ledger.costs import CLASSIC, MAX_DIGITS, MAX_NUMBER, Tier, elements_sent, hops
from lib.ledger.named_costs import MEANINGS
from lib.ledger.setting import costs_from_json, record_to_json, setting_to_json
from puzzles.catalog.schedule import CLASSICS, PUZZLES
from puzzles.sandbox.worker.stages.functions import Schedule
from puzzles.tracks.schedule.judge import request_at
from tests.support import finished
from tests.support.examples import LETTERS, examples
from tests.support.schedules.clipping import data_parallel
from tests.support.step_costs import STEP_COSTS

# === What a rank sends, by the formulas of the ring ===


SENT = {
    "allreduce": {1: 0, 2: 120, 4: 180},
    "scatterreduce": {1: 0, 2: 60, 4: 90},
    "dispatch": {1: 0, 2: 60, 4: 90},
    "allgather": {1: 0, 2: 120, 4: 360},
    "broadcast": {1: 0, 2: 120, 4: 120},
    "reduce": {1: 0, 2: 120, 4: 120},
    "pass_to": {2: 120},
    "forward": {1: 0, 4: 0},
}
"""Of 120 elements, by the number of ranks."""


@pytest.mark.parametrize("operation", SENT)
def test_a_rank_sends_what_the_ring_says(operation: str) -> None:
    assert {ranks: elements_sent(operation, 120, ranks) for ranks in SENT[operation]} == SENT[operation]


def test_hops_follow_each_other() -> None:
    assert [hops(operation, 4) for operation in ("allreduce", "allgather", "pass_to", "receive")] == [6, 3, 1, 0]


# === By size, against formulas written out here ===


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


# === Copies by size, bounds, and both notations ===


NAMES = st.sampled_from(["forward", "update", "allreduce", "pass_to", "offload", "fetch"])
PRICES = st.dictionaries(NAMES, st.integers(0, MAX_NUMBER) | st.integers(0, 20), max_size=3)
DIGITS = st.text("0123456789", min_size=1, max_size=20)
PARTS = st.integers(0, 10**MAX_DIGITS - 1) | st.integers(0, 9)
FRACTIONS = st.builds(lambda above, below: Fraction(above, below + 1) if below < 10**17 else above, PARTS, PARTS)
TIERS = st.builds(Tier, *[st.none() | st.integers(0, MAX_NUMBER)] * 4)
RECORDS = st.builds(
    Costs,
    st.text(LETTERS, max_size=9),
    hidden=st.integers(1, MAX_NUMBER),
    length=st.integers(1, 64),
    moments=st.integers(1, 3),
    ticks=PRICES,
    unit=st.sampled_from([1, 8, 10, 40, 1000]),
    gradient=st.none() | st.integers(0, MAX_NUMBER),
    overlap=st.booleans(),
    lanes=st.sampled_from(["one", "group", "each"]),
    tiers=st.dictionaries(st.text(LETTERS, min_size=1, max_size=5), TIERS, max_size=2),
    calls=PRICES,
    alpha=PRICES,
    beta=st.dictionaries(NAMES, FRACTIONS, max_size=3),
    islands=st.integers(0, 64),
    ticks_between=PRICES,
    alpha_between=PRICES,
    beta_between=st.dictionaries(NAMES, FRACTIONS, max_size=3),
    time_unit=st.sampled_from(["steps", "us"]),
    flops_per_tick=st.integers(0, MAX_NUMBER),
    parameters=st.none() | st.integers(1, MAX_NUMBER),
    keys_values=st.none() | st.integers(0, MAX_NUMBER),
)


def empty(costs: Costs) -> Trace:
    return Trace(Size(1, 1, 1), ((),), Setting(costs))


@examples(60)
@given(RECORDS)
def test_every_record_that_can_be_made_comes_back(costs: Costs) -> None:
    trace = empty(costs)
    assert trace_from_json(trace_to_json(trace)) == trace


def made_or_refused(make: Callable[[], Costs]) -> Costs | str:
    try:
        return make()
    except PuzzleError as why:
        return str(why)


@examples(100)
@given(st.fractions() | st.fractions(min_value=0) | st.integers() | st.floats() | st.booleans())
def test_a_beta_is_refused_when_it_is_made_or_can_be_read(beta: Any) -> None:
    costs = made_or_refused(lambda: Costs("mine", beta={"allreduce": beta}))
    if isinstance(costs, str):
        exact = not isinstance(beta, (bool, float)) and beta >= 0
        assert not exact or max(Fraction(beta).as_integer_ratio()) >= 10**MAX_DIGITS
        assert "beta of allreduce" in costs
        assert "Fraction(1, 4096)" in costs
    else:
        assert trace_from_json(trace_to_json(empty(costs))).costs == costs
        assert costs.beta == {"allreduce": beta}


@examples(100)
@given(st.lists(DIGITS, min_size=1, max_size=2).map("/".join) | st.text("0123456789/.-e ", max_size=9))
def test_a_beta_that_is_read_is_written_again_and_read_the_same(text: str) -> None:
    costs = made_or_refused(lambda: costs_from_json({"name": "mine", "beta": {"allreduce": text}}))
    if isinstance(costs, str):
        assert "fraction" in costs
    else:
        assert costs.beta["allreduce"] == Fraction(text)
        assert costs_from_json(json.loads(json.dumps(record_to_json(costs)))) == costs


@pytest.mark.parametrize(
    ("fields", "facts"),
    [
        ({"beta": {"fetch": 0.5}}, ("beta of fetch", "Fraction", "0.5")),
        ({"beta": {"fetch": Fraction(1, 10**18)}}, ("beta of fetch", "18 digits")),
        ({"beta": {"fetch": Fraction(-1, 2)}}, ("beta of fetch", "from 0 on")),
        ({"beta": [1]}, ("beta", "[1]")),
        ({"alpha": {"fetch": 1.0}}, ("alpha of fetch", "whole number", "1.0")),
        ({"calls": {"fetch": -1}}, ("calls of fetch", "from 0", "-1")),
        ({"ticks": {"forward": 10**12}}, ("ticks of forward", "1,000,000,000")),
        ({"ticks": None}, ("ticks", "None")),
        ({"ticks": {3: 4}}, ("ticks", "names")),
        ({"hidden": 0}, ("hidden", "from 1")),
        ({"gradient": -4}, ("gradient", "-4")),
        ({"islands": True}, ("islands", "True")),
        ({"overlap": 1}, ("overlap", "True or False")),
        ({"tiers": {"host": (1, 1, 1)}}, ("tier host", "Tier(offload, fetch, capacity, update)")),
        ({"tiers": {"host": Tier(1, -1)}}, ("fetch of the tier host", "-1")),
        ({"name": "x" * 101}, ("name", "100 characters")),
        ({"name": None}, ("name", "None")),
    ],
)
def test_what_cannot_be_is_refused_with_its_field(fields: dict[str, Any], facts: tuple[str, ...]) -> None:
    with pytest.raises(RuleError) as why:
        Costs(**{"name": "mine", **fields})
    assert all(fact in str(why.value) for fact in facts), why.value


# --- Tiers ---

SIZED_TIERS = replace(
    COSTS["copies"],
    name="sized",
    hidden=8,
    length=4,
    overlap=False,
    tiers={"host": Tier(3, 5)},
    calls={"offload": 2},
    alpha={"offload": 4, "fetch": 7},
    beta={"offload": Fraction(1, 3), "fetch": Fraction(3, 2)},
)
DOWN = 3 + 2 + 4 + ceil(Fraction(32, 3))  # of an activation of 8 x 4 elements
UP = 5 + 7 + 48


async def there_and_back(model: Model) -> None:
    parked = await model.offload(model.get_activation([0]))
    model.activations[0] = await model.fetch(parked)
    weight, _ = model.load_weights(0)
    model.set_output(model.forward(0, model.activations[0], weight))


@pytest.mark.parametrize("overlap", [False, True])
def test_a_copy_takes_its_call_its_hop_and_its_elements(overlap: bool) -> None:
    costs = replace(SIZED_TIERS, overlap=overlap)
    trace = run(there_and_back, 1, 1, 1, setting=Setting(costs, task="infer")).trace
    times = {op.name: (op.start, op.end) for op in trace.events(0)}
    assert (times["offload"], times["fetch"]) == ((0, DOWN), (DOWN, DOWN + UP))
    report = referee(trace)
    assert report.error is None
    assert report.makespan == (DOWN + UP + 10) / 10
    assert trace_from_json(trace_to_json(trace)) == trace


def test_tiers_without_costs_by_size_keep_their_prices() -> None:
    trace = run(there_and_back, 1, 1, 1, setting=Setting(replace(COSTS["copies"], overlap=False), task="infer")).trace
    assert [op.end - op.start for op in trace.events(0)] == [10, 10, 10]


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("name", ["offload", "fetch"])
def test_a_copy_in_another_time_is_refused(name: str, overlap: bool) -> None:
    trace = run(there_and_back, 1, 1, 1, setting=Setting(replace(SIZED_TIERS, overlap=overlap), task="infer")).trace
    (ops,) = trace.ranks
    for later in (-1, 1):
        forged = tuple(op._replace(end=op.end + later) if op.name == name else op for op in ops)
        assert isinstance(referee(replace(trace, ranks=(forged,))).error, TraceError)


@pytest.mark.parametrize("changes", [{"beta": {}}, {"alpha": {}}, {"calls": {}}, {"tiers": {"host": Tier(3, 6)}}])
def test_a_trace_with_other_prices_is_refused(changes: dict[str, Any]) -> None:
    trace = run(there_and_back, 1, 1, 1, setting=Setting(SIZED_TIERS, task="infer")).trace
    other = replace(trace, setting=replace(trace.setting, costs=replace(SIZED_TIERS, **changes)))
    assert "takes place from tick" in str(referee(other).error)


# --- A price beyond all bounds ---


@pytest.mark.parametrize("overlap", [False, True])
def test_a_beta_beyond_all_bounds_is_refused_by_run_and_referee(overlap: bool) -> None:
    fair = replace(COSTS["classic"], name="fair", beta={"allreduce": Fraction(1, 1000)}, overlap=overlap)
    huge = replace(fair, name="huge", beta={"allreduce": Fraction(10**9)})
    error = run(data_parallel, 1, 2, 2, setting=Setting(huge)).error
    facts = ("allreduce of 262,144 elements", "1,000,000,000 are possible", "'huge'", "alpha or beta")
    assert all(fact in str(error) for fact in facts), error
    trace = run(data_parallel, 1, 2, 2, setting=Setting(fair)).trace
    assert referee(trace).error is None
    forged = replace(trace, setting=Setting(huge))
    assert "1,000,000,000 are possible" in str(referee(forged).error)


# === Named records: an all-reduce costs its halves, a larger message costs more ===


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


# === H100-like machines: prices in microseconds are the hardware's speeds ===


GIGA = 10**9


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
def test_a_forward_runs_at_400_tflops_and_a_backward_takes_twice_as_many_microseconds(name: str, forward: int) -> None:
    costs = COSTS[name]
    assert (costs.unit, costs.time_unit, costs.text(1234)) == (1, "us", "1234")
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
