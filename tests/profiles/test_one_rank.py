"""Files of one rank: two real traces of a Llama of two layers on one H100 (PyTorch 2.11, FSDP2 on one rank, AdamW), of
which only the times, numbers and ranges are kept; and parts of runs of several ranks."""

from __future__ import annotations

import json
from typing import Any

import pytest

from lib.ledger.algebra import union
from lib.profiles import Shares, Study, study
from lib.profiles.studying import as_record
from puzzles.screens.profiles import text_of
from tests.support.profiles import Trace, shared, sources, traces

LLAMAS = ("llama_eager", "llama_compiled")


def kernels(trace: Trace) -> list[Any]:
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
    ran = [event for event in kernels(trace) if event["args"]["correlation"] in launched]
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
