"""V-Min and V-Half, and PyTorch's interleaved zero bubble."""

from __future__ import annotations

from collections import Counter, defaultdict

import pytest

from lib import RuleError, Setting, inflight, referee, run
from lib.pipelines import Timetable, interleaved, interleaved_zb, pipeline, v_half, v_min, zb_h1
from tests.screens.texts import approved_refusal
from tests.support.published_search import Case, makespans, most_held, spans


def figures(table: Timetable) -> tuple[int, int, int]:
    """The longest span, the makespan, and the most chunks that a rank holds, with unit times."""
    rows = [[tuple(cell) for slot in row for cell in slot] for row in table.rows]
    case = Case(table.ranks, table.batches, 1, 1, 1, 0, 0)
    return max(spans(case, rows)), max(makespans(case, rows)), most_held(case, rows)  # type: ignore[arg-type]


@pytest.mark.parametrize(("p", "time"), [(4, 77), (6, 119), (8, 161), (12, 245)])
def test_v_half_meets_the_best_time_under_its_cap(p: int, time: int) -> None:
    """6m + 6p - 3 cap - 1 with m = 3p and a cap of 2 floor((p + 2) / 2) chunks."""
    cap = 2 * ((p + 2) // 2)
    assert time == 18 * p + 6 * p - 3 * cap - 1
    assert figures(v_half(p, 3 * p)) == (time, time, cap)


@pytest.mark.parametrize(("p", "time"), [(4, 83), (5, 101), (6, 125), (8, 167), (11, 233), (12, 257)])
def test_v_min_meets_the_best_time_under_its_cap(p: int, time: int) -> None:
    cap = 2 * ((p + 4) // 3)
    assert time == 18 * p + 6 * p - 3 * cap - 1
    assert figures(v_min(p, 3 * p)) == (time, time, cap)


@pytest.mark.parametrize("order", [v_min, v_half])
def test_they_exist_at_every_size_and_the_ledger_confirms_them(order: type) -> None:
    for p in range(1, 8):
        for m in (1, 2, p, 2 * p + 1):
            time, _, held = figures(order(p, m))
            assert time >= 6 * m
            assert held <= 2 * ((p + 4) // 3 if order is v_min else (p + 2) // 2)
    trace = run(pipeline(order(3, 5)), 6, 5, 3, setting=Setting("parts")).trace
    assert referee(trace).error is None
    assert max(inflight(trace, 1, 1, chunk=1)) == figures(order(3, 5))[2]


def test_sizes_that_do_not_exist_are_refused() -> None:
    with approved_refusal("v_orders", "sizes that do not exist are refused", RuleError):
        v_min(0, 4)
    with approved_refusal("v_orders", "sizes that do not exist are refused, 2", RuleError):
        interleaved_zb(4, 4, 2, 6)


def torch_rows(p: int, m: int, v: int) -> list[list[tuple[int, str, int]]]:
    """The loop of PyTorch's ScheduleInterleavedZeroBubble, operation by operation, without its bubbles."""
    a_round = m // max(1, m // p)
    rows = []
    for rank in range(p):
        warm = min((v - 1) * a_round + p - 1 - rank, m * v)
        done: defaultdict[str, Counter[int]] = defaultdict(Counter)
        row: list[tuple[int, str, int]] = []
        late: list[int] = []

        def put(op: str, stage: int, row: list[tuple[int, str, int]] = row, done: object = done) -> None:
            row.append((stage, op, done[op][stage]))  # type: ignore[index]
            done[op][stage] += 1  # type: ignore[index]

        for op in range(warm + m * v):
            if op < m * v:
                put("F", op // a_round % v * p + rank)
            if op >= warm:
                stage = (v - 1 - (op - warm) // a_round % v) * p + rank
                put("I", stage)
                late.append(stage)
                if op - warm >= rank:
                    put("W", late.pop(0))
        for stage in late:
            put("W", stage)
        rows.append(row)
    return rows


@pytest.mark.parametrize(("p", "m", "v"), [(2, 4, 2), (4, 8, 3), (4, 6, 2), (3, 3, 1), (3, 2, 2), (4, 10, 5)])
def test_interleaved_zero_bubble_is_the_order_of_pytorch(p: int, m: int, v: int) -> None:
    table = interleaved_zb(p, m, v, m // max(1, m // p))
    assert [[tuple(cell) for slot in row for cell in slot] for row in table.rows] == torch_rows(p, m, v)


def test_with_one_chunk_interleaved_zero_bubble_is_zb_h1() -> None:
    assert interleaved_zb(4, 8, 1) == zb_h1(4, 8)


def test_groups_may_be_larger_than_the_ranks() -> None:
    assert interleaved(4, 8, 2, 4) == interleaved(4, 8, 2)
    assert interleaved(4, 6, 2, 6).batches == 6


def test_a_shorter_warm_up_is_at_least_enough_for_the_first_microbatch() -> None:
    assert interleaved(4, 8, 2, warmup=10) == interleaved(4, 8, 2)
    first = [cell.op for slot in interleaved(4, 8, 2, warmup=7).rows[0] for cell in slot]
    assert first.index("B") == 8
    with approved_refusal("v_orders", "a shorter warm up is at least enough for the first microbatch", RuleError):
        interleaved(4, 8, 2, warmup=6)
