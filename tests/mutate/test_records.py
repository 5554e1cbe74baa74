"""The hunt for records: which mutants are made of a schedule, and what of them is told."""

import inspect
from dataclasses import replace
from typing import Any

import pytest

from lib import Goal, Record
from puzzles.catalog.schedule import PUZZLES, SchedulePuzzle
from tests.mutate.records import Candidate, beaten_by, candidates, defined, hunted, judged, mutants
from tests.support.solved import reference_of

SHARDED = """
async def f(model):
    for layer in range(model.LAYERS):
        model.weights[layer], state = model.load_weights(layer, model.rank, 4)
        model.opt_states[layer] = state.shard(1, 2)
    return await model.scatterreduce(grad, layer)
"""


def made(source: str) -> dict[str, str]:
    return dict(mutants(source))


def test_a_mutant_for_each_statement_pair_number_shard_and_scatter() -> None:
    found = made(SHARDED)
    kinds = ["without line", "before line", "is", "all-reduce", "loads the full", "keeps the full"]
    counts = {kind: sum(kind in what for what in found) for kind in kinds[:2]}
    assert counts == {"without line": 4, "before line": 2}
    assert sum(" is " in what for what in found) == 6
    (scattered,) = (text for what, text in found.items() if kinds[3] in what)
    assert "(await model.allreduce(grad, layer)).shard(model.rank, model.RANKS)" in scattered
    (loaded,) = (text for what, text in found.items() if kinds[4] in what)
    assert "load_weights(layer)\n" in loaded
    (kept,) = (text for what, text in found.items() if kinds[5] in what)
    assert "opt_states[layer] = state\n" in kept
    assert len(set(found.values())) == len(found)
    assert SHARDED not in found.values()


def with_records(slug: str, *records: Record) -> SchedulePuzzle:
    return replace(PUZZLES[slug], goal=replace(PUZZLES[slug].goal, records=records))


def hunt_of(source: str, puzzle: SchedulePuzzle, ideas: tuple[str, ...] | None = ()) -> list[Any]:
    each = ((what, defined(text, puzzle.slug)) for what, text in mutants(source))
    return list(hunted(puzzle, (Candidate(what, schedule, ideas) for what, schedule in each if schedule)))


def test_a_mutant_that_is_better_than_the_record_is_told() -> None:
    """The reference of grad_accum that keeps a value for no reason."""
    source = inspect.getsource(inspect.getmodule(reference_of("grad_accum")) or object)
    line = "        grad_activations[model.LAYERS] = model.loss(activations[model.LAYERS])\n"
    wasteful = source.replace(line, f"{line}        activations['kept'] = activations[model.LAYERS]\n")
    schedule = defined(wasteful, "grad_accum")
    assert schedule is not None
    report = judged(schedule, PUZZLES["grad_accum"].goal)
    assert report is not None
    record = Record(report.timesteps, report.peak.memory, "wasteful.py", traffic=0)
    finds = hunt_of(wasteful, with_records("grad_accum", record))
    assert "wasteful.py" in {find.beaten for find in finds}
    assert all("'kept'" in find.what for find in finds if find.beaten)


def goal_with(*records: Record) -> Goal:
    return replace(PUZZLES["basic"].goal, records=records)


@pytest.mark.parametrize(
    ("ideas", "beaten"), [((), "own"), (("checkpoint",), ""), (None, "")], ids=["own ideas", "a later one", "unknown"]
)
def test_a_schedule_is_compared_with_records_of_its_ideas(ideas: tuple[str, ...] | None, beaten: str) -> None:
    """2,621,440 elements: better than the own record, and worse than one with a later idea."""
    report = judged(reference_of("basic"), PUZZLES["basic"].goal)
    assert report is not None
    own = Record(16.5, 3_000_000, "own", traffic=0)
    later = Record(16.5, 1_000_000, "later", traffic=0, ideas=("checkpoint",))
    assert beaten_by(report, goal_with(own, later), ideas) == beaten


def test_a_mutant_that_never_ends_or_fails_is_no_find(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.mutate.records.PATIENCE", 0.05)
    goal = PUZZLES["basic"].goal
    endless = defined("def basic(model):\n    while True:\n        pass\n", "basic")
    assert endless is not None
    assert judged(endless, goal) is None
    assert judged(lambda model: model, goal) is None


@pytest.mark.slow
def test_pipelines_are_tried_in_textbook_orders_and_others_in_mixes() -> None:
    orders = {candidate.what for candidate in candidates(PUZZLES["two_ways"])}
    assert {"zb_v", "one_f_one_b in pairs", "interleaved in halves"} <= orders
    assert any(candidate.what.startswith("replicas('") for candidate in candidates(PUZZLES["fsdp_prefetch"]))
