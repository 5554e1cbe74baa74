"""Reading and studying takes work in proportion to a trace, whatever its steps, calls and cells are like."""

from __future__ import annotations

import gzip
import json
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import pytest

from lib import PuzzleError
from lib.profiles import study
from lib.profiles.reading import json_of
from tests.support.operations import lines_run
from tests.support.profiles import Trace, source, sources

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
