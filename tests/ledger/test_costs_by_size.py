"""Costs by size: copies to and from tiers, bounds, and records that come back from both notations as they were."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from math import ceil
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
from lib.ledger.costs import MAX_DIGITS, MAX_NUMBER, Tier
from lib.ledger.setting import costs_from_json, record_to_json
from tests.support.examples import LETTERS, examples

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

SIZED = replace(
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
    costs = replace(SIZED, overlap=overlap)
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
    trace = run(there_and_back, 1, 1, 1, setting=Setting(replace(SIZED, overlap=overlap), task="infer")).trace
    (ops,) = trace.ranks
    for later in (-1, 1):
        forged = tuple(op._replace(end=op.end + later) if op.name == name else op for op in ops)
        assert isinstance(referee(replace(trace, ranks=(forged,))).error, TraceError)


@pytest.mark.parametrize("changes", [{"beta": {}}, {"alpha": {}}, {"calls": {}}, {"tiers": {"host": Tier(3, 6)}}])
def test_a_trace_with_other_prices_is_refused(changes: dict[str, Any]) -> None:
    trace = run(there_and_back, 1, 1, 1, setting=Setting(SIZED, task="infer")).trace
    other = replace(trace, setting=replace(trace.setting, costs=replace(SIZED, **changes)))
    assert "takes place from tick" in str(referee(other).error)


# --- A price beyond all bounds ---


async def sums(model: Model) -> None:
    weight, state = model.load_weights(0)
    inp = model.get_activation([model.rank])
    grad, _ = model.backward(0, inp, model.loss(model.forward(0, inp, weight)), weight)
    model.set_final_weight(0, model.update(0, await model.allreduce(grad, 0), weight, state)[0])


@pytest.mark.parametrize("overlap", [False, True])
def test_a_beta_beyond_all_bounds_is_refused_by_run_and_referee(overlap: bool) -> None:
    fair = replace(COSTS["classic"], name="fair", beta={"allreduce": Fraction(1, 1000)}, overlap=overlap)
    huge = replace(fair, name="huge", beta={"allreduce": Fraction(10**9)})
    error = run(sums, 1, 2, 2, setting=Setting(huge)).error
    facts = ("allreduce of 262,144 elements", "1,000,000,000 are possible", "'huge'", "alpha or beta")
    assert all(fact in str(error) for fact in facts), error
    trace = run(sums, 1, 2, 2, setting=Setting(fair)).trace
    assert referee(trace).error is None
    forged = replace(trace, setting=Setting(huge))
    assert "1,000,000,000 are possible" in str(referee(forged).error)
