"""Orders that are generated: their names at every size, near misses, and the times of V orders."""

import random
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import replace
from types import MappingProxyType

import pytest

from lib import PuzzleError, Setting, inflight, referee, run
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
    v_min,
    zb_h1,
)
from tests.oracles.published_search import Case, makespans, most_held, spans
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
    assert most_in_a_row(slots_of(later)[0]) > 6
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


def most_in_a_row(row: list[tuple[int, str, int]]) -> int:
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
            assert max(map(most_in_a_row, slots_of(table))) <= 6
    assert len(given) > 2


# === V-Min, V-Half, and PyTorch's interleaved zero bubble ===


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
