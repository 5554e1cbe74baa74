"""What a trace says does not depend on clocks, on GPUs, on who writes it, or on which names it has."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from lib.pipelines import Timetable, interleaved, zb_h1
from lib.profiles import Shares, Source, Study, read_rules, study
from lib.profiles.gathered import Order, replayed
from tests.support.profiles import Trace, events, moved, restudied, source, sources, studied, traces

SKEWS = (0.0, 30.0, -12.0, 200.0)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("case", ["1f1b_slow", "interleaved", "zbv"])
def test_clocks_that_are_off_are_moved_back(case: str) -> None:
    found, before = restudied(moved(traces(case), SKEWS)), studied(case)
    clocks = found.chosen.step.clocks
    for offset, skew in zip(clocks.offsets, SKEWS, strict=True):
        assert offset == pytest.approx(-skew, abs=1.0)
    assert 0 < clocks.doubt < 1.0
    assert found.name == before.name
    assert [row.held for row in found.stages] == [row.held for row in before.stages]
    assert found.chosen.step.length == pytest.approx(before.chosen.step.length, abs=2.0)
    assert found.chosen.bubble == pytest.approx(before.chosen.bubble, abs=0.01)
    for one, other in zip(found.ladder, before.ladder, strict=True):
        assert one.ms == pytest.approx(other.ms, abs=4 * len(SKEWS) * clocks.doubt)
    kinds = [(one.kind, one.rank) for one in found.findings if one.kind != "host"]
    assert kinds == [(one.kind, one.rank) for one in before.findings if one.kind != "host"]


def test_collectives_end_together_on_hosts_with_other_clocks() -> None:
    found = study(sources(moved(traces("ddp"), SKEWS)))
    assert isinstance(found, Shares)
    assert found.waited_for.keys() == {2}
    assert any("Clocks are moved" in note for note in found.notes)


def on_gpu(trace: Trace, late: float) -> Trace:
    """A trace as of a GPU: each operation within a cell is a launch at the start of the cell's annotation, that of a
    backward on another thread, and a kernel where the operation ran; the host is ahead by `late` ms."""
    made: list[dict[str, Any]] = []
    number = 0
    cells = events(trace, lambda event: event["name"].startswith("PP:"))
    ops = events(trace, lambda event: event["cat"] == "cpu_op" and not event["name"].startswith("c10d::"))
    for cell in cells:
        inside = [op for op in ops if cell["ts"] <= op["ts"] < cell["ts"] + cell["dur"]]
        for place, op in enumerate(inside):
            number += 1
            tid = 99 if "B" in cell["name"] or "I" in cell["name"] or "W" in cell["name"] else cell["tid"]
            launch = {"ts": cell["ts"] + 0.01 * place, "dur": 0.01, "pid": cell["pid"], "tid": tid}
            made.append(
                {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "args": {"correlation": number}} | launch
            )
            kernel = {"ts": op["ts"] + 1e3 * late, "dur": op["dur"], "pid": 0, "tid": 7}
            made.append({"ph": "X", "cat": "kernel", "name": "gemm", "args": {"correlation": number}} | kernel)
    spin = {"ph": "X", "cat": "kernel", "name": "ncclDevKernel_SendRecv", "pid": 0, "tid": 9}
    marks = events(trace, lambda event: event["cat"] == "user_annotation")
    first = min(event["ts"] for event in marks)
    return trace | {"traceEvents": [*marks, *made, spin | {"ts": first, "dur": 5e5, "args": {"correlation": 1}}]}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("case", ["interleaved", "zbv"])
def test_cells_of_a_gpu_are_those_of_its_kernels(case: str) -> None:
    found = restudied([on_gpu(trace, late=40.0) for trace in traces(case)])
    before = studied(case)
    assert found.chosen.step.table == before.chosen.step.table  # an empty 0I0 keeps its place in the order
    assert found.name == before.name
    for mine, theirs in zip(found.chosen.step.spans, before.chosen.step.spans, strict=True):
        for span, other in zip(mine, theirs, strict=True):
            if other.length:
                assert span.start == pytest.approx(other.start, abs=1e-3)
                assert span.end == pytest.approx(other.end, abs=1e-3)
                assert 0 < span.busy < span.length
    assert found.gathered.profiles[0].kind == "PyTorch GPU trace"
    assert any(shares.gaps > 0 for shares in found.chosen.ranks)


def test_a_gpu_without_cells_has_the_kernels_of_its_collectives() -> None:
    def rank(number: int, busy: float) -> Trace:
        kernel = {"ph": "X", "cat": "kernel", "pid": 0, "tid": 7}
        args = {"Collective name": "allreduce", "Process Group Ranks": "[0, 1]"}
        return {
            "distributedInfo": {"rank": number, "world_size": 2},
            "host_name": "node",
            "traceEvents": [
                kernel | {"cat": "user_annotation", "name": "ProfilerStep#1", "ts": 0, "dur": 1e5},
                kernel | {"name": "gemm", "ts": 0, "dur": 1e3 * busy},
                kernel | {"name": "ncclAllReduce", "tid": 9, "ts": 1e3 * busy, "dur": 1e3 * (90 - busy), "args": args},
            ],
        }  # fmt: skip

    found = study(sources([rank(0, 30), rank(1, 80)]))
    assert isinstance(found, Shares)
    assert found.waited_for == {1: pytest.approx(50)}
    assert [one.communication for one in found.ranks] == [pytest.approx(10)] * 2


def test_times_since_1970_and_without_a_base() -> None:
    found = traces("1f1b_annotated")
    base = {trace.pop("baseTimeNanoseconds") for trace in found}.pop()
    for trace in found:
        for event in events(trace, lambda event: True):
            event["ts"] += base / 1e3
    assert restudied(found).chosen.step.length == pytest.approx(studied("1f1b_annotated").chosen.step.length, abs=0.01)


def test_other_names_by_a_file() -> None:
    found = traces("1f1b_annotated")
    for trace in found:
        for event in events(trace, lambda event: event["name"].startswith("PP:")):
            stage, op, batch = event["name"][3], event["name"][4], event["name"][5:]
            event["name"] = f"stage{stage} {'fwd' if op == 'F' else 'bwd'} mb{batch}"
    rules = r"""
        [[cell]]
        match = 'stage(?P<stage>\d+) fwd mb(?P<batch>\d+)'
        op = "F"
        [[cell]]
        match = 'stage\d+ bwd .*'
        op = "B"
    """
    again = restudied(found, rules=read_rules(rules, "names.toml"))
    assert again.chosen.step.table == studied("1f1b_annotated").chosen.step.table
    assert again.chosen.step.spans == studied("1f1b_annotated").chosen.step.spans


def test_chunks_by_a_file_and_places_of_ranks() -> None:
    found = traces("interleaved")
    for trace in found:
        for event in events(trace, lambda event: event["name"].startswith("PP:") and event["name"][4] in "FB"):
            stage, op, batch = event["name"][3], event["name"][4], event["name"][5:]
            event["name"] = f"chunk {int(stage) // 4} {op} {batch}"
    rules = read_rules("[[cell]]\nmatch = 'chunk (?P<chunk>\\d) (?P<op>[FB]) (?P<batch>\\d+)'", "names.toml")
    assert restudied(found, rules=rules).chosen.step.table == studied("interleaved").chosen.step.table


def test_replicas_are_read_alone_and_the_slowest_is_shown() -> None:
    found = traces("1f1b_annotated") + traces("1f1b_slow")
    for rank, trace in enumerate(found):
        info = trace["distributedInfo"]
        info["rank"], info["world_size"] = rank, 8
    again = restudied(found)
    assert [one.ranks for one in again.gathered.steps] == [(0, 1, 2, 3), (4, 5, 6, 7)]
    assert again.chosen.step.ranks == (4, 5, 6, 7)
    assert again.findings[0].rank == 6
    for rank, trace in enumerate(found):  # one pipeline has the even ranks, if the groups say so
        group = {"pg_desc": "mesh_pp", "ranks": [0, 2, 4, 6] if rank % 2 == 0 else [1, 3, 5, 7]}
        trace["distributedInfo"]["pg_config"] = [group]
    order = [0, 4, 1, 5, 2, 6, 3, 7]
    for rank, place in enumerate(order):
        found[place]["distributedInfo"] |= {"rank": rank}
        pair = [0, 2, 4, 6] if rank % 2 == 0 else [1, 3, 5, 7]
        found[place]["distributedInfo"]["pg_config"] = [{"pg_desc": "mesh_pp", "ranks": pair}]
    again = restudied([found[place] for place in order])
    assert [one.ranks for one in again.gathered.steps] == [(0, 2, 4, 6), (1, 3, 5, 7)]
    assert again.chosen.step.ranks == (1, 3, 5, 7)


def test_some_ranks_alone_have_shares_without_causes() -> None:
    found = study(sources(traces("1f1b_annotated")[:2]), only={0, 1})
    assert isinstance(found, Shares)
    for one, other in zip(found.ranks, studied("1f1b_annotated").chosen.ranks):
        assert one.computing == pytest.approx(other.computing)
        assert one.computing + one.idle == pytest.approx(one.length)
    assert "not all ranks" in found.notes[0]


def dump(table: Timetable, chunks: int, named: bool, skew: Mapping[int, float]) -> Iterator[Source]:
    """An event dump of a replay."""
    lengths = {"F": 10.0, "B": 20.0, "I": 11.0, "W": 9.0}
    times = replayed(Order(table), lambda rank, at: lengths[table.rows[rank][at][0].op], message=0.5)
    config = {"pp_size": table.ranks, "vp_size": chunks if chunks > 1 else None, "num_mbs": table.batches}
    yield source("config.json", json.dumps(config).encode())
    for rank, row in enumerate(table.rows):
        step: dict[str, Any] = {"total": 1000.0, "memory": 5.0}
        for ((stage, op, batch),), (start, end) in zip(row, times[rank]):
            word = {"F": "fwd", "B": "bwd", "I": "bwd", "W": "wgrad"}[op]
            entry = {"start": start + skew.get(rank, 0), "end": end + skew.get(rank, 0)}
            entry |= {"minibatch": batch, "chunk": stage // table.ranks} if named else {}
            for side, value in entry.items():
                step.setdefault(f"{word}_{side}", []).append(value)
        yield source(f"pp_rank_{rank}.json", json.dumps({"1": step, "2": step}).encode())


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("skew", [{}, {1: 300.0, 3: -80.0}])
def test_dumps_of_a_replay_are_read_back(named: bool, skew: Mapping[int, float]) -> None:
    table = interleaved(4, 8, 2)
    found = study([*dump(table, 2, named, skew)])
    assert isinstance(found, Study)
    assert found.chosen.step.table == table
    assert found.name.text == "interleaved 1F1B"
    assert len(found.steps) == 2
    for row in found.stages:
        assert (row.times["F"].median, row.times["B"].median) == (pytest.approx(10), pytest.approx(20))
    assert all(not one.clocks.are_kept for one in found.gathered.steps) == bool(skew)
    for offset, rank in zip(found.chosen.step.clocks.offsets, range(4)):
        assert offset == pytest.approx(skew.get(0, 0) - skew.get(rank, 0), abs=1.0)


def test_dumps_with_halves() -> None:
    found = study([*dump(zb_h1(4, 8), 1, True, {})])
    assert isinstance(found, Study)
    assert found.name.text == "ZB-H1"
    assert found.stages[2].times["W"].median == pytest.approx(9)
    assert found.prospect.bound is not None
    assert found.prospect.bound.has_halves
