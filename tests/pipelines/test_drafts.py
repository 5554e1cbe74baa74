"""Timetables made by hand: a place is refused exactly where the step could not end; code and runs give them back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib import CLASSIC_SETTING, RuleError, Setting, Size, Trace, referee, run
from lib.pipelines import (
    Cell,
    Draft,
    Timetable,
    breadth_first,
    code_of,
    dualpipev,
    gpipe,
    interleaved,
    one_f_one_b,
    pipeline,
    timetable_of,
    zb_h1,
    zb_h2,
    zb_v,
)
from lib.pipelines.player import BegunTable, begun
from tests.screens.texts import approved
from tests.support.examples import examples
from tests.support.refusals import Refused


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
