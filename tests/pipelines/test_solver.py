"""The solver of pipelines: the ledger confirms its figures, it is never worse than what was published, and its bounds
are below everything that can be played."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from importlib.util import find_spec
from types import SimpleNamespace

import pytest

from lib import RuleError, inflight, referee, run_async
from lib.pipelines import Timetable, breadth_first, interleaved, zb_v
from lib.pipelines.solver import Problem, Solution, solve, solving
from lib.pipelines.solver.problem import makespan_bound, span_bound
from lib.pipelines.solver.solving import solution
from tests.support.published_search import MOST, Case, Rows, known, makespans, most_held, spans

QUICK = {"effort": 0.05, "proof_seconds": 0}


def rows_of(table: Timetable, whole: bool = False) -> Rows:
    """The cells of a timetable, with backwards in halves unless they are to be whole."""
    ops = {"B": "B" if whole else "IW"}
    return [
        [(cell.stage, op, cell.batch) for slot in row for cell in slot for op in ops.get(cell.op, cell.op)]
        for row in table.rows
    ]


def require_confirmed(found: Solution) -> None:
    """Runtime and referee, the count of papers, and a timing of its own give the figures of the solution."""
    problem = found.problem
    trace = found.trace()
    report = referee(trace)
    assert report.error is None
    assert report.makespan == found.makespan
    computing = [[op for op in ops if op.name.startswith(("forward", "backward"))] for ops in trace.ranks]
    unit = trace.costs.unit
    assert max(row[-1].end - row[0].start for row in computing) == round(found.span * unit)
    m_w = 0 if problem.whole else problem.m_w
    assert inflight(trace, problem.m_b, m_w, chunk=1) == pytest.approx(found.held)
    if problem.memory is not None:
        assert max(found.held) <= problem.memory
    f, i, w, c = problem.typical
    case = Case(problem.ranks, problem.microbatches, f, i, w, c, 0)
    rows = rows_of(found.table, problem.whole)
    assert max(spans(case, rows)) == round(found.span * unit)
    assert max(makespans(case, rows)) == round(found.makespan * unit)
    assert found.least <= found.took


# --- Figures ---

PROBLEMS = [
    {"ranks": 4, "microbatches": 8, "memory": 4},
    {"ranks": 4, "microbatches": 8, "forward": 1.0, "backward_input": 1.1, "backward_weight": 0.8, "send": 0.1},
    {"ranks": 3, "microbatches": 7, "send": 0.4, "memory": 4, "m_w": 0.25, "least": "makespan"},
    {"ranks": 3, "microbatches": 5, "memory": 2.5, "m_b": 0.5, "m_w": 1.0, "send": 0.125},
    {"ranks": 4, "microbatches": 6, "whole": True, "memory": 3, "backward_weight": 0.5},
    {"ranks": 3, "microbatches": 6, "placement": "V", "memory": 4, "send": 0.2},
    {"ranks": 2, "microbatches": 6, "placement": "looped", "chunks": 3, "memory": 7, "whole": True},
    {"ranks": 3, "microbatches": 5, "placement": "looped", "forward": 0.7, "memory": 2},
    {"ranks": 1, "microbatches": 3, "memory": 1},
    {"ranks": 2, "microbatches": 1, "placement": "V", "memory": 2, "backward_weight": 0},
]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("given", PROBLEMS)
def test_the_ledger_confirms_what_the_solver_says(given: dict[str, object]) -> None:
    require_confirmed(solve(**given, **QUICK))  # type: ignore[arg-type]


async def test_in_a_notebook_it_is_run_on_the_loop() -> None:
    found = solve(2, 3, send=0.1, memory=2, **QUICK)  # type: ignore[arg-type]
    outcome = await run_async(found.schedule, *found.size, setting=found.setting)
    assert referee(outcome.trace).makespan == found.makespan


def test_the_same_problem_has_the_same_solution() -> None:
    given = {"ranks": 3, "microbatches": 8, "memory": 5, "forward": 1.3, **QUICK}
    assert solve(**given).table == solve(**given).table  # type: ignore[arg-type]


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("p", "m", "f", "i", "w"), [(4, 8, 1, 1, 1), (6, 14, 3, 2, 3), (8, 24, 10, 11, 8)])
def test_with_the_memory_of_h1_its_bubble_is_the_least(p: int, m: int, f: int, i: int, w: int) -> None:
    """(p-1)(F + I - W), by the formula of Qi et al. 2024, 2.3 (where W <= F), and by the bound."""
    found = solve(p, m, forward=f, backward_input=i, backward_weight=w, memory=p, **QUICK)  # type: ignore[arg-type]
    assert found.span == m * (f + i + w) + (p - 1) * (f + i - w)
    assert found.is_optimal


@pytest.mark.slow
@pytest.mark.parametrize(
    ("p", "m", "cap", "least"),
    [
        (3, 6, 6, 38),
        (4, 8, 6, 53),
        *(pytest.param(*case, marks=pytest.mark.slow) for case in [(3, 6, 4, 41), (3, 6, 5, 39), (2, 4, 3, 27)]),
    ],
)
def test_in_a_v_it_finds_the_least_makespans_that_are_proven(p: int, m: int, cap: int, least: int) -> None:
    """Of F = I = W = 1 under a cap of chunks, found and proven by CP-SAT before."""
    found = solve(p, m, placement="V", memory=cap, least="makespan", proof_seconds=0)
    assert found.makespan == least


# --- Never worse ---


def random_case(seed: int, most: int) -> tuple[Case, float]:
    """A contiguous problem in whole numbers, and its cap."""
    choice = random.Random(seed)
    p = choice.randint(2, most)
    m = choice.choice([choice.randint(1, p), choice.randint(p, 4 * p), choice.randint(p, 8 * p)])
    f, i, w = choice.randint(5, 20), choice.randint(5, 20), choice.randint(1, 20)
    cap = choice.choice([p, 2 * p - 1, 2 * p, choice.randint(2, 3 * p), choice.randint(max(1, p // 2), p)])
    return Case(p, m, f, i, w, choice.choice([0, 0, 1, 2, 5]), 4 * cap, 4, choice.choice([4, 4, 2, 1])), cap


def require_never_worse(case: Case, cap: float, effort: float) -> None:
    times = {"forward": case.f, "backward_input": case.i, "backward_weight": case.w, "send": case.c}
    found = solve(case.p, case.m, **times, memory=cap, m_w=case.m_w / 4, effort=effort, proof_seconds=0)  # type: ignore[arg-type]
    assert most_held(case, rows_of(found.table)) <= case.cap
    for name, rows in known(case):
        assert found.span <= MOST[name] * max(spans(case, rows)), (name, case)
        assert span_bound(found.problem).ticks <= max(spans(case, rows))
        assert makespan_bound(found.problem).ticks <= max(makespans(case, rows))


@pytest.mark.sampled(1)
@pytest.mark.parametrize("seed", range(4))
def test_it_is_never_worse_than_what_was_published(seed: int) -> None:
    require_never_worse(*random_case(seed, 5), effort=0.1)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 120))
def test_it_is_never_worse_than_what_was_published_in_larger_cases(seed: int) -> None:
    require_never_worse(*random_case(seed, 12), effort=0.4)


def placed_case(seed: int) -> tuple[dict[str, object], Case, Rows]:
    """A problem with several chunks a rank, under the cap of a textbook order; and that order."""
    choice = random.Random(seed)
    placement = choice.choice(["V", "looped"])
    p = choice.randint(2, 5)
    v = 2 if placement == "V" else choice.randint(2, 3)
    m = p * choice.randint(1, 3)
    f, i, w, c = choice.randint(5, 20), choice.randint(5, 20), choice.randint(1, 20), choice.choice([0, 1, 4])
    order: Callable[..., Timetable] = zb_v if placement == "V" else choice.choice([interleaved, breadth_first])
    whole = placement == "looped" and choice.random() < 0.5
    rows = rows_of(order(p, m) if placement == "V" else order(p, m, v), whole)
    case = Case(p, m, f, i, w, c, 0)
    given = {
        "ranks": p, "microbatches": m, "forward": f, "backward_input": i, "backward_weight": w, "send": c,
        "placement": placement, "chunks": v, "whole": whole, "memory": most_held(case, rows),
        "least": choice.choice(["span", "makespan"]),
    }  # fmt: skip
    return given, case, rows


def require_no_worse_than(given: dict[str, object], case: Case, rows: Rows, effort: float) -> None:
    found = solve(**given, effort=effort, proof_seconds=0)  # type: ignore[arg-type]
    measured = spans if given["least"] == "span" else makespans
    assert max(found.held) <= given["memory"]  # type: ignore[operator]
    assert found.bound.ticks <= found.took <= max(measured(case, rows))
    require_confirmed(found)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_with_several_chunks_it_is_no_worse_than_the_textbook(seed: int) -> None:
    require_no_worse_than(*placed_case(seed), effort=0.02)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 115))
def test_with_several_chunks_it_is_no_worse_than_the_textbook_in_more_cases(seed: int) -> None:
    require_no_worse_than(*placed_case(seed), effort=0.2)


@pytest.mark.slow
def test_32_ranks_and_256_microbatches_take_less_than_a_minute() -> None:
    begin = time.process_time()
    found = solve(32, 256, forward=1.0, backward_input=1.1, backward_weight=0.8, send=0.1, memory=64)
    assert time.process_time() - begin < 60
    h2 = max(
        spans(
            Case(32, 256, 10, 11, 8, 1, 0),
            next(rows for name, rows in known(Case(32, 256, 10, 11, 8, 1, 64)) if name == "ZB-H2"),
        )
    )
    assert found.span * 10 <= h2


# --- Proofs ---

with_ortools = pytest.mark.skipif(find_spec("ortools") is None, reason="needs the extra: pip install -e '.[proof]'")


@with_ortools
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("given", [
    {"ranks": 3, "microbatches": 3, "forward": 1.2, "send": 0.3, "memory": 4},
    {"ranks": 2, "microbatches": 5, "forward": 1.2, "backward_weight": 0.4, "memory": 2, "m_w": 0.5},
    {"ranks": 2, "microbatches": 3, "placement": "V", "memory": 3, "least": "makespan"},
    {"ranks": 2, "microbatches": 4, "placement": "looped", "whole": True, "memory": 4},
])  # fmt: skip
def test_a_small_problem_is_proven_optimal(given: dict[str, object]) -> None:
    """And the search alone finds the least, or nearly: the bound and the proof agree with it."""
    found = solve(**given, proof_seconds=60)  # type: ignore[arg-type]
    assert found.is_optimal
    require_confirmed(found)
    alone = solve(**given, proof_seconds=0)  # type: ignore[arg-type]
    assert found.took <= alone.took <= 1.03 * found.took
    assert alone.bound.ticks <= round(found.took * found.problem.unit)


def test_without_ortools_nothing_is_called_proven(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> SimpleNamespace:
        raise ImportError(name)

    monkeypatch.setattr(solving, "import_module", missing)
    found = solve(3, 4, forward=1.2, send=0.3, memory=2, effort=0.02)
    assert not found.is_proven
    assert found.took > found.least


@pytest.mark.slow
def test_the_bound_is_below_every_order_that_fits() -> None:
    for seed in range(40):
        given, case, rows = placed_case(1000 + seed)
        problem = Problem(**given)  # type: ignore[arg-type]
        assert span_bound(problem).ticks <= max(spans(case, rows))
        assert makespan_bound(problem).ticks <= max(makespans(case, rows))


# --- Refused ---


@pytest.mark.parametrize(
    ("given", "facts"),
    [
        ({"memory": 0.5}, "0.5 holds 1 memory=1"),
        ({"memory": 3, "placement": "looped", "chunks": 4}, "memory=4"),
        ({"m_w": 3, "memory": 2}, "memory=3"),
        ({"ranks": 0}, "ranks 0"),
        ({"microbatches": 2.5}, "microbatches 2.5"),
        ({"forward": -1}, "forward -1"),
        ({"forward": 0}, "forward 0.001"),
        ({"backward_input": 1.23456}, "backward-input three decimals 1.235"),
        ({"send": float("nan")}, "send nan"),
        ({"memory": float("inf")}, "memory inf"),
        ({"placement": "ring"}, "contiguous, looped, V 'ring'"),
        ({"chunks": 2}, "contiguous 1 2 looped"),
        ({"placement": "V", "chunks": 3}, "V 2 3"),
        ({"microbatches": 10**6}, "100,000 microbatches"),
        ({"least": "memory"}, "span, makespan 'memory'"),
        ({"colour": "red"}, "'colour' memory"),
        ({"effort": -1}, "effort -1"),
    ],
)
def test_a_problem_that_cannot_be_is_refused_with_what_would_fit(given: dict[str, object], facts: str) -> None:
    with pytest.raises(RuleError) as why:
        solve(**{"ranks": 2, "microbatches": 4, **given})  # type: ignore[arg-type]
    assert [fact for fact in facts.split() if fact not in str(why.value)] == []


def test_a_table_is_timed_as_it_is() -> None:
    found = solution(Problem(2, 1), Timetable.read("0F0 0I0 0W0\n1F0 1I0 1W0"))
    assert (found.starts, found.ends, found.held) == ((0, 1), (5, 4), (1, 1))
