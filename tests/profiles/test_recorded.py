"""Recorded runs with known sleeps: names, times, shares, causes and planted faults."""

from __future__ import annotations

from typing import Any

import pytest

from lib.ledger.referee import referee
from lib.pipelines import Timetable, interleaved, one_f_one_b, zb_h1, zb_v
from lib.pipelines.solver import Problem
from lib.pipelines.solver.solving import solution
from lib.pipelines.torch_csv import read_csv, write_table
from lib.profiles.gathered import Order, makespan, replayed
from tests.support.profiles import PIPELINES, shared, studied

SLEEP = 10.0
"""Ms that a stage sleeps in F, I and W each."""

SLOW = {"1f1b_slow": (2, 1.5), "interleaved_uneven": (7, 2.0)}
"""By case: the stage that computes longer, and how many times."""

EVEN = [case for case in PIPELINES if case not in (*SLOW, "1f1b_jitter", "1f1b_hosted")]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("case", PIPELINES)
def test_a_schedule_is_named_as_it_was_recorded(case: str) -> None:
    assert studied(case).name.text == PIPELINES[case]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("case", PIPELINES)
def test_medians_are_the_sleeps(case: str) -> None:
    for row in studied(case).stages:
        stage, factor = SLOW.get(case, (-1, 1.0))
        each = SLEEP * factor if row.stage == stage else SLEEP
        for op, time in row.times.items():
            halves = {"F": 1, "W": 1, "I": row.stage > 0, "B": 1 + (row.stage > 0)}[op]
            assert halves * each <= time.low <= halves * (each + 1.0) + 0.5, (row.stage, op)
            assert time.low <= time.median <= min(time.high, time.low + 3)  # some were recorded beside other work


@pytest.mark.sampled(4)
@pytest.mark.parametrize("case", PIPELINES)
def test_shares_add_up_and_the_ladder_explains_the_bubble(case: str) -> None:
    found = studied(case)
    for one in found.steps:
        for rank in one.ranks:
            assert sum(rank[:-1]) == pytest.approx(one.step.length)
    length = found.chosen.step.length
    assert sum(rung.ms for rung in found.ladder) / length == pytest.approx(found.chosen.bubble)
    assert abs(found.ladder[-1].ms) <= 0.03 * length
    assert found.is_trusted
    assert 0 < found.chosen.bubble < found.chosen.of_ideal


@pytest.mark.sampled(3)
@pytest.mark.parametrize("case", EVEN)
def test_even_runs_have_no_finding_but_late_hosts(case: str) -> None:
    assert {one.kind for one in studied(case).findings} <= {"host"}


def test_planted_faults_are_the_first_finding() -> None:
    slow = studied("1f1b_slow").findings[0]
    assert (slow.kind, slow.rank, slow.cell.stage) == ("slow rank", 2, 2)
    assert "48% longer" in slow.text or "49% longer" in slow.text
    assert slow.ms == pytest.approx(8 * 3 * SLEEP / 2, rel=0.05)
    uneven = studied("interleaved_uneven").findings[0]
    assert (uneven.kind, uneven.rank, uneven.cell.stage) == ("slow rank", 3, 7)
    jitter = studied("1f1b_jitter").findings[0]
    assert (jitter.kind, jitter.rank, str(jitter.cell)) == ("host", 1, "1F3")
    assert 40 <= jitter.ms <= 60
    hosted = studied("1f1b_hosted").findings[0]
    assert (hosted.kind, hosted.rank) == ("host", 1)
    assert hosted.ms > 40


@pytest.mark.sampled(1)
@pytest.mark.parametrize("case", PIPELINES)
def test_the_bound_is_below_the_replay_and_the_replay_below_the_run(case: str) -> None:
    found = studied(case)
    bound = found.prospect.bound
    assert bound is not None
    assert bound.ms <= bound.replay <= found.chosen.step.length
    assert bound.has_halves == (case in ("zb_interleaved", "zbv", "dualpipev"))


@pytest.mark.sampled(1)
@pytest.mark.parametrize("case", PIPELINES)
def test_a_better_order_is_shorter_and_plays_in_pytorch(case: str) -> None:
    found = studied(case)
    better = found.prospect.better
    assert (better is None) == (case in ("zb_interleaved", "zbv", "dualpipev"))
    if better is not None:
        assert found.prospect.bound is not None
        assert better.replay == found.prospect.bound.replay
        assert better.shorter >= 0.01
        assert better.span[0] <= better.ms <= better.span[1]
        assert better.held <= max(row.held for row in found.stages)
        assert read_csv(write_table(better.table)) == better.table


def test_without_annotations_cells_follow_from_messages() -> None:
    bare, named = studied("1f1b"), studied("1f1b_annotated")
    assert bare.chosen.step.table == named.chosen.step.table == one_f_one_b(4, 8)
    assert any("order of messages" in note for note in bare.gathered.notes)
    assert not named.gathered.notes


def test_of_several_steps_the_median_one_is_shown() -> None:
    found = studied("interleaved_steps")
    lengths = {one.step.number: one.step.length for one in found.steps}
    assert sorted(lengths) == [2, 3, 4]
    assert found.chosen.step.length == sorted(lengths.values())[1]


def test_fsdp_and_ddp_wait_for_the_slow_rank() -> None:
    for case, share in (("ddp", 1.0), ("fsdp2_slow", 0.9)):
        found = shared(case)
        waited = found.waited_for
        assert max(waited, key=waited.__getitem__) == 2, case
        assert waited[2] >= share * sum(waited.values())
        for one in found.ranks:
            parts = one.computing + sum(one.waiting.values()) + one.communication + one.host
            assert parts == pytest.approx(one.length)
        slow, others = found.ranks[2].computing, [one.computing for one in found.ranks if one.rank != 2]
        assert slow > 2.5 * max(others)


@pytest.mark.slow
def test_tensor_parallel_ranks_wait_in_turn() -> None:
    found = shared("tp")
    assert found.calls >= 7
    for one in found.ranks:  # a wait for a tensor is no computing
        assert one.computing < 0.3 * one.length


@pytest.mark.parametrize(
    ("table", "more"),
    [
        (one_f_one_b(4, 8), {"whole": True}),
        (interleaved(4, 8, 2), {"whole": True, "placement": "looped"}),
        (zb_h1(4, 6), {}),
        (zb_v(4, 8), {"placement": "V"}),
    ],
)
def test_a_replay_with_equal_times_is_the_referees(table: Timetable, more: dict[str, Any]) -> None:
    lengths = {"F": 1.0, "B": 1.7, "I": 1.0, "W": 0.7}
    times = replayed(Order(table), lambda rank, at: lengths[table.rows[rank][at][0].op], message=0.2)
    problem = Problem(4, table.batches, backward_weight=0.7, send=0.2, **more)
    assert makespan(times) == pytest.approx(referee(solution(problem, table).trace()).makespan)
