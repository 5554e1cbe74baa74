"""The classics never change: every trace and report of references and records is byte for byte that of a golden file.

After a deliberate change, `python -m tests.lib.judging.test_golden` writes the file again. Lines of the solution
files are left out, because they say nothing about the game.
"""

from __future__ import annotations

import json
import re
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from lib import Goal, Record, Report, Trace, referee, trace_to_json
from tests.support import CLASSICS, finished
from tests.support.solved import RECORDS, reference_of, solved_by

GOLDEN = Path(__file__).with_name("golden_classics.json")

MEASURED = ("error", "critical_path", "copies", "waits", "ranks")
"""The long parts of a report, kept as one hash."""


def name_of(record: Record) -> str:
    file, variant = record.file_and_variant
    return ": ".join(filter(None, [Path(file).stem, variant]))


OF = {classic.slug: classic for classic in CLASSICS}
REFERENCES = {classic.slug: (classic, reference_of(classic.slug)) for classic in CLASSICS}
OF_RECORDS = {
    name_of(record): (OF[puzzle.slug], function)
    for record in RECORDS
    for puzzle, function in reversed([*solved_by(record)])
    if puzzle.slug in OF and puzzle.goal.meets_time(record.timesteps) and puzzle.goal.meets_memory(record.peak_memory)
}
SCHEDULES = REFERENCES | dict(sorted(OF_RECORDS.items()))
"""By name: the first classic puzzle that a reference or record is for, and whose targets it meets; and its function."""


def without_lines(trace: Trace) -> Trace:
    return Trace(trace.size, tuple(tuple(op._replace(line=0) for op in ops) for ops in trace.ranks))


def digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()[:16]


def noted(report: Report) -> list[Any]:
    """The notes without their words: what each is about, whether it costs a star, and its numbers."""
    return [(note.about, note.costs_a_star, re.findall(r"\d[\d,.]*", note.text)) for note in report.notes]


def facts(name: str) -> dict[str, Any]:
    """What a schedule's run must give."""
    classic, schedule = SCHEDULES[name]
    outcome = finished(schedule, *classic.size)
    trace = without_lines(outcome.trace)
    report = referee(trace, Goal(classic.slug, classic.size, classic.time, classic.memory))
    return {
        "timesteps": report.timesteps,
        "makespan": report.makespan,
        "peak": list(report.peak),
        "bubble": report.bubble,
        "stars": report.stars,
        "logs": digest(repr([model.log for model in outcome.models])),
        "json": digest(trace_to_json(trace)),
        "report": digest(repr([(field, getattr(report, field)) for field in MEASURED] + noted(report))),
    }


@pytest.mark.sampled(5)
@pytest.mark.parametrize("name", SCHEDULES)
def test_a_classic_run_is_byte_for_byte_the_golden_one(name: str) -> None:
    assert facts(name) == json.loads(GOLDEN.read_text(encoding="utf-8"))[name]


def test_the_golden_file_holds_these_schedules_only() -> None:
    assert list(json.loads(GOLDEN.read_text(encoding="utf-8"))) == list(SCHEDULES)
    assert len(SCHEDULES) > 2 * len(CLASSICS)


if __name__ == "__main__":
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(facts(name))}" for name in SCHEDULES)
    GOLDEN.write_text(f"{{\n{lines}\n}}\n", encoding="utf-8")
