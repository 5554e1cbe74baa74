"""The solver of pipelines: the ledger confirms it, it is never worse than what was published, its bounds are bounds."""

import random
import time
from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec
from itertools import permutations
from types import SimpleNamespace
from typing import Any

import pytest

from lib import RuleError, inflight, referee, run_async
from lib.pipelines import Timetable, breadth_first, dualpipev, interleaved, interleaved_zb, v_half, v_min, zb_v
from lib.pipelines.solver import Problem, Solution, solve, solving
from lib.pipelines.solver.problem import makespan_bound, span_bound
from lib.pipelines.solver.search import cells, orders
from lib.pipelines.solver.solving import figures, solution
from tests.oracles.published_search import MOST, Case, Rows, all_held, known, makespans, most_held, of, spans
from tests.screens.texts import approved, approved_refusal

QUICK = {"effort": 0.05, "proof_seconds": 0}


def rows_of(table: Timetable, whole: bool = False) -> Rows:
    """The cells of a timetable, with backwards in halves unless they are to be whole."""
    ops = {"B": "B" if whole else "IW"}
    return [
        [(cell.stage, op, cell.batch) for slot in row for cell in slot for op in ops.get(cell.op, cell.op)]
        for row in table.rows
    ]


def confirmed(found: Solution) -> tuple[int, int]:
    """Span and makespan in ticks, timed without the solver; they are within the bounds, and what is held fits. Where
    all stages are equal, runtime and referee give the same figures."""
    problem = found.problem
    case, rows = Case(problem.ranks, problem.microbatches, *problem.ticks, 0), rows_of(found.table, problem.whole)
    span, makespan = max(spans(case, rows)), max(makespans(case, rows))
    assert (span, makespan) == (round(found.span * problem.unit), round(found.makespan * problem.unit))
    assert span_bound(problem).ticks <= span
    assert makespan_bound(problem).ticks <= makespan
    assert found.least <= found.took
    assert problem.fits(found.held)
    if problem.is_even:
        trace = found.trace()
        report = referee(trace)
        assert (report.error, report.makespan) == (None, found.makespan)
        computing = [[op for op in ops if op.name.startswith(("forward", "backward"))] for ops in trace.ranks]
        assert max(row[-1].end - row[0].start for row in computing) == span
        m_w = 0 if problem.whole else problem.m_w
        assert inflight(trace, problem.m_b, m_w, chunk=1) == pytest.approx(found.held)  # type: ignore[arg-type]
    return span, makespan


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
    {"ranks": 4, "microbatches": 8, "send": 2},
    {"ranks": 3, "microbatches": 6, "placement": "V", "send": 3, "least": "makespan"},
    {"ranks": 3, "microbatches": 4, "placement": "looped", "send": 1.5, "whole": True},
    {"ranks": 1, "microbatches": 3, "memory": 1},
    {"ranks": 2, "microbatches": 1, "placement": "V", "memory": 2, "backward_weight": 0},
]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("given", PROBLEMS)
def test_the_ledger_confirms_what_the_solver_says(given: dict[str, object]) -> None:
    confirmed(solve(**given, **QUICK))  # type: ignore[arg-type]


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


def even(seed: int, most: int) -> tuple[dict[str, Any], Case]:
    """A contiguous problem in whole numbers with one cap; sizes count in quarters."""
    choice = random.Random(seed)
    p = choice.randint(2, most)
    m = choice.choice([choice.randint(1, p), choice.randint(p, 4 * p), choice.randint(p, 8 * p)])
    f, i, w = choice.randint(5, 20), choice.randint(5, 20), choice.randint(1, 20)
    cap = choice.choice([p, 2 * p - 1, 2 * p, choice.randint(2, 3 * p), choice.randint(max(1, p // 2), p)])
    case = Case(p, m, f, i, w, choice.choice([0, 0, 1, 2, 5]), 4 * cap, 4, choice.choice([4, 4, 2, 1]))
    times = {"forward": f, "backward_input": i, "backward_weight": w, "send": case.c}
    return {"ranks": p, "microbatches": m, **times, "memory": cap, "m_w": case.m_w / 4}, case


def uneven(seed: int, most: int) -> tuple[dict[str, Any], Case]:
    """A contiguous problem with a list of times for each operation, and a cap for each rank."""
    choice = random.Random(seed)
    p = choice.randint(2, most)
    m, send = choice.randint(1, 5 * p), choice.choice([0, 0, 1, 3])
    times = [tuple(choice.randint(least, 20) for _ in range(p)) for least in (5, 5, 0)]
    caps = tuple(choice.randint(1, 2 * p) for _ in range(p))
    named = dict(zip(("forward", "backward_input", "backward_weight"), times))
    return {"ranks": p, "microbatches": m, "send": send, **named, "memory": caps}, Case(p, m, *times, send, caps)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("kind", "seed", "most", "effort"),
    [
        *((even, seed, 5, 0.1) for seed in range(4)),
        *((uneven, seed, 5, 0.05) for seed in range(4)),
        (uneven, 108, 10, 0.2),
        *(pytest.param(even, seed, 12, 0.4, marks=pytest.mark.slow) for seed in range(100, 120)),
        *(pytest.param(uneven, seed, 10, 0.2, marks=pytest.mark.slow) for seed in range(100, 110)),
    ],
)
def test_it_is_never_worse_than_what_was_published(kind: Any, seed: int, most: int, effort: float) -> None:
    """Also where ranks hold less than 1F1B needs, as in the uneven problem 108."""
    given, case = kind(seed, most)
    found = solve(**given, effort=effort, proof_seconds=0)
    span, _ = confirmed(found)
    assert all(held <= of(case.cap, rank) for rank, held in enumerate(all_held(case, rows_of(found.table))))
    for name, rows in known(case):
        assert span <= MOST[name] * max(spans(case, rows)), name
        assert span_bound(found.problem).ticks <= max(spans(case, rows))
        assert makespan_bound(found.problem).ticks <= max(makespans(case, rows))


def placed(seed: int) -> tuple[dict[str, Any], Case, Rows]:
    """A problem with several chunks a rank, under the cap of a textbook order; and that order."""
    choice = random.Random(seed)
    order: Callable[..., Timetable] = choice.choice(
        [v_min, v_half, zb_v, dualpipev, interleaved, interleaved_zb, breadth_first]
    )
    p, v = choice.randint(2, 6), 2
    m, sizes = choice.randint(1, 3 * p), dict[str, int]()
    placement, whole = "V", False
    if order in (interleaved, interleaved_zb, breadth_first):
        placement, sizes["v"] = "looped", (v := choice.randint(2, 6))
        whole = order is not interleaved_zb and choice.random() < 0.5
        m -= m % max(m // p, 1)
    elif order is dualpipev:
        m += 2 * p
    times = choice.choice([(1, 1, 1), (10, 12, 8), [choice.randint(1, 20) for _ in range(3)]])
    rows = rows_of(order(p, m, **sizes), whole)
    send = choice.choice([0, 1, min(times), 2 * max(times)])  # the last makes messages wait for each other
    case = Case(p, m, *times, send, 0)
    given = {
        "ranks": p, "microbatches": m, "send": send, "placement": placement, "chunks": v, "whole": whole,
        "memory": most_held(case, rows), "least": choice.choice(["span", "makespan"]),
        **dict(zip(("forward", "backward_input", "backward_weight"), times)),
    }  # fmt: skip
    return given, case, rows


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "effort"), [*((n, 0.02) for n in range(9)), *((n, 0.1) for n in range(100, 135))])
def test_with_several_chunks_it_is_no_worse_than_the_textbook(seed: int, effort: float) -> None:
    given, case, rows = placed(seed)
    found = solve(**given, effort=effort, proof_seconds=0)
    confirmed(found)
    assert found.took <= max((spans if given["least"] == "span" else makespans)(case, rows))


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
    confirmed(found)
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
        given, case, rows = placed(1000 + seed)
        problem = Problem(**given)  # type: ignore[arg-type]
        assert span_bound(problem).ticks <= max(spans(case, rows))
        assert makespan_bound(problem).ticks <= max(makespans(case, rows))


# --- Refused ---


@pytest.mark.parametrize(
    ("given", "facts"),
    [
        ({"memory": 0.5}, "0.5|holds|1|memory=1"),
        ({"memory": 3, "placement": "looped", "chunks": 4}, "memory=4"),
        ({"m_w": 3, "memory": 2}, "memory=3"),
        ({"ranks": 0}, "ranks|0"),
        ({"microbatches": 2.5}, "microbatches|2.5"),
        ({"forward": -1}, "forward|-1"),
        ({"forward": 0}, "forward|0.001"),
        ({"backward_input": 1.23456}, "backward-input|three|decimals|1.235"),
        ({"send": float("nan")}, "send|nan"),
        ({"memory": float("inf")}, "memory|inf"),
        ({"placement": "ring"}, "contiguous,|looped,|V|'ring'"),
        ({"chunks": 2}, "contiguous|1|2|looped"),
        ({"placement": "V", "chunks": 3}, "V|2|3"),
        ({"ranks": 2, "microbatches": 10**6}, "100,000|microbatches"),
        ({"least": "memory"}, "span,|makespan|'memory'"),
        ({"colour": "red"}, "'colour'|memory"),
        ({"effort": -1}, "effort|-1"),
        ({"forward": [1, 2]}, "forward must be a number or a list of 3, one for each of the stages; got 2 numbers"),
        ({"backward_weight": [1, -1, 1]}, "backward-weight of stage 1 must be a time from 0 to 10,000; got -1"),
        ({"memory": [3, 3]}, "memory must be a number or a list of 3, one for each of the ranks; got 2 numbers"),
        ({"memory": [3, 0.5, 3]}, "0.5 on rank 1: while a rank trains one microbatch it holds 1; take 1 or"),
        ({"m_b": [1, 1, 4], "memory": 3}, "3 on rank 2: while a rank trains one microbatch it holds 4; take memory=4"),
        ({"m_w": [1, "a", 1]}, "m_w of stage 1 must be a number from 0 on; got 'a'"),
    ],
)
def test_a_problem_that_cannot_be_is_refused_with_what_would_fit(given: dict[str, object], facts: str) -> None:
    with pytest.raises(RuleError) as why:
        solve(**{"ranks": 3, "microbatches": 4, **given})  # type: ignore[arg-type]
    assert [fact for fact in facts.split("|") if fact not in str(why.value)] == []


def test_a_table_is_timed_as_it_is() -> None:
    found = solution(Problem(2, 1), Timetable.read("0F0 0I0 0W0\n1F0 1I0 1W0"))
    assert (found.starts, found.ends, found.held) == ((0, 1), (5, 4), (1, 1))


# === Stages with times, sizes and caps of their own ===


def test_a_list_of_equal_numbers_is_the_number() -> None:
    one = solve(3, 6, forward=1.2, backward_input=1, memory=3, send=0.2, **QUICK)  # type: ignore[arg-type]
    more = {"backward_weight": (1.0,) * 3, "memory": [3] * 3, "m_b": [1] * 3, "m_w": [1.0] * 3}
    same = solve(3, 6, forward=[1.2] * 3, backward_input=[1] * 3, send=0.2, **more, **QUICK)  # type: ignore[arg-type]
    assert same == one
    assert same.program() == one.program()
    assert same.bound == one.bound


def test_a_slow_stage_sets_the_pace() -> None:
    found = solve(4, 12, forward=[1, 1, 2, 1], backward_input=[1, 1, 2, 1], backward_weight=[1, 1, 2, 1], **QUICK)  # type: ignore[arg-type]
    assert found.span == 12 * 6
    assert found.is_optimal
    approved("uneven", "a slow stage sets the pace", found.bound.reason)
    assert found.bubble == 0
    confirmed(found)


def test_caps_by_rank_are_kept() -> None:
    found = solve(4, 10, memory=[5, 2, 3, 1], m_b=[1, 0.5, 1, 1], m_w=[1, 1, 0.5, 0.25], **QUICK)  # type: ignore[arg-type]
    assert found.held <= (5, 2, 3, 1)
    confirmed(found)
    assert found.took <= solve(4, 10, memory=1, **QUICK).took  # type: ignore[arg-type]


@pytest.mark.slow
def test_no_order_of_two_ranks_is_below_the_bounds() -> None:
    """All orders of three microbatches with full backwards on two ranks, under random times and sizes."""
    rows = [[one for one in permutations("FFFBBB") if _legal(one)]] * 2
    tables = [[_numbered(r, row) for r, row in enumerate(pair)] for pair in _pairs(sorted(set(rows[0])))]
    for seed in range(12):
        choice = random.Random(seed)
        draw = [tuple(choice.randint(1, 9) for _ in range(2)) for _ in range(2)]
        for cap in (None, [1, 1], [2, 1], [3, 2]):
            problem = Problem(2, 3, *draw, [0, 0], choice.randint(0, 4), cap, whole=True)  # type: ignore[arg-type]
            case = Case(2, 3, *problem.ticks, 0)
            fit = [table for table in tables if problem.fits(all_held(case._replace(m_w=0), table))]
            played = [(max(spans(case, table)), max(makespans(case, table))) for table in fit]
            assert span_bound(problem).ticks <= min(span for span, _ in played)
            assert makespan_bound(problem).ticks <= min(makespan for _, makespan in played)
            measured = min(span for span, _ in played)
            fields = {name: getattr(problem, name) for name in Problem.__match_args__}
            assert confirmed(solve(**fields, **QUICK))[0] >= measured


def _legal(ops: tuple[str, ...]) -> bool:
    return all(ops[:n].count("F") >= ops[:n].count("B") for n in range(len(ops)))


def _numbered(stage: int, ops: tuple[str, ...]) -> list[tuple[int, str, int]]:
    return [(stage, op, ops[:n].count(op)) for n, op in enumerate(ops)]


def _pairs(rows: list[tuple[str, ...]]) -> list[tuple[tuple[str, ...], tuple[str, ...]]]:
    """Two ranks cannot wait for each other if the later one is never ahead in forwards that come before a backward."""
    return [(a, b) for a in rows for b in rows if all(_ahead(a, k) >= _ahead(b, k) for k in range(3))]


def _ahead(ops: tuple[str, ...], k: int) -> int:
    """The forwards before backward k."""
    return ops[: [n for n, op in enumerate(ops) if op == "B"][k]].count("F")


@with_ortools
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("seed", range(8))
def test_a_constraint_program_proves_uneven_problems_optimal(seed: int) -> None:
    """With random lists of everything: the bound is below what is proven, and what is proven fits."""
    choice = random.Random(seed)
    placement, p, v = choice.choice([("contiguous", 3, 1), ("V", 2, 2), ("looped", 2, 2)])

    def drawn(least: int, most: int, count: int = p * v) -> list[int]:
        return [choice.randint(least, most) for _ in range(count)]

    given: dict[str, Any] = {"forward": drawn(1, 6), "backward_input": drawn(1, 6), "backward_weight": drawn(0, 6)}
    given |= {"m_b": drawn(1, 2), "m_w": drawn(1, 2), "memory": drawn(5, 9, p), "send": choice.randint(0, 2)}
    given |= {"placement": placement, "least": choice.choice(["span", "makespan"]), "effort": 0.1}
    alone = solve(p, 3, **given, proof_seconds=0)
    proven = solve(p, 3, **given, proof_seconds=60)
    assert proven.is_optimal
    assert alone.bound.ticks <= proven.took <= alone.took
    confirmed(proven)


# --- Several chunks ---


def test_uneven_chunks_are_scheduled_too() -> None:
    """A head that costs more on the last stage, in a V and in a loop."""
    for placement, chunks in (("V", 2), ("looped", 3)):
        stages = 3 * chunks
        times = [2.0] * (stages - 1) + [3.5]
        found = solve(3, 6, forward=times, backward_input=times, placement=placement, chunks=chunks, memory=8, **QUICK)  # type: ignore[arg-type]
        confirmed(found)


def test_every_published_order_fits_or_says_that_it_does_not() -> None:
    """And a full backward is an order's input half with its weight half."""
    for placement, chunks in (("contiguous", 1), ("looped", 3), ("V", 2)):
        for whole in (False, True):
            problem = Problem(3, 7, forward=2, placement=placement, chunks=chunks, whole=whole, memory=9)
            for name in orders(placement, whole):
                rows = cells(problem, name)
                if rows is not None:
                    assert sum(map(len, rows)) == 21 * chunks * (2 if whole else 3), name
                    assert max(figures(problem, rows).ends) >= makespan_bound(problem).ticks
            assert any(cells(replace(problem, memory=None), name) for name in orders(placement, whole))


def test_stages_that_differ_have_no_run() -> None:
    found = solve(2, 2, forward=[1, 2], **QUICK)  # type: ignore[arg-type]
    for make in (found.trace, found.program):
        with approved_refusal("uneven", "stages that differ have no run", RuleError):
            make()
