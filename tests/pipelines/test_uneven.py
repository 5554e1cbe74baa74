"""Stages with times, sizes and caps of their own, and orders for chunks that the solver is never worse than."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from itertools import permutations
from typing import Any

import pytest

from lib import RuleError
from lib.pipelines import Timetable, dualpipev, interleaved, interleaved_zb, v_half, v_min, zb_v
from lib.pipelines.solver import Problem, Solution, solve
from lib.pipelines.solver.problem import makespan_bound, span_bound
from lib.pipelines.solver.search import cells, orders
from lib.pipelines.solver.solving import figures
from tests.screens.texts import approved, approved_refusal
from tests.support.published_search import MOST, Case, all_held, known, makespans, most_held, spans

from .test_solver import rows_of, with_ortools

QUICK = {"effort": 0.05, "proof_seconds": 0}


def confirmed(found: Solution) -> tuple[int, int]:
    """Span and makespan in ticks, timed without the solver; what is held fits."""
    problem = found.problem
    case = Case(problem.ranks, problem.microbatches, *problem.ticks, 0)
    rows = rows_of(found.table, problem.whole)
    span, makespan = max(spans(case, rows)), max(makespans(case, rows))
    assert (span, makespan) == (round(found.span * problem.unit), round(found.makespan * problem.unit))
    assert span_bound(problem).ticks <= span
    assert makespan_bound(problem).ticks <= makespan
    assert problem.fits(found.held)
    return span, makespan


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


def uneven(seed: int, most: int) -> dict[str, Any]:
    """A contiguous problem with lists of everything; each rank has room for its own times the larger size."""
    choice = random.Random(seed)
    p = choice.randint(2, most)
    m = choice.randint(1, 5 * p)
    given: dict[str, Any] = {"ranks": p, "microbatches": m, "send": choice.choice([0, 0, 1, 3])}
    for name, least in (("forward", 5), ("backward_input", 5), ("backward_weight", 0)):
        given[name] = [choice.randint(least, 20) for _ in range(p)]
    return given | {"memory": [choice.randint(1, 2 * p) for _ in range(p)]}


def require_never_worse(given: dict[str, Any], effort: float) -> None:
    found = solve(**given, effort=effort, proof_seconds=0)
    span, _ = confirmed(found)
    times = (tuple(given[name]) for name in ("forward", "backward_input", "backward_weight"))
    case = Case(given["ranks"], given["microbatches"], *times, given["send"], tuple(given["memory"]))
    for name, rows in known(case):
        assert span <= MOST[name] * max(spans(case, rows)), name
        assert span_bound(found.problem).ticks <= max(spans(case, rows))
        assert makespan_bound(found.problem).ticks <= max(makespans(case, rows))


@pytest.mark.sampled(1)
@pytest.mark.parametrize("seed", range(4))
def test_it_is_never_worse_than_what_was_published(seed: int) -> None:
    require_never_worse(uneven(seed, 5), 0.05)


def test_ranks_that_hold_less_than_1f1b_needs_have_fewer_microbatches_in_flight() -> None:
    require_never_worse(uneven(108, 10), 0.2)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 110))
def test_it_is_never_worse_than_what_was_published_in_more_cases(seed: int) -> None:
    require_never_worse(uneven(seed, 10), 0.2)


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
            assert confirmed(solve(**_fields(problem), **QUICK))[0] >= measured  # type: ignore[arg-type]


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


def _fields(problem: Problem) -> dict[str, Any]:
    return {name: getattr(problem, name) for name in Problem.__match_args__}


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


def order_of(seed: int) -> tuple[dict[str, Any], Callable[[], Timetable]]:
    """A problem whose cap is what an order holds, and that order."""
    choice = random.Random(seed)
    p = choice.randint(2, 6)
    name = choice.choice(["v_min", "v_half", "zb_v", "dualpipev", "interleaved", "interleaved_zb"])
    m = choice.randint(1, 3 * p)
    given: dict[str, Any] = {"ranks": p, "microbatches": m, "send": choice.choice([0, 1]), "placement": "V"}
    times = choice.choice([(1, 1, 1), (10, 12, 8), [choice.randint(5, 15) for _ in range(3)]])
    given |= dict(zip(("forward", "backward_input", "backward_weight"), times))
    given["least"] = choice.choice(["span", "makespan"])
    if name.startswith("interleaved"):
        v = choice.randint(2, 6)
        rounds = max(m // p, 1)
        m -= m % rounds
        given |= {"placement": "looped", "chunks": v, "microbatches": m}
        return given, lambda: (interleaved if name == "interleaved" else interleaved_zb)(p, m, v, m // rounds)
    if name == "dualpipev":
        given["microbatches"] = m = 2 * p + m
    return given, lambda: {"v_min": v_min, "v_half": v_half, "zb_v": zb_v, "dualpipev": dualpipev}[name](p, m)


def require_no_worse_than_the_order(seed: int, effort: float) -> None:
    given, order = order_of(seed)
    rows = rows_of(order())
    plain = (given[name] for name in ("forward", "backward_input", "backward_weight"))
    case = Case(given["ranks"], given["microbatches"], *plain, given["send"], 0)
    found = solve(**given, memory=most_held(case, rows), effort=effort, proof_seconds=0)
    confirmed(found)
    measured = spans if given["least"] == "span" else makespans
    assert found.took <= max(measured(case, rows))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_with_chunks_it_is_never_worse_than_v_orders_and_those_of_pytorch(seed: int) -> None:
    require_no_worse_than_the_order(seed, 0.01)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 120))
def test_with_chunks_it_is_never_worse_in_more_cases(seed: int) -> None:
    require_no_worse_than_the_order(seed, 0.05)


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


# --- Refused ---


@pytest.mark.parametrize(
    ("given", "facts"),
    [
        ({"forward": [1, 2]}, "forward must be a number or a list of 3, one for each of the stages; got 2 numbers"),
        ({"backward_weight": [1, -1, 1]}, "backward-weight of stage 1 must be a time from 0 to 10,000; got -1"),
        ({"memory": [3, 3]}, "memory must be a number or a list of 3, one for each of the ranks; got 2 numbers"),
        ({"memory": [3, 0.5, 3]}, "0.5 on rank 1: while a rank trains one microbatch it holds 1; take 1 or"),
        ({"m_b": [1, 1, 4], "memory": 3}, "3 on rank 2: while a rank trains one microbatch it holds 4; take memory=4"),
        ({"m_w": [1, "a", 1]}, "m_w of stage 1 must be a number from 0 on; got 'a'"),
    ],
)  # fmt: skip
def test_a_list_that_cannot_be_is_refused(given: dict[str, object], facts: str) -> None:
    with pytest.raises(RuleError) as why:
        Problem(3, 4, **given)  # type: ignore[arg-type]
    assert facts in str(why.value)


def test_stages_that_differ_have_no_run() -> None:
    found = solve(2, 2, forward=[1, 2], **QUICK)  # type: ignore[arg-type]
    for make in (found.trace, found.program):
        with approved_refusal("uneven", "stages that differ have no run", RuleError):
            make()
