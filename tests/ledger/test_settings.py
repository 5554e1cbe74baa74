"""Settings: what a game fixes besides its size is kept by its trace, read strictly, and judged."""

import json
from dataclasses import replace
from typing import Any

import pytest

from lib import (
    CLASSIC_SETTING,
    COLLECTIVES,
    COSTS,
    TIMED,
    Costs,
    Dist,
    Goal,
    Model,
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
from lib.ledger.costs import CLASSIC
from lib.ledger.named_costs import pricing
from lib.ledger.trace import FORMS, FREE
from solutions.basic import basic
from tests.support import CLASSICS, finished
from tests.support.refusals import Refused
from tests.support.step_costs import STEP_COSTS

SIZE = Size(1, 1, 1)


def empty(setting: Setting) -> Trace:
    return Trace(SIZE, ((),), setting)


def test_a_trace_writes_only_what_is_not_classic() -> None:
    head = json.loads(trace_to_json(empty(Setting(steps=3))))
    assert head["steps"] == 3
    assert not {"mesh", "layer", "task"} & set(head)
    assert head["costs"] == "classic"
    own = json.loads(trace_to_json(empty(Setting(Costs("mine", length=1)))))
    assert own["costs"] == {"name": "mine", "length": 1}


def head(**changes: Any) -> str:
    return json.dumps({**json.loads(trace_to_json(empty(CLASSIC_SETTING))), **changes})


@pytest.mark.parametrize(
    ("changes", "facts"),
    [
        ({"steps": 0}, ("steps", "0")),
        ({"steps": 1.0}, ("steps", "1.0")),
        ({"steps": True}, ("steps", "True")),
        ({"steps": 10**7}, ("steps", "10000000")),
        ({"layer": "conv"}, ("layer", "dense, block, experts", "'conv'")),
        ({"task": []}, ("task", "train", "[]")),
        ({"mesh": ["dp"]}, ("mesh", "object")),
        ({"mesh": {"dp": 0}}, ("mesh", "from 1", "0")),
        ({"costs": 3}, ("unknown costs 3", "classic")),
        ({"costs": {}}, ("name",)),
        ({"costs": {"name": "x", "price": 1}}, ("no price", "ticks")),
        ({"costs": {"name": "x", "unit": 7}}, ("unit", "1000", "7")),
        ({"costs": {"name": "x", "ticks": [1]}}, ("ticks", "object")),
        ({"costs": {"name": "x", "beta": {"pass_to": 0.1}}}, ("beta", "fraction", "0.1")),
        ({"costs": {"name": "x", "beta": {"pass_to": "1/0"}}}, ("beta", "fraction", "1/0")),
        ({"costs": {"name": "x", "beta": {"pass_to": "9" * 99}}}, ("beta", "fraction")),
        ({"costs": {"name": "x", "tiers": {"host": [1]}}}, ("tier", "offload, fetch, capacity")),
    ],
)
def test_an_impossible_setting_is_refused_with_its_field(changes: Any, facts: tuple[str, ...]) -> None:
    with pytest.raises(TraceError) as why:
        trace_from_json(head(**changes))
    assert all(fact in str(why.value) for fact in facts), why.value


def test_a_run_and_its_trace_have_the_setting_they_were_given() -> None:
    outcome = finished(basic, 1, 1, 1, setting=Setting(COSTS["quarters"]))
    assert outcome.trace.costs is COSTS["quarters"]
    assert outcome.models[0].time == 2.5
    report = referee(trace_from_json(trace_to_json(outcome.trace)))
    assert (report.error, report.timesteps, report.makespan) == (None, 2.0, 2.5)


def test_a_quarter_of_a_step_is_shown_exactly() -> None:
    quarters = COSTS["quarters"]
    assert [quarters.text(ticks) for ticks in (1, 2, 40, 522, 10**7)] == ["0.025", "0.05", "1", "13.05", "250000.000"]
    assert [CLASSIC.text(ticks) for ticks in (0, 35, 30, 10**6)] == ["0", "3.5", "3", "100000.0"]


def test_a_puzzle_is_judged_in_its_own_setting() -> None:
    trace = run(basic, 1, 1, 1).trace
    goal = Goal("mine", SIZE, 9, 10**9, setting=Setting(steps=2))
    error = str(referee(trace, goal).error)
    assert all(fact in error for fact in ("mine", "steps 2"))
    assert referee(trace, replace(goal, setting=CLASSIC_SETTING)).status == "passed"


@pytest.mark.parametrize("given", [3, "classic", COSTS["slow"]])
def test_what_is_no_setting_is_refused_at_once(given: Any) -> None:
    with pytest.raises(RuleError) as why:
        Dist(2, setting=given)
    assert "Setting" in str(why.value)


# --- Operations without a price do not exist ---


def without(*names: str) -> Setting:
    ticks = {name: price for name, price in CLASSIC.ticks.items() if name not in names}
    return Setting(Costs("short", ticks=ticks))


def test_every_operation_is_free_or_may_have_a_price() -> None:
    assert not TIMED & FREE
    assert set(FORMS) - {"await"} == TIMED | FREE
    assert COLLECTIVES <= TIMED


async def sends(model: Model) -> None:
    await (model.pass_to(1, 0) if model.rank == 0 else model.receive(0))


async def sums(model: Model) -> None:
    await model.allreduce(model.fake_grad(0, []), 0)


@pytest.mark.parametrize(
    ("name", "schedule"),
    [
        ("update", basic),
        ("backward", basic),
        ("loss", basic),
        ("pass_to", sends),
        ("receive", sends),
        ("allreduce", sums),
    ],
)
def test_an_operation_without_a_price_is_refused_by_runtime_and_referee(name: str, schedule: Any) -> None:
    ranks = 1 if schedule is basic else 2
    outcome = run(schedule, 1, 1, ranks, setting=without(name))
    Refused("no price", operation=name, costs="short").require(outcome.error)
    forged = replace(run(schedule, 1, 1, ranks).trace, setting=without(name))
    Refused("no price", operation=name, costs="short").require(referee(forged).error)


def test_the_classics_pass_in_finer_ticks_at_the_same_times() -> None:
    for classic in CLASSICS[:5]:
        outcome = run(classic.solution, *classic.size, setting=Setting(STEP_COSTS["twentieths"]))
        report = referee(outcome.trace)
        assert (outcome.error, report.error, report.timesteps) == (None, None, classic.timesteps)


# --- Settings as people write them ---


def test_a_setting_takes_the_name_of_costs_and_a_mesh_as_a_mapping() -> None:
    setting = Setting("parts", {"dp": 2, "pp": 4}, steps=2)
    assert setting == Setting(COSTS["parts"], mesh=(("dp", 2), ("pp", 4)), steps=2)
    assert setting.costs is COSTS["parts"]
    assert replace(setting, steps=1).mesh == setting.mesh


@pytest.mark.parametrize(
    ("name", "facts"),
    [
        ("part", ("'part'", "did you mean 'parts'?")),
        ("Classic", ("did you mean 'classic'?",)),
        ("zzz", ("'zzz'", ", ".join(COSTS))),
        ("x" * 999, ("x" * 60,)),
    ],
)
def test_unknown_costs_are_refused_with_the_nearest_name_or_all(name: str, facts: tuple[str, ...]) -> None:
    with pytest.raises(RuleError) as why:
        Setting(name)
    assert all(fact in str(why.value) for fact in facts)
    assert len(str(why.value)) < 120 + len(", ".join(COSTS))


def test_every_operation_with_a_price_names_the_costs_that_have_it() -> None:
    assert pricing("backward_input") == ["parts", "pairs", "vocabulary_shards"]
    assert pricing("dispatch") == ["experts", "hopper_node"]
    assert pricing("offload") == ["copies", "host_updates", "hopper_host"]
    assert pricing("fetch") == ["copies", "host_updates", "streams", "hopper_host"]
    assert pricing("keys") == pricing("attend_backward") == ["sequences", "context", "grouped"]
    assert pricing("forward") == [name for name in COSTS if name not in pricing("keys")]
    assert pricing("fly") == []
