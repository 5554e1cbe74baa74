"""Timetables: what can be played is played in its time; drafts refuse exactly the places where a step could not end."""

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from math import prod
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib import (
    CLASSIC_SETTING,
    COSTS,
    DeadlockError,
    RuleError,
    Setting,
    Size,
    Trace,
    inflight,
    memory_by_kind,
    referee,
    run,
)
from lib.pipelines import (
    Cell,
    Draft,
    Timetable,
    breadth_first,
    code_of,
    ddp,
    dualpipev,
    fsdp_prefetch,
    gpipe,
    interleaved,
    one_f_one_b,
    pipeline,
    seq1f1b,
    timetable_of,
    zb_h1,
    zb_h2,
    zb_v,
    zero1,
    zero2,
    zero3,
)
from lib.pipelines.player import BegunTable, begun
from tests.oracles.truth import UNIT
from tests.oracles.truth_runs import costs_of
from tests.screens.texts import approved
from tests.support import finished
from tests.support.examples import examples
from tests.support.refusals import Refused

FREE = Setting(costs_of(*UNIT))
SEQUENCES = Setting("sequences", layer="attention", shares=8)
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
    (pipeline(seq1f1b, shares=9), (4, 4, 4), SEQUENCES, ["cuts a sequence into 9 shares; the game has 8"]),
    (pipeline(seq1f1b, shares=0), (4, 4, 4), SEQUENCES, ["at least one share; got 0"]),
    (pipeline(one_f_one_b, flush=False), (4, 4, 4), SEQUENCES, ["layers that are not attention"]),
    (pipeline(one_f_one_b, flush=False, sharded=True), (4, 4, 4), Setting("stages", steps=4, lag=1), ["full weights"]),
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


@pytest.mark.parametrize("schedule", [ddp, zero1, zero2, zero3, fsdp_prefetch])
@pytest.mark.parametrize("setting", [Setting(steps=2), Setting("overlap", steps=2)])
def test_they_train_on_several_microbatches_and_steps(schedule: Any, setting: Setting) -> None:
    outcome = run(schedule, 3, 6, 2, setting=setting)
    assert (outcome.error, referee(outcome.trace).error) == (None, None)


# === Drafts, code, and timetables of runs ===


def cells(*rows: str) -> tuple[tuple[Cell, ...], ...]:
    return tuple(tuple(Cell(int(w[0]), w[1], int(w[2:])) for w in row.split()) for row in rows)


# --- Where a cell may go ---


def can_end(draft: Draft) -> bool:
    """True if all cells of the step, those that are placed in their order, can be computed: each waits for what its own
    operation needs, written down once more, and for the cell before it in its row."""
    waits: dict[Cell, list[Cell]] = {cell: [] for cell in draft.wanted}
    for stage, op, batch in draft.wanted:
        here = waits[Cell(stage, op, batch)]
        if op == "F" and stage:
            here.append(Cell(stage - 1, "F", batch))
        elif op == "W":
            here.append(Cell(stage, "I", batch))
        elif op != "F":
            here.append(Cell(stage, "F", batch))
            if stage + 1 < draft.stages:
                here.append(Cell(stage + 1, op, batch))
    for row in draft.rows:
        for before, cell in pairwise(row):
            waits[cell].append(before)
    try:
        list(TopologicalSorter(waits).static_order())
    except CycleError:
        return False
    return True


@examples(60)
@given(st.data())
def test_a_place_is_refused_exactly_where_the_step_could_not_end(data: st.DataObject) -> None:
    ranks, halves = data.draw(st.integers(1, 3)), data.draw(st.booleans())
    draft = Draft(((),) * ranks, data.draw(st.integers(1, 4)), data.draw(st.integers(1, 3)), halves)
    for _ in range(data.draw(st.integers(0, 14))):
        if not draft.missing:
            break
        cell = data.draw(st.sampled_from(draft.missing))
        home = {one.stage: rank for one, rank in draft.rank_of.items()}.get(cell.stage)
        legal = []
        for rank, places in enumerate(draft.refusals(cell)):
            assert len(places) == len(draft.rows[rank]) + 1
            for at, why in enumerate(places):
                row = draft.rows[rank]
                rows = (*draft.rows[:rank], (*row[:at], cell, *row[at:]), *draft.rows[rank + 1 :])
                tried = Draft(rows, draft.stages, draft.batches, halves)
                assert bool(why) == (not can_end(tried) or home not in (None, rank))
                if not why:
                    legal.append(tried)
        draft = data.draw(st.sampled_from(legal))
    starts = draft.starts({"F": 1, "B": 2, "I": 1, "W": 1})
    assert set(starts) == set(draft.rank_of)
    for row in draft.rows:
        assert [starts[cell] for cell in row] == sorted(starts[cell] for cell in row)


@pytest.mark.parametrize(
    ("rows", "cell", "place", "facts"),
    [
        (("0F0", "", ""), "1F0", (0, 0), ["1F0 needs 0F0", "after 0F0"]),
        (("0F0", "1B0", ""), "1F0", (1, 1), ["1B0 needs 1F0", "before 1B0"]),
        (("0F0", "1F0", ""), "1F1", (0, 1), ["stage 1 is on rank 1"]),
        (("0F0 0B0", "", ""), "2F0", (0, 0), ["2F0 needs 0F0", "after 0F0"]),
        (("0F1", "1F1 1F0", ""), "0F0", (0, 0), [""]),
        (("0B0", "1F1 1F0", ""), "0F1", (0, 1), ["0B0 waits for 1F1, which waits for 0F1", "before 0B0"]),
    ],
)
def test_a_refusal_says_what_waits_for_what(rows: tuple[str, ...], cell: str, place: tuple[int, int], facts: list[str]):
    draft, (one,) = Draft(cells(*rows), 3, 2), cells(cell)[0]
    why = draft.refusals(one)[place[0]][place[1]]
    assert bool(why) == bool(facts[0])
    assert all(fact in why for fact in facts)


@pytest.mark.parametrize(
    ("rows", "facts"),
    [(("0F0 0F0",), "twice"), (("0F2",), "2 microbatches"), (("3F0",), "3 stages"), (("0I0",), "not a cell")],
)
def test_a_draft_of_other_cells_is_refused(rows: tuple[str, ...], facts: str) -> None:
    with pytest.raises(RuleError, match=facts):
        Draft(cells(*rows), 3, 2)


def test_rows_that_wait_for_each_other_have_no_times() -> None:
    with pytest.raises(RuleError, match="wait for each other"):
        Draft(cells("0B0 0F0"), 1, 1).starts({"F": 1, "B": 2})


# --- Code ---

THREE_D = Setting("twentieths", mesh={"dp": 2, "pp": 2, "tp": 2}, layer="block")
GAMES = {
    "one_f_one_b": (one_f_one_b(4, 8), Size(4, 8, 4), Setting("stages")),
    "interleaved": (interleaved(4, 8, v=2), Size(8, 8, 4), Setting("stages")),
    "zb_h1": (zb_h1(4, 8), Size(4, 8, 4), Setting("parts")),
    "zb_h2, in two steps": (zb_h2(4, 8), Size(4, 8, 4), Setting("parts", steps=2)),
    "zb_v, with tags": (zb_v(4, 8), Size(8, 8, 4), Setting("parts")),
    "gpipe, of the classics": (gpipe(4, 4), Size(8, 4, 4), Setting()),
    "a chunk of two layers": (interleaved(2, 4, v=2), Size(8, 4, 2), Setting("stages")),
    "sharded replicas": (breadth_first(2, 4), Size(4, 8, 4), Setting("gathers", mesh={"dp": 2, "pp": 2})),
    "replicas": (one_f_one_b(2, 4), Size(4, 8, 4), Setting("twentieths", mesh={"dp": 2, "pp": 2})),
    "replicas of cut layers": (one_f_one_b(2, 2), Size(4, 4, 8), THREE_D),
    "cut layers without a pipeline": (gpipe(1, 4), Size(2, 4, 2), Setting("twentieths", mesh={"tp": 2}, layer="block")),
}


def without_lines(trace: Trace) -> list[list[object]]:
    return [[op._replace(line=0) for op in ops] for ops in trace.ranks]


@pytest.mark.sampled(5)
@pytest.mark.parametrize("name", GAMES)
def test_the_code_gives_the_same_trace_and_the_trace_the_same_timetable(name: str) -> None:
    table, size, setting = GAMES[name]
    names: dict[str, object] = {}
    sharded = name == "sharded replicas"
    exec(code_of(table, "mine", size, setting, sharded), names)
    written = run(names["mine"], *size, setting=setting)  # type: ignore[arg-type]
    played = run(pipeline(table, sharded=sharded), *size, setting=setting)
    assert written.error is None
    assert referee(written.trace).error is None
    assert without_lines(written.trace) == without_lines(played.trace)
    assert timetable_of(written.trace, table.stages) == table


def test_code_names_the_size_that_it_is_for() -> None:
    names: dict[str, object] = {}
    exec(code_of(one_f_one_b(2, 4), "mine", Size(2, 4, 2), Setting("stages")), names)
    error = run(names["mine"], 2, 6, 2, setting=Setting("stages")).error  # type: ignore[arg-type]
    approved("drafts", "code names the size that it is for", str(error), "2 layers, 4 batches")


@pytest.mark.parametrize(
    ("table", "size", "setting", "facts"),
    [
        (gpipe(4, 4), Size(8, 8, 4), Setting(), "4 microbatches.*8"),
        (gpipe(4, 4), Size(6, 4, 4), Setting(), "4 stages.*6 layers"),
        (zb_v(4, 8), Size(8, 8, 4), Setting(), "tags"),
        (dualpipev(2, 4), Size(4, 4, 2), Setting("parts"), "together"),
        (breadth_first(2, 4), Size(4, 4, 4), Setting("gathers", mesh={"pp": 2, "dp": 2}), "has 2, 2 and 4 layers"),
    ],
)
def test_what_cannot_be_written_is_refused(table: Timetable, size: Size, setting: Setting, facts: str) -> None:
    with pytest.raises(RuleError, match=facts):
        code_of(table, "mine", size, setting)


# --- Runs ---


def test_a_run_that_is_no_timetable_says_why() -> None:
    stages = Setting("stages")
    whole = run(pipeline(one_f_one_b), 4, 4, 2, setting=stages).trace
    assert timetable_of(whole, 2) == one_f_one_b(2, 4)
    with Refused("incomplete cells"):
        timetable_of(run(pipeline(one_f_one_b, recompute=True), 4, 4, 2, setting=stages).trace, 4)
    with pytest.raises(RuleError, match="3 equal stages"):
        timetable_of(whole, 3)

    def together(model):  # type: ignore[no-untyped-def]
        weight, _ = model.load_weights(0)
        model.forward(0, model.get_activation([0, 1]), weight)

    with Refused("several microbatches", rank=0, batches=2):
        timetable_of(run(together, 1, 2, 1).trace, 1)
    with Refused("begun too early", depth=2):
        timetable_of(run(pipeline(interleaved, v=2), 4, 4, 2, setting=stages).trace, 2)


def test_replicas_with_two_orders_have_no_timetable() -> None:
    setting = Setting("gathers", mesh={"dp": 2, "pp": 2})
    first, second = one_f_one_b(2, 2), gpipe(2, 2)

    async def mixed(model):  # type: ignore[no-untyped-def]
        await pipeline(second if model.index("dp") else first)(model)

    trace = run(mixed, 2, 4, 4, setting=setting).trace
    with Refused("replicas differ"):
        timetable_of(trace, 2)


# --- What a draft can compute so far ---


def run_of(draft: Draft, size: Size, setting: Setting) -> Trace:
    table = BegunTable.of_draft(draft, has_tags=setting != CLASSIC_SETTING)
    return run(begun(table), *size, setting=setting).trace


@pytest.mark.parametrize(("order", "stages"), [(gpipe, 4), (one_f_one_b, 4), (interleaved, 8), (zb_v, 8)])
def test_a_complete_draft_runs_as_its_timetable_does(order: Callable[..., Timetable], stages: int) -> None:
    size, setting = Size(8, 8, 4), Setting("parts")
    table = order(4, 8, v=2) if order is interleaved else order(4, 8)
    rows = tuple(tuple(cell for slot in row for cell in slot) for row in table.rows)
    draft = Draft(rows, stages, 8, any(cell.op == "W" for cell in table.cells))
    mine, whole = referee(run_of(draft, size, setting)), referee(run(pipeline(table), *size, setting=setting).trace)
    assert mine.error is None
    assert (mine.makespan, mine.peak.memory, mine.traffic) == (whole.makespan, whole.peak.memory, whole.traffic)


def test_a_draft_computes_what_has_its_inputs_and_no_more() -> None:
    draft = Draft(cells("0F0 0F1 0B0", "1F0 1B0 1B1 1F1"), 2, 2)
    assert draft.computable() == [[*cells("0F0 0F1 0B0")[0]], [*cells("1F0 1B0")[0]]]
    report = referee(run_of(draft, Size(2, 2, 2), CLASSIC_SETTING))
    assert report.makespan == pytest.approx(4 + 2 * 0.4), "two forwards, two backwards, two messages"


def test_an_empty_draft_computes_nothing() -> None:
    draft = Draft(((), ()), 2, 2)
    assert draft.computable() == [[], []]
    assert referee(run_of(draft, Size(2, 2, 2), CLASSIC_SETTING)).makespan == 0
    assert [*draft.ready()] == [(Cell(0, "F", 0), 0)]


def test_what_is_ready_is_on_the_rank_of_its_stage() -> None:
    draft = Draft(cells("0F0 0F1", "1F0"), 2, 2)
    assert {(str(cell), rank) for cell, rank in draft.ready()} == {("1F1", 1), ("1B0", 1)}
    assert ("1F0", 1) in {(str(cell), rank) for cell, rank in Draft(cells("0F0", ""), 2, 2).ready()}


def test_messages_that_change_places_need_tags() -> None:
    draft = Draft(cells("0F0 0F1", "1F1 1F0"), 2, 2)
    with Refused("messages change places"):
        BegunTable.of_draft(draft, has_tags=False)
    assert BegunTable.of_draft(draft, has_tags=True).tag is not None


@given(st.data())
@examples(20)
def test_every_draft_that_is_put_together_from_ready_moves_can_be_computed(data: st.DataObject) -> None:
    draft = Draft(((), (), ()), 3, 3, halves=data.draw(st.booleans()))
    for _ in range(data.draw(st.integers(1, 27))):
        ready = [*draft.ready()]
        if not ready:
            break
        cell, rank = data.draw(st.sampled_from(ready))
        draft = replace(draft, rows=tuple((*row, cell) if at == rank else row for at, row in enumerate(draft.rows)))
        assert sum(map(len, draft.computable())) == len(draft.rank_of)
