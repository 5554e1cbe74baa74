"""Proofs by constraint programming: no pipeline is shorter than a record, and none of its length holds less, if each
operation runs once and each rank keeps its own activations."""

import warnings
from collections import Counter
from math import gcd

import pytest

from lib import Setting, Trace, inflight, referee
from lib.pipelines import Cell, one_f_one_b, pipeline, zb_h1, zb_h2
from puzzles.catalog.schedule import PUZZLES
from tests.oracles.pipeline_solver import Problem, Sizes, solved
from tests.oracles.truth import UNIT, played
from tests.oracles.truth_runs import costs_of
from tests.support import finished
from tests.support.variants import module_of

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of its bindings, which are generated
    pytest.importorskip("ortools.sat.python.cp_model", reason="needs the extra: pip install -e '.[proof]'")

pytestmark = pytest.mark.slow


def require_least(problem: Problem) -> None:
    """There is a pipeline, which our runtime and referee confirm; there is none with one chunk less, and none that is
    shorter, whatever it holds."""
    tables = solved(problem)
    assert tables is not None
    if problem.steps == 1:
        setting = Setting(costs_of(*UNIT))
        outcome = finished(pipeline(tables[0]), problem.p * problem.v, problem.m, problem.p, setting=setting)
        report = referee(outcome.trace)
        assert (report.error, report.makespan) == (None, problem.horizon)
        assert max(inflight(outcome.trace, 1, 1, chunk=1)[problem.first_is_free :]) <= problem.cap
    assert solved(problem._replace(cap=problem.cap - 1)) is None
    assert solved(problem._replace(horizon=problem.horizon - 1, cap=problem.m * problem.v)) is None


@pytest.mark.parametrize(("first_is_free", "cap"), [(True, 3), (False, 4)])
def test_1f1b_holds_as_little_as_a_pipeline_of_its_time_can(first_is_free: bool, cap: int) -> None:
    trace, report = played(one_f_one_b, 4, 8)
    assert max(inflight(trace)[first_is_free:]) == cap
    require_least(Problem(4, 8, int(report.makespan), cap, first_is_free=first_is_free))


def test_zb_h1_holds_as_little_as_a_pipeline_of_its_time_can() -> None:
    trace, report = played(zb_h1, 4, 8)
    assert (max(inflight(trace, 1, 1)), report.makespan) == (4, 27)
    require_least(Problem(4, 8, 27, 4, split=True))


def test_an_interleaved_pipeline_of_the_least_time_holds_seven_chunks() -> None:
    """Megatron's order holds nine, where the model's input does not count."""
    require_least(Problem(4, 8, 57, 7, v=2, first_is_free=True))


def test_two_steps_of_zb_h2_hold_as_little_as_pipelines_of_their_time_can() -> None:
    trace, report = played(zb_h2, 4, 8, steps=2)
    assert (max(inflight(trace, 1, 1)), report.makespan) == (7, 51)
    require_least(Problem(4, 8, 51, 7, split=True, steps=2))


# --- Records of puzzles, in elements ---

LETTERS = {"forward": "F", "backward": "B", "backward_input": "I", "backward_weight": "W"}


def starts(trace: Trace) -> dict[Cell, int]:
    """When each operation of a pipeline starts. The microbatches of all steps are counted on."""
    seen: Counter[tuple[int, str]] = Counter()
    found = {}
    for op in (op for ops in trace.ranks for op in ops if op.name in LETTERS):
        place = op.layer, LETTERS[op.name]
        found[Cell(*place, seen[place])] = op.start // trace.costs.unit
        seen[place] += 1
    return found


def record_problem(slug: str) -> tuple[Problem, dict[Cell, int]]:
    """A pipeline as fast as the puzzle's fastest record and no larger; and the starts of that record."""
    goal = PUZZLES[slug].goal
    (layers, batches, ranks), costs = goal.size, goal.costs
    record = min(goal.records, key=lambda record: (record.timesteps, record.peak_memory))
    sizes = Sizes(costs.activation, costs.activation, costs.activation_grad, costs.weight)
    unit, v = gcd(*sizes), layers // ranks
    room = record.peak_memory - v * 2 * costs.weight  # weights and optimizer states
    schedule = getattr(module_of(*record.file_and_variant), slug)
    outcome = finished(schedule, *goal.size, setting=goal.setting)
    assert room % unit == 0
    problem = Problem(
        ranks,
        batches,
        int(record.timesteps),
        room // unit,
        split=costs.priced("backward_weight"),
        v=v,
        steps=goal.setting.steps,
        first_is_free=True,
        sizes=Sizes(*(size // unit for size in sizes)),
    )
    return problem, starts(outcome.trace)


RECORDS = ["one_f_one_b", "interleaved", "zb_h1", "zb_h2"]


@pytest.mark.parametrize("slug", RECORDS)
def test_the_constraints_measure_a_record_as_the_ledger_does(slug: str) -> None:
    problem, played_at = record_problem(slug)
    assert solved(problem, played_at) is not None
    assert solved(problem._replace(cap=problem.cap - 1), played_at) is None


@pytest.mark.parametrize("slug", RECORDS)
def test_no_pipeline_as_fast_as_a_record_needs_fewer_elements(slug: str) -> None:
    """None, that is, whose ranks keep their activations themselves and compute nothing twice: rank 0, whose own inputs
    are free, has room for those of other ranks."""
    problem, _ = record_problem(slug)
    assert solved(problem._replace(cap=problem.cap - 1)) is None


def test_no_pipeline_with_sharded_weights_is_faster_than_the_record() -> None:
    """Even if it gathers and scatters each layer only once, and no rank waits for its replica."""
    goal = PUZZLES["breadth_first"].goal
    (record,) = goal.records
    axes = dict(goal.setting.mesh)
    stages, batches = axes["pp"], goal.size.batches // axes["dp"]
    v = goal.size.layers // stages
    problem = Problem(stages, batches, int(record.timesteps), batches * v, v=v, sharded=True)
    assert solved(problem) is not None
    assert solved(problem._replace(horizon=problem.horizon - 1)) is None
