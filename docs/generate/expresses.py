"""Writes docs/expresses.md: which schedules of recent years can be played, from the schedules in short_schedules.py."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from textwrap import dedent

from docs.generate.short_schedules import SHORT, Short
from lib import Report, referee, run

FILE = Path(__file__).parents[1] / "expresses.md"

HEAD = """\
# What the ledger expresses

Can a schedule that you have read about be played here? Each row is one, written in a few lines of async Python in
[short_schedules.py](generate/short_schedules.py), with the smallest model that shows its idea. This page is generated
from that file, and the tests run it.

## Can be played

The figures are those of the referee: steps, the peak in elements on one rank, and the elements that the busiest rank
sends. They are of different models, so compare no rows with each other.

| schedule | by | layers, batches, ranks | lines | steps | peak | sent |
|---|---|---|---|---|---|---|
"""

REFUSED = """
## Is refused

Here a rule forbids what the schedule does, or the game has no rule for it. The last column is what the game says.

| schedule | by | refusal |
|---|---|---|
"""

TAIL = """
What each setting means is in [Schedules of your own](extended.md). If your schedule is missing here, write its shortest
version and run it with `puzzles run`: the game says what it does not know.
"""


@cache
def outcome(name: str) -> Report | str:
    """The report of a schedule, or the text of its refusal."""
    (entry,) = (entry for entry in SHORT if entry.name == name)
    played = run(entry.schedule, *entry.size, setting=entry.setting)
    if played.error is not None:
        return str(played.error)
    report = referee(played.trace)
    return report if report.error is None else str(report.error)


def lines_of(entry: Short) -> int:
    """Lines of code of a schedule without its docstring; 1 for an order that the library knows."""
    source = dedent(inspect.getsource(entry.schedule))
    if entry.schedule.__module__ != SHORT[0].schedule.__module__:
        return 1
    (function,) = ast.parse(source).body
    assert isinstance(function, ast.AsyncFunctionDef)
    body = function.body[isinstance(function.body[0], ast.Expr) and bool(ast.get_docstring(function)) :]
    return len([line for line in source.splitlines()[body[0].lineno - 1 :] if line.strip()]) + 1


def page() -> str:
    return HEAD + "\n".join(_played()) + "\n" + REFUSED + "\n".join(_refused()) + "\n" + TAIL


def _played() -> Iterator[str]:
    for entry in SHORT:
        report = outcome(entry.name)
        if isinstance(report, Report):
            size, figures = ", ".join(map(str, entry.size)), f"{report.peak.memory:,} | {report.traffic:,}"
            steps = f"{report.timesteps:g}"
            yield f"| {entry.name} | {entry.source} | {size} | {lines_of(entry)} | {steps} | {figures} |"


def _refused() -> Iterator[str]:
    for entry in SHORT:
        text = outcome(entry.name)
        if isinstance(text, str):
            text = re.sub(r"^rank \d+, t=\S+, ", "", text).replace("|", "\\|").replace("\n", " ")
            yield f"| {entry.name} | {entry.source} | {text} |"


if __name__ == "__main__":
    FILE.write_text(page(), encoding="utf-8")
