"""Studying: recorded runs with known sleeps, accounts by hand, files of one rank, and work in proportion to a trace."""

import gzip
import json
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from lib import PuzzleError
from lib.ledger.algebra import union
from lib.ledger.referee import referee
from lib.pipelines import Timetable, interleaved, one_f_one_b, zb_h1, zb_v
from lib.pipelines.solver import Problem
from lib.pipelines.solver.solving import solution
from lib.pipelines.torch_csv import read_csv, write_table
from lib.profiles import Shares, Study, study
from lib.profiles.gathered import Order, makespan, replayed
from lib.profiles.reading import Span, json_of
from lib.profiles.studying import accounted, as_record
from puzzles.screens.profiles import text_of
from tests.support.operations import lines_run
from tests.support.profiles import PIPELINES, Trace, shared, source, sources, studied, traces

# === Where the time of a step went ===


LENGTH = 30.0
"""Rank 0 computes from 0 to 10 and sends its result; rank 1 computes from 4 to 9 and, with that result, until the end
of the step."""


def step(start: float) -> Any:
    """A step in which rank 1 starts its second slot at `start`."""
    times = [[(0.0, 10.0)], [(4.0, 9.0), (start, LENGTH)]]
    spans = tuple(tuple(Span((), a, a, b, b - a) for a, b in row) for row in times)
    return SimpleNamespace(order=SimpleNamespace(arrivals=[[[]], [[], [((0, 0), None)]]]), spans=spans, length=LENGTH)


@pytest.mark.parametrize(
    ("start", "waiting", "message"),
    [(14.0, 1.0, 4.0), (10.0, 1.0, 0.0), (9.5, 0.5, 0.0)],
    ids=["a message travels", "it starts at once", "clocks differ by a little"],
)
def test_a_rank_waits_until_its_input_is_made_and_then_for_the_message(
    start: float, waiting: float, message: float
) -> None:
    found = accounted(step(start))
    _, one = found.ranks
    assert (one.waiting, one.message, one.host) == (waiting, message, 4.0), "the host was late before the first slot"
    assert found.waited_for == {0: waiting}
    assert found.message == message


def test_shares_add_up_to_the_ranks_times_the_step() -> None:
    found = accounted(step(14.0))
    for one in found.ranks:
        assert one.computing + one.warm_up + one.waiting + one.message + one.host + one.cool_down == LENGTH
    assert found.ranks[0].cool_down == 20.0
    assert found.computing == (10 + 21) / 2
    assert found.bubble == 1 - 15.5 / LENGTH
    assert found.of_ideal == LENGTH / 15.5 - 1


# === Recorded runs with known sleeps and planted faults ===


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


# === Files of one rank ===


LLAMAS = ("llama_eager", "llama_compiled")


def kernels_of(trace: Trace) -> list[Any]:
    return [event for event in trace["traceEvents"] if event["cat"] in ("kernel", "gpu_memcpy", "gpu_memset")]


@pytest.mark.parametrize("case", LLAMAS)
def test_a_step_is_what_was_launched_in_it(case: str) -> None:
    """Counted here from the file: the GPU is behind the host by most of a step, and the file begins with the end of an
    earlier one."""
    (trace,), found = traces(case), shared(case)
    (mark,) = [event for event in trace["traceEvents"] if event["name"] == f"ProfilerStep#{found.step}"]
    launched = {
        event["args"]["correlation"]
        for event in trace["traceEvents"]
        if event["cat"] in ("cuda_runtime", "cuda_driver") and mark["ts"] <= event["ts"] < mark["ts"] + mark["dur"]
    }
    ran = [event for event in kernels_of(trace) if event["args"]["correlation"] in launched]
    (rank,) = found.ranks
    busy = sum(end - start for start, end in union([(e["ts"] / 1e3, (e["ts"] + e["dur"]) / 1e3) for e in ran]))
    length = max(e["ts"] + e["dur"] for e in ran) - min(e["ts"] for e in ran)
    assert rank.computing == pytest.approx(busy)
    assert rank.length == pytest.approx(length / 1e3)
    assert rank.host == pytest.approx(rank.length - rank.computing)
    assert (rank.waiting, rank.communication, found.calls) == ({}, 0.0, 0)


@pytest.mark.parametrize(("case", "optimizer"), [("llama_eager", 16.9), ("llama_compiled", 16.9)])
def test_phases_are_those_of_pytorch(case: str, optimizer: float) -> None:
    """71 fused kernels of AdamW take 11.4 ms per 10^9 of the 1.49e9 parameters; backward takes about twice as long as
    forward."""
    (rank,) = shared(case).ranks
    assert sum(rank.phases.values()) == pytest.approx(rank.computing)
    assert rank.phases["optimizer"] == pytest.approx(optimizer, abs=0.1)
    assert 1.6 < rank.phases["backward"] / rank.phases["forward"] < 2.1


def test_compiled_code_has_fewer_kernels_and_less_time_in_forward_and_backward() -> None:
    eager, compiled = (shared(case).ranks[0] for case in LLAMAS)
    assert compiled.length < eager.length
    for phase in ("forward", "backward"):
        assert compiled.phases[phase] < 0.96 * eager.phases[phase]


def test_the_report_and_the_record_have_all_figures() -> None:
    found = shared("llama_eager")
    said = text_of(found)
    (rank,) = found.ranks
    for phase, ms in rank.phases.items():
        assert f"{phase} {ms:.1f} ms ({ms / rank.computing:.0%})" in said
    record = json.loads(json.dumps(as_record(found)))
    assert record["ranks"][0]["phases"] == rank.phases


def test_one_file_of_several_ranks_needs_no_option() -> None:
    found = study(sources(traces("fsdp2_slow")[:1]))
    assert isinstance(found, Shares)
    (rank,) = found.ranks
    assert rank.computing + rank.communication + rank.host == pytest.approx(rank.length)
    assert found.collectives.keys() == {"allgather", "allreduce"}
    assert sum(one.exposed for one in found.collectives.values()) >= rank.communication - 1e-6
    alone = study(sources(traces("1f1b")[:1]))
    assert isinstance(alone, Shares)
    assert alone.ranks[0].idle > 0


def test_collectives_that_computing_hides_are_not_exposed() -> None:
    """On a GPU an all-reduce from 2 to 8 ms beside kernels from 0 to 5 and from 7 to 9 ms is exposed for 2 ms."""
    launches = [("cuda_runtime", "cudaLaunchKernel", 1, n, 0.1 * n, 0.01) for n in range(3)]
    ran = [("add", 0, 0.0, 5.0), ("add", 1, 7.0, 2.0)]
    rows: list[tuple[str, str, int, int, float, float]] = [*launches]
    rows += [("kernel", name, 7, number, start, length) for name, number, start, length in ran]
    rows.append(("kernel", "ncclDevKernel_AllReduce_Sum", 9, 2, 2.0, 6.0))
    trace = {
        "distributedInfo": {"rank": 0, "world_size": 1},
        "traceEvents": [
            {"ph": "X", "cat": cat, "name": name, "pid": 0, "tid": tid, "ts": 1e3 * start, "dur": 1e3 * length,
             "args": {"correlation": number}}
            for cat, name, tid, number, start, length in rows
        ],
    }  # fmt: skip
    found = study(sources([trace]))
    assert isinstance(found, Shares)
    assert not isinstance(found, Study)
    one = found.collectives["allreduce"]
    assert (one.calls, one.ms, one.exposed) == (1, pytest.approx(6), pytest.approx(2))
    (rank,) = found.ranks
    assert (rank.computing, rank.communication, rank.host) == (pytest.approx(7), pytest.approx(2), pytest.approx(0))


# === Work in proportion to a trace ===


Event = dict[str, Any]


def event(category: str, name: str, start: float, length: float, **args: Any) -> Event:
    return {"ph": "X", "cat": category, "name": name, "ts": start, "dur": length, "pid": 1, "tid": 1, "args": args}


def of_ranks(count: int, events: Callable[[int], list[Event]]) -> list[Trace]:
    return [{"distributedInfo": {"rank": r, "world_size": count}, "traceEvents": events(r)} for r in range(count)]


def cells(start: float, names: str = "F0 F1 B0 B1") -> list[Event]:
    """Cells of a pipeline of one stage, in 400 µs."""
    found = []
    for k, name in enumerate(names.split()):
        at = start + 100 * k
        found += [event("user_annotation", f"PP:0{name}", at, 90), event("cpu_op", "aten::mm", at + 1, 50)]
    return found


def steps(n: int, first: str = "F0 F1 B0 B1", others: str = "") -> list[Trace]:
    """Steps of which only the first three have all cells."""

    def events(rank: int) -> list[Event]:
        found = []
        for step in range(n):
            found += [event("user_annotation", f"ProfilerStep#{step}", 1000 * step, 999)]
            found += [event("cpu_op", "aten::mm", 1000 * step + 10 * k, 5) for k in range(3)]
            found += cells(1000 * step + 500, first if step < 3 else others) if step < 3 or others else []
        return found

    return of_ranks(1, events)


def kernels(n: int) -> list[Trace]:
    """Steps on a GPU of which only the first three have cells."""

    def events(rank: int) -> list[Event]:
        found = []
        for step in range(n):
            start = 1000 * step
            found += [event("user_annotation", f"ProfilerStep#{step}", start, 999)]
            for k in range(4):
                number, at = 4 * step + k, start + 100 * k
                if step < 3:
                    found.append(event("user_annotation", f"PP:0{'F0 F1 B0 B1'.split()[k]}", at, 90))
                found.append(event("cuda_runtime", "cudaLaunchKernel", at + 1, 2, correlation=number))
                found.append(event("kernel", "gemm", at + 20, 50, correlation=number))
        return found

    return of_ranks(1, events)


def overlapping(n: int) -> list[Trace]:
    """Steps of which each goes on to the end of the trace."""
    found = steps(n)
    for one in found[0]["traceEvents"]:
        if one["name"].startswith("ProfilerStep"):
            one["dur"] = 1000 * n - one["ts"]
    return found


def at_once(n: int) -> list[Trace]:
    """Steps that all begin and end with the trace."""
    found = steps(n)
    for one in found[0]["traceEvents"]:
        if one["name"].startswith("ProfilerStep"):
            one["ts"], one["dur"] = 0, 1000 * n
    return found


def one_number(n: int) -> list[Trace]:
    """Kernels on a GPU that all have the number of every launch."""
    found = kernels(n)
    for one in found[0]["traceEvents"]:
        if "correlation" in one["args"]:
            one["args"]["correlation"] = 1 if one["ts"] > 3000 else one["args"]["correlation"] + 2
    return found


def collectives(n: int) -> list[Trace]:
    """Calls between which each rank computes; the second rank always comes late."""

    def events(rank: int) -> list[Event]:
        found = []
        for k in range(n):
            found += [event("cpu_op", "aten::mm", 100 * k, 20 + 30 * rank)]
            found += [event("user_annotation", "nccl:all_reduce", 100 * k + 21 + 30 * rank, 70 - 30 * rank)]
        return found

    return of_ranks(2, events)


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "made",
    [
        pytest.param(steps, id="steps without cells"),
        pytest.param(lambda n: steps(n, others="F0 F1 B0"), id="incomplete steps"),
        pytest.param(lambda n: steps(n, others="F0 F1 B0 B1"), id="complete steps"),
        pytest.param(kernels, id="steps without cells on a GPU"),
        pytest.param(overlapping, id="overlapping steps"),
        pytest.param(at_once, id="steps at once"),
        pytest.param(one_number, id="kernels of one number"),
        pytest.param(collectives, id="collectives"),
    ],
)
def test_twice_as_much_takes_twice_the_work(made: Callable[[int], list[Trace]]) -> None:

    def studied(n: int) -> None:
        with suppress(PuzzleError):
            study(sources(made(n)))

    few, many = (lines_run(partial(studied, n)) for n in (60, 120))
    assert many < 2.3 * few, (few, many)


def test_a_step_that_is_left_out_is_named_only_if_there_are_few() -> None:
    found = study(sources(steps(200, others="F0 F1 B0")))
    assert len(found.gathered.notes) < 30
    assert any("177 more" in note for note in found.gathered.notes)


@pytest.mark.parametrize("on_gpu", [False, True])
def test_cells_within_each_other_are_refused(on_gpu: bool) -> None:
    work = [event("cpu_op", "aten::mm", 2000 + k, 0.5) for k in range(50)]
    if on_gpu:
        work += [event("cuda_runtime", "cudaLaunchKernel", 2000 + k, 0.5, correlation=k) for k in range(50)]
        work += [event("kernel", "gemm", 2000 + k, 0.5, correlation=k) for k in range(50)]
    nested = [event("user_annotation", f"PP:0F{k}", k, 5000 - 2 * k) for k in range(50)]
    with pytest.raises(PuzzleError, match=r"rank0\.json.*more than 20 deep"):
        study(sources(of_ranks(1, lambda _: work + nested)))


@pytest.mark.sampled(1)
@pytest.mark.parametrize("bomb", [b" " * 50_000_000, b"[" * 50_000_000], ids=["blanks", "lists"])
def test_a_packed_file_is_refused_before_it_takes_much_memory(bomb: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lib.profiles.reading.MOST_VALUES", 1_000_000)
    packed = source("rank0.json.gz", gzip.compress(bomb, 1))
    tracemalloc.start()
    try:
        with pytest.raises(PuzzleError, match="more than"):
            json_of(packed, 10_000_000)
        assert tracemalloc.get_traced_memory()[1] < 30_000_000
    finally:
        tracemalloc.stop()


def test_a_file_with_too_many_values_is_not_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lib.profiles.reading.MOST_VALUES", 1000)
    text = json.dumps({"traceEvents": [[]] * 1000}).encode()
    with pytest.raises(PuzzleError, match=r"more than 1,000 values"):
        json_of(source("rank0.json", text))
