"""Every order that `lib.pipelines` generates has its name at every size, and what is nearly one has another."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from types import MappingProxyType

import pytest

from lib import PuzzleError, Setting, referee, run
from lib import pipelines as schedules
from lib.engine.replay.replay import replay
from lib.errors import RuleError
from lib.ledger.costs import Costs
from lib.pipelines import (
    Timetable,
    hanayo,
    interleaved,
    interleaved_zb,
    one_f_one_b,
    pipeline,
    recognize,
    recognize_table,
    v_half,
)
from tests.screens.texts import approved_refusal
from tests.support import finished
from tests.support.refusals import Refused
from tests.support.schedules.random_pipelines import exchanged, played

ORDERS: dict[str, Callable[[int, int], Timetable]] = {
    "Chimera": schedules.chimera,
    "DualPipe": schedules.dualpipe,
    "V-Half": schedules.v_half,
    "V-Min": schedules.v_min,
    "Hanayo": hanayo,
    "eager 1F1B": schedules.eager_1f1b,
    "interleaved 1F1B": interleaved,
    "interleaved zero bubble": interleaved_zb,
}

ALIKE = {("Hanayo", "ZB-V"), ("eager 1F1B", "1F1B"), ("V-Half", "V-Min")}
"""With two microbatches these are the same order."""


@pytest.mark.sampled(8)
@pytest.mark.parametrize("p", range(2, 9))
@pytest.mark.parametrize("name", ORDERS)
def test_generated_orders_have_their_names_at_every_size(name: str, p: int) -> None:
    found = {}
    for m in range(2, 17):
        try:
            found[m] = recognize_table(ORDERS[name](p, m)).text
        except RuleError:  # some take an even number of microbatches, or two for each rank
            continue
    assert found or (name == "DualPipe" or p % 2)
    assert {m: text for m, text in found.items() if text != name and (m > 2 or (name, text) not in ALIKE)} == {}


@pytest.mark.parametrize("waves", [2, 3])
def test_hanayo_has_any_number_of_waves(waves: int) -> None:
    for p, m in ((2, 2), (3, 5), (4, 8)):
        table = hanayo(p, m, waves)
        assert table.stages == 2 * p * waves
        assert recognize_table(table).text == "Hanayo"
    trace = played(hanayo(3, 4, waves), depth=2)
    found = recognize(trace)
    assert found is not None
    assert found.text == "Hanayo"


@pytest.mark.parametrize(("p", "m"), [(4, 6), (3, 8), (4, 10), (3, 2), (5, 7)])
def test_groups_are_those_of_pytorch_where_ranks_do_not_divide_microbatches(p: int, m: int) -> None:
    assert recognize_table(interleaved(p, m)).text == "interleaved 1F1B"
    assert recognize_table(interleaved_zb(p, m)).text == "interleaved zero bubble"
    assert interleaved(p, m) == interleaved(p, m, 2, m // max(1, m // p))


@pytest.mark.parametrize(("more", "words"), [(1, "one more warm-up forward"), (2, "two more warm-up forwards")])
def test_a_longer_warm_up_is_counted(more: int, words: str) -> None:
    for p, m in ((2, 8), (4, 8), (5, 9)):
        assert recognize_table(one_f_one_b(p, m, more)).text == f"like 1F1B, with {words}" or (p, more) == (2, 1)
    with approved_refusal("generated_orders", "a longer warm up is counted", RuleError):
        one_f_one_b(4, 8, -1)


# --- Two directions ---

BOTH_WAYS = Costs("both ways", ticks=MappingProxyType({**Costs().ticks, "backward_input": 10, "backward_weight": 10}))


def name_of(table: Timetable, depth: int = 1, ranks: list[int] | None = None) -> str:
    size = table.stages * depth, table.batches, table.ranks
    rows = table.rows if ranks is None else [table.rows[rank] for rank in ranks]
    outcome = finished(pipeline(replace(table, rows=tuple(rows))), *size, setting=Setting(BOTH_WAYS))
    found = recognize(outcome.trace)
    assert found is not None
    return found.text


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("p", "m"), [(2, 4), (4, 8), (6, 12)])
def test_both_directions_are_read_off_a_run(p: int, m: int) -> None:
    assert name_of(schedules.chimera(p, m), depth=1 + p % 4 // 2) == "Chimera"
    assert name_of(schedules.dualpipe(p, m)) == "DualPipe"
    assert name_of(schedules.chimera(p, m - 2)) == "Chimera"


def test_ranks_of_two_directions_may_have_any_numbers() -> None:
    assert name_of(schedules.chimera(4, 8), ranks=[2, 0, 3, 1]) == "Chimera"


@pytest.mark.sampled(1)
@pytest.mark.parametrize("order", [schedules.chimera, schedules.dualpipe])
@pytest.mark.parametrize("axes", ["dp pp", "pp dp"])
def test_replicas_of_two_directions_are_data_parallel(order: Callable[[int, int], Timetable], axes: str) -> None:
    """As fast as one replica; each gradient is summed over the two copies of its stage, and over the replicas."""
    lengths = {"dp": 3, "pp": 4}
    mesh = {axis: lengths[axis] for axis in axes.split()}
    costs = replace(BOTH_WAYS, ticks=MappingProxyType({**BOTH_WAYS.ticks, "allreduce": 0}))
    trace = run(pipeline(order), 4, 3 * 8, 12, setting=Setting(costs, mesh=mesh)).trace
    alone = run(pipeline(order), 4, 8, 4, setting=Setting(costs)).trace
    report, single = referee(trace), referee(alone)
    assert report.error is None
    assert (report.makespan, report.peak.memory) == (single.makespan, single.peak.memory)
    found, name = recognize(trace), recognize(alone)
    assert found is not None
    assert name is not None
    assert found.names == (*name.names, "data parallelism")
    assert replay(trace, small=True).passed


@pytest.mark.parametrize(("p", "m"), [(3, 4), (4, 5), (0, 2)])
def test_two_directions_need_even_numbers(p: int, m: int) -> None:
    for order, name in ((schedules.chimera, "Chimera"), (schedules.dualpipe, "DualPipe")):
        with pytest.raises(RuleError, match=f"{name} needs even .*got {p} and {m}"):
            order(p, m)
    with approved_refusal("generated_orders", "two directions need even numbers, 2", RuleError):
        schedules.dualpipe(4, 6)


def test_a_stage_lies_on_as_many_ranks_as_there_are_copies() -> None:
    rows = schedules.chimera(4, 4).rows
    with Refused("stage on several ranks", stage=1, others="rank 1", rank=2, where="one rank"):
        Timetable(rows)
    cells = Timetable.read("0F0 0B0 0F1 0B1 0F2 0B2 0F3 0B3").rows[0]
    with Refused("stage on several ranks", stage=0, others="ranks 0, 1", rank=2, where="2 ranks"):
        Timetable((cells[:4], cells[4:6], cells[6:]), copies=2)
    with Refused("microbatch on several ranks", batch=1, stage=0, first=0, rank=1):
        Timetable((cells[:3], cells[3:]), copies=2)


# --- Near misses ---


def test_a_v_that_holds_more_or_takes_longer_is_no_v_half() -> None:
    assert recognize_table(schedules.zb_v(4, 12)).text == "ZB-V"
    table = v_half(4, 8)
    first = next(at for at, (cell,) in enumerate(table.rows[0]) if cell.op == "W")
    later = moved(table, 0, first, len(table.rows[0]) - 1)
    assert most_held(slots_of(later)[0]) > 6
    assert recognize_table(later).text.startswith("like V-Half, but rank 0 ")
    last = len(table.rows[3]) - 1
    assert recognize_table(moved(table, 3, last, last - 2)).text in ("V-Half", "a pipeline in a V")


def moved(table: Timetable, rank: int, at: int, to: int) -> Timetable:
    rows = [list(row) for row in table.rows]
    rows[rank].insert(to, rows[rank].pop(at))
    return replace(table, rows=tuple(map(tuple, rows)))


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", ["Chimera", "DualPipe", "Hanayo", "eager 1F1B"])
def test_an_order_with_two_cells_exchanged_has_another_name(name: str) -> None:
    """A neighbour's exchange on one rank, wherever it can still be played, leaves no order with its name."""
    table, tried = ORDERS[name](4, 8), 0
    for rank in range(4):
        for at in range(0, len(table.rows[rank]) - 1, 3):
            try:
                other = moved(table, rank, at, at + 1)
            except PuzzleError:
                continue
            tried += 1
            assert recognize_table(other).text != name, (rank, at)
    assert tried > 8


def slots_of(table: Timetable) -> list[list[tuple[int, str, int]]]:
    return [[(cell.stage, cell.op, cell.batch) for slot in row for cell in slot] for row in table.rows]


def most_held(row: list[tuple[int, str, int]]) -> int:
    held, most = set[tuple[int, int]](), 0
    for stage, op, batch in row:
        (held.discard if op in "BW" else held.add)((stage, batch))
        most = max(most, len(held))
    return most


@pytest.mark.slow
def test_random_exchanges_leave_v_half_only_what_holds_as_little() -> None:
    given = set()
    for seed in range(30):
        table = exchanged(v_half(4, 6), random.Random(seed))
        name = recognize_table(table).text
        given.add(name)
        if name in ("V-Half", "V-Min"):
            assert max(map(most_held, slots_of(table))) <= 6
    assert len(given) > 2
