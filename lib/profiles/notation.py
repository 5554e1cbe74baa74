"""A study as JSON: all of it, with a version. Times are in ms, shares are parts of the step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from .accounting import Accounting
from .shares import Shares
from .spans import RankProfile
from .studying import Study

VERSION = 1


def as_record(found: Study | Shares) -> dict[str, Any]:
    """What `json.dumps` writes."""
    if isinstance(found, Shares):
        return {
            **_files(found.profiles, found.notes),
            "step": {"number": found.step, "ms": found.length, "collectives": found.calls},
            "ranks": [one._asdict() for one in found.ranks],
            "waited_for": found.waited_for,
        }
    step, better = found.chosen.step, found.prospect.better
    return {
        **_files(found.gathered.profiles, found.gathered.notes),
        "schedule": {"name": found.name.name, "text": found.name.text},
        "steps": [
            {"number": one.step.number, "ranks": one.step.ranks, "ms": one.step.length, "bubble": one.bubble}
            for one in found.steps
        ],
        "step": {
            "number": step.number,
            "ms": step.length,
            "outside_ms": step.outside,
            "bubble": found.chosen.bubble,
            "bubble_of_ideal": found.chosen.of_ideal,
            "message_ms": found.chosen.message,
            "clock_offsets_ms": step.clocks.offsets,
            "clock_doubt_ms": step.clocks.doubt,
        },
        "ladder": [{"cause": one.cause, "ms": one.ms, "share": one.ms / step.length} for one in found.ladder],
        "stages": [
            {**row._asdict(), "times": {op: time._asdict() for op, time in row.times.items()}} for row in found.stages
        ],
        "ranks": _ranks(found.chosen),
        "findings": [{**one._asdict(), "cell": str(one.cell)} for one in found.findings],
        "bound": asdict(found.prospect.bound) if found.prospect.bound else None,
        "better": better and {
            "name": found.better_name.text if found.better_name else "",
            "ms": better.ms, "range_ms": better.span, "replay_ms": better.replay, "shorter": better.shorter,
            "halves_assumed": better.assumed, "held": better.held, "rows": str(better.table).splitlines(),
        },
        "refusal": found.prospect.refusal,
    }  # fmt: skip


def _files(profiles: Sequence[RankProfile], notes: Sequence[str]) -> dict[str, Any]:
    return {
        "version": VERSION,
        "kind": profiles[0].kind,
        "files": [{"file": one.file, "rank": one.rank} for one in profiles],
        "notes": list(notes),
    }


def _ranks(found: Accounting) -> list[dict[str, Any]]:
    step = found.step
    return [
        {
            "rank": rank,
            **shares._asdict(),
            "cells": [
                {"cells": [str(cell) for cell in span.cells], "start": span.start, "end": span.end, "busy": span.busy}
                for span in row
            ],
        }
        for rank, shares, row in zip(step.ranks, found.ranks, step.spans)
    ]
