"""Wrong solutions: references with one thing done as a player may get it wrong, and what becomes of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from lib import Report, referee, run
from puzzles.catalog.schedule import PUZZLES
from puzzles.tracks.references import reference_file


class Mistake(NamedTuple):
    """Texts of a reference and what a player writes in their place. It is either refused in words that say all of
    `says`, or correct, but misses the targets at these figures."""

    slug: str
    what: str
    changes: tuple[tuple[str, str], ...]
    says: tuple[str, ...] = ()
    figures: tuple[float, int] | None = None

    def __str__(self) -> str:
        return f"{self.slug}: {self.what}"


def altered(slug: str, changes: tuple[tuple[str, str], ...]) -> Callable[..., Any]:
    """The reference of a puzzle with texts replaced, each of which must be there."""
    path = reference_file(slug)
    assert path is not None
    source = path.read_text(encoding="utf-8")
    for before, after in changes:
        assert before in source, f"{slug}.py has no {before!r}"
        source = source.replace(before, after)
    names: dict[str, Any] = {}
    exec(compile(source, f"{slug}.py", "exec"), names)
    definition: Callable[..., Any] = names[slug]
    return definition


def outcome_of(mistake: Mistake) -> tuple[str, Report | None]:
    """The text of the refusal, empty if there is none; and the report on a run that went through."""
    goal = PUZZLES[mistake.slug].goal
    outcome = run(altered(mistake.slug, mistake.changes), *goal.size, setting=goal.setting)
    if outcome.error is not None:
        return str(outcome.error), None
    report = referee(outcome.trace, goal)
    return str(report.error or ""), report
