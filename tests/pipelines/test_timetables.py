"""Timetables: any order that can be played is played in its time, and any other is refused by the cells that wait."""

from __future__ import annotations

import re
from collections.abc import Mapping
from graphlib import CycleError, TopologicalSorter
from math import prod
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib import COSTS, DeadlockError, RuleError, Setting, inflight, memory_by_kind, referee, run
from lib.pipelines import (
    Cell,
    Timetable,
    breadth_first,
    ddp,
    dualpipev,
    fsdp_prefetch,
    gpipe,
    interleaved,
    one_f_one_b,
    pipeline,
    zb_h1,
    zb_h2,
    zb_v,
    zero1,
    zero2,
    zero3,
)
from tests.support import finished
from tests.support.examples import examples
from tests.support.refusals import Refused
from tests.support.truth import UNIT
from tests.support.truth_runs import costs_of

FREE = Setting(costs_of(*UNIT))
LENGTHS = {"F": 1, "B": 2, "I": 1, "W": 1}

# --- Any order ---

Rows = list[list[Cell]]
Needs = dict[Cell, list[Cell]]


@st.composite
def steps(draw: st.DrawFn) -> tuple[list[int], Needs]:
    """The rank of each stage, and what each cell of a training step needs, written down once more."""
    drawn = draw(st.lists(st.integers(0, 2), min_size=1, max_size=4))
    place = [sorted(set(drawn)).index(rank) for rank in drawn]
    needs: Needs = {}
    for batch in range(draw(st.integers(1, 3))):
        ahead: list[Cell] = []
        for stage in range(len(place)):
            needs[Cell(stage, "F", batch)] = ahead
            ahead = [Cell(stage, "F", batch)]
        ahead = []
        for stage in reversed(range(len(place))):
            op = draw(st.sampled_from("BI"))
            needs[Cell(stage, op, batch)] = [*ahead, Cell(stage, "F", batch)]
            ahead = [Cell(stage, op, batch)]
            if op == "I":
                needs[Cell(stage, "W", batch)] = ahead
    return place, needs


def rows_of(cells: list[Cell], place: list[int]) -> Rows:
    return [[cell for cell in cells if place[cell.stage] == rank] for rank in range(max(place) + 1)]


def with_rows(needs: Needs, rows: Rows) -> Mapping[Cell, list[Cell]]:
    """What each cell waits for: what it needs, and the cell before it on its rank."""
    before = {cell: [row[k - 1]] if k else [] for row in rows for k, cell in enumerate(row)}
    return {cell: needs[cell] + before[cell] for cell in needs}


def length(waits: Mapping[Cell, list[Cell]]) -> int:
    """The longest path."""
    end: dict[Cell, int] = {}
    for cell in TopologicalSorter(waits).static_order():
        end[cell] = max((end[other] for other in waits[cell]), default=0) + LENGTHS[cell.op]
    return max(end.values())


@given(steps(), st.data())
@examples(100)
def test_an_order_that_can_be_played_takes_its_longest_path(step: tuple[list[int], Needs], data: st.DataObject) -> None:
    place, needs = step
    left, cells = dict(needs), list[Cell]()
    while left:  # whatever can be next, is
        cells.append(data.draw(st.sampled_from([c for c in left if not left.keys() & set(needs[c])])))
        del left[cells[-1]]
    rows = rows_of(cells, place)
    table = Timetable.of(rows)
    assert Timetable.read(str(table)) == table
    outcome = finished(pipeline(table), len(place), table.batches, len(rows), setting=FREE)
    report = referee(outcome.trace)
    assert (report.error, report.makespan) == (None, length(with_rows(needs, rows)))


@given(steps(), st.data())
@examples(200)
def test_an_order_is_refused_if_and_only_if_its_cells_wait_for_each_other(
    step: tuple[list[int], Needs], data: st.DataObject
) -> None:
    place, needs = step
    rows = rows_of(data.draw(st.permutations(list(needs))), place)
    waits = with_rows(needs, rows)
    try:
        TopologicalSorter(waits).prepare()
    except CycleError:
        with pytest.raises(DeadlockError) as refused:
            Timetable.of(rows)
        claims = re.findall(
            r"(\w+) on rank (\d) waits for (\w+)(?:, which comes after (\w+) on rank (\d))?", str(refused.value)
        )
        assert claims
        named = {str(cell): cell for cell in needs}
        for cell, rank, missing, after, other in claims:
            assert named[missing] in needs[named[cell]]
            assert place[named[cell].stage] == int(rank)
            if after:
                row = rows[int(other)]
                assert row.index(named[after]) < row.index(named[missing])
    else:
        assert (
            run(
                pipeline(Timetable.of(rows)), len(place), 1 + max(c.batch for c in needs), len(rows), setting=FREE
            ).error
            is None
        )


# --- Written by hand ---

GREEDY = """
0F0 0F1 0F2 0F3 0B0 0B1 0B2 0B3

1F0 1B0 1F1 1B1 1F2 1B2 1F3 1B3
"""


def test_messages_have_tags_only_where_a_mailbox_would_be_full() -> None:
    """Rank 1 goes back at once, while rank 0 reads nothing before its last forward: one mailbox would not do."""
    assert tags(gpipe(2, 4)) == tags(one_f_one_b(4, 8)) == tags(zb_h2(4, 8)) == tags(interleaved(4, 8)) == {0}
    assert len(tags(zb_v(4, 8))) == 12, "activations and gradients between 8 stages, but none at the turn"
    assert len(tags(Timetable.read(GREEDY))) == 8, "each message has its own"


def tags(table: Timetable) -> set[int]:
    size = (table.stages, table.batches, table.ranks)
    trace = run(pipeline(table), *size, setting=FREE).trace
    return {op.args[1] if len(op.args) > 1 else 0 for ops in trace.ranks for op in ops if op.name == "pass_to"}


def test_the_classic_game_plays_orders_that_need_no_tags() -> None:
    outcome = run(pipeline(one_f_one_b), 4, 4, 4)
    assert (outcome.error, referee(outcome.trace).error) == (None, None)
    error = run(pipeline(Timetable.read(GREEDY)), 2, 4, 2).error
    assert "messages with tags" in str(error)
    assert "stages" in str(error)


def test_of_cells_that_start_together_one_may_need_the_other() -> None:
    outcome = run(pipeline(Timetable.read("(0F0;1F0) (1B0;0B0)")), 2, 1, 1, setting=FREE)
    assert (outcome.error, referee(outcome.trace).error) == (None, None)


def test_a_csv_file_and_cells_that_start_together_are_read() -> None:
    table = Timetable.read("0F0,0F1,,(0F2;0B0),0B1,0B2\n")
    assert str(table) == "0F0 0F1 (0F2;0B0) 0B1 0B2"
    assert [len(slot) for slot in table.rows[0]] == [1, 1, 2, 1, 1]


WRONG: dict[str, tuple[str, type[Exception], list[str]]] = {
    "nothing": ("  \n", RuleError, ["no cells"]),
    "no cell": ("0F0 0B0\n1F0 hello", RuleError, ["line 2", "'hello'", "2F5"]),
    "an unknown operation": ("0F0 0X0", RuleError, ["0X0", "F, B, I or W"]),
    "a stage on two ranks": ("0F0 0B0\n0F1 0B1", RuleError, ["stage 0", "rank 0", "rank 1"]),
    "a cell is missing": ("0F0 0B0 0F1", RuleError, ["microbatch 1", "stage 0", "F and B"]),
    "a whole microbatch is missing": ("0F1 0B1", RuleError, ["microbatch 0", "nothing"]),
    "a stage is missing": ("1F0 1B0", RuleError, ["stage 0", "nothing"]),
    "a half is missing": ("0F0 0I0", RuleError, ["F I", "F, I and W"]),
    "whole and half": ("0F0 0B0 0I0 0W0", RuleError, ["B F I W"]),
    "twice": ("0F0 0F0 0B0", RuleError, ["B F F"]),
    "backward first": ("0B0 0F0", DeadlockError, ["0B0 on rank 0 waits for 0F0, which comes after 0B0"]),
    "backward first in a slot": ("(0B0;0F0)", DeadlockError, ["0B0 on rank 0 waits for 0F0"]),
    "a circle": (
        "0F0 0B0 0F1 0B1\n1F0 1F1 1B0 1B1",
        DeadlockError,
        ["0B0 on rank 0 waits for 1B0, which comes after 1F1 on rank 1", "1F1 on rank 1 waits for 0F1"],
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_table_that_is_no_training_step_is_refused(case: str) -> None:
    text, kind, facts = WRONG[case]
    with pytest.raises(kind) as refused:
        Timetable.read(text)
    assert [fact for fact in facts if fact not in str(refused.value)] == []


def test_a_rank_without_work_is_refused() -> None:
    with Refused("rank without cells", rank=1):
        Timetable.of([[Cell(0, "F", 0), Cell(0, "B", 0)], []])


def test_what_is_no_order_is_refused_at_once() -> None:
    with pytest.raises(RuleError, match="one_f_one_b, or a timetable"):
        pipeline("1F1B")  # type: ignore[arg-type]
    with pytest.raises(RuleError, match="leave out v"):
        pipeline(zb_v(2, 4), v=2)


MISFITS: list[tuple[Any, tuple[int, int, int], Setting, list[str]]] = [
    (pipeline(one_f_one_b(2, 4)), (2, 5, 2), FREE, ["2 ranks", "4 microbatches", "5"]),
    (pipeline(interleaved, v=2), (6, 4, 2), FREE, ["6 layers", "4 equal stages"]),
    (pipeline(interleaved), (8, 9, 4), FREE, ["multiple of 4", "9"]),
    (pipeline(breadth_first, v=0), (2, 2, 2), FREE, ["at least 1", "0"]),
    (pipeline(dualpipev), (8, 7, 4), FREE, ["8 stages", "7"]),
    (pipeline(zb_h1), (2, 4, 2), Setting("stages"), ["backward_input", "no price"]),
    (pipeline(gpipe), (2, 3, 4), Setting(mesh={"pp": 2, "dp": 2}), ["3 microbatches", "2 replicas"]),
    (pipeline(interleaved, v=0), (2, 2, 2), FREE, ["at least 1", "0"]),
    (ddp, (2, 3, 2), Setting(), ["3 microbatches", "2 ranks"]),
]


@pytest.mark.parametrize(("schedule", "size", "setting", "facts"), MISFITS)
def test_a_game_of_the_wrong_size_is_refused(
    schedule: Any, size: tuple[int, int, int], setting: Setting, facts: list[str]
) -> None:
    error = run(schedule, *size, setting=setting).error
    assert isinstance(error, RuleError)
    assert [fact for fact in facts if fact not in str(error)] == []


# --- What the players can do besides ---


def test_recomputation_keeps_the_inputs_of_stages_only() -> None:
    """Three layers to a stage, four microbatches: their 12 inputs and one more, or four and those of one microbatch."""
    setting = Setting("stages")
    kept, again = (run(pipeline(gpipe, recompute=flag), 6, 4, 2, setting=setting).trace for flag in (False, True))
    assert referee(again).error is None
    most = [max(sum(s.activations) for s in memory_by_kind(trace)[0]) for trace in (kept, again)]
    assert most == [13 * COSTS["stages"].activation, 6 * COSTS["stages"].activation]
    assert referee(again).makespan > referee(kept).makespan
    assert inflight(again) == inflight(kept)


def test_replicas_of_a_pipeline_take_their_part_of_the_microbatches() -> None:
    setting = Setting("twentieths", mesh={"pp": 2, "dp": 2}, steps=2)
    for more in ({}, {"sharded": True}):
        outcome = run(pipeline(breadth_first, **more), 4, 8, 4, setting=setting)
        assert (outcome.error, referee(outcome.trace).error) == (None, None)
        assert {op.batches for op in outcome.trace.ranks[1] if op.name == "get_activation"} == {
            frozenset([b]) for b in range(4, 8)
        }


@pytest.mark.parametrize("schedule", [pipeline(gpipe), pipeline(gpipe, sharded=True), ddp, zero3])
def test_replicas_do_the_same_at_the_same_time(schedule: Any) -> None:
    setting = Setting(mesh={"dp": 4} if schedule in (ddp, zero3) else {"dp": 4, "pp": 2})
    each = prod(length for _, length in setting.mesh) // 4
    trace = run(schedule, 4, 8, 4 * each, setting=setting).trace
    assert referee(trace).error is None
    events = [[(op.name, op.layer, op.start, op.end) for op in ops] for ops in trace.ranks]
    assert events == events[:each] * 4


def test_a_mesh_of_replicas_alone_has_pipelines_of_one_rank() -> None:
    outcome = run(pipeline(one_f_one_b), 2, 4, 2, setting=Setting(mesh={"dp": 2}))
    assert (outcome.error, referee(outcome.trace).error) == (None, None)


KNOWN = [
    (ddp, (4, 4, 4), Setting(), 10.7, 3_145_728),
    (ddp, (6, 4, 4), Setting("buckets"), 15.4, 6_029_312),
    (zero1, (4, 4, 4), Setting(), 12.1, 2_097_152),
    (zero2, (4, 16, 4), Setting(), 39.7, 2_359_296),
    (zero3, (6, 4, 4), Setting("overlap"), 22.5, 2_293_760),
    (fsdp_prefetch, (6, 4, 4), Setting("overlap"), 15, 2_555_904),
]


@pytest.mark.parametrize(("schedule", "size", "setting", "time", "memory"), KNOWN)
def test_schedules_without_a_pipeline_have_known_figures(
    schedule: Any, size: tuple[int, int, int], setting: Setting, time: float, memory: int
) -> None:
    outcome = run(schedule, *size, setting=setting)
    report = referee(outcome.trace)
    assert (outcome.error, report.error) == (None, None)
    assert (report.timesteps, report.peak.memory) == (time, memory)


@pytest.mark.parametrize("schedule", [ddp, zero1, zero2, zero3, fsdp_prefetch])
@pytest.mark.parametrize("setting", [Setting(steps=2), Setting("overlap", steps=2)])
def test_they_train_on_several_microbatches_and_steps(schedule: Any, setting: Setting) -> None:
    outcome = run(schedule, 3, 6, 2, setting=setting)
    assert (outcome.error, referee(outcome.trace).error) == (None, None)
