"""Recorded traces of tests/profiles/traces as data to change, and sources that hold such data."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Mapping
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import Any

from lib.profiles import Shares, Source, Study, study

TRACES = Path(__file__).parents[1] / "profiles" / "traces"

PIPELINES = {
    "1f1b": "1F1B",
    "1f1b_annotated": "1F1B",
    "1f1b_slow": "1F1B",
    "1f1b_jitter": "1F1B",
    "1f1b_hosted": "1F1B",
    "gpipe": "GPipe",
    "interleaved": "interleaved 1F1B",
    "interleaved_uneven": "interleaved 1F1B",
    "interleaved_steps": "interleaved 1F1B",
    "looped_bfs": "the breadth-first pipeline",
    "zb_interleaved": "interleaved zero bubble",
    "zbv": "ZB-V",
    "dualpipev": "DualPipeV",
}
"""By case, the name of its schedule."""

Trace = dict[str, Any]


@cache
def _texts(case: str) -> list[bytes]:
    return [gzip.decompress(path.read_bytes()) for path in sorted((TRACES / case).iterdir())]


def traces(case: str) -> list[Trace]:
    """The traces of a case by rank, to change."""
    return list(map(json.loads, _texts(case)))


def source(name: str, data: bytes) -> Source:
    return Source(name, lambda: BytesIO(data))


def sources(found: list[Trace]) -> list[Source]:
    return _sources([json.dumps(trace).encode() for trace in found])


def _sources(texts: list[bytes]) -> list[Source]:
    return [source(f"rank{rank}.json", text) for rank, text in enumerate(texts)]


@cache
def studied(case: str) -> Study:
    """What the traces of a pipeline say."""
    found = study(_sources(_texts(case)))
    assert isinstance(found, Study)
    return found


@cache
def shared(case: str) -> Shares:
    """What the traces of a run without cells say."""
    found = study(_sources(_texts(case)))
    assert isinstance(found, Shares)
    return found


def restudied(found: list[Trace], **options: Any) -> Study:
    again = study(sources(found), **options)
    assert isinstance(again, Study)
    return again


def events(trace: Trace, wanted: Callable[[Mapping[str, Any]], bool]) -> list[dict[str, Any]]:
    """The events of a trace with a duration that are wanted."""
    return [event for event in trace["traceEvents"] if event.get("ph") == "X" and wanted(event)]


def moved(found: list[Trace], by: tuple[float, ...]) -> list[Trace]:
    """Traces of several hosts whose clocks are off by so many ms."""
    for rank, (trace, ms) in enumerate(zip(found, by, strict=True)):
        trace["host_name"] = f"host{rank}"
        for event in trace["traceEvents"]:
            if "ts" in event:
                event["ts"] += 1e3 * ms
    return found
