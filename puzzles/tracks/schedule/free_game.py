"""A schedule at any size and in any setting, without a goal: how it is run, and the referee's report on it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from lib import Goal, Report, Setting, Size, Trace, referee
from lib.ledger.named_costs import pricing
from lib.ledger.setting import setting_to_json
from lib.pipelines import recognize
from puzzles.catalog.puzzle import with_papers
from puzzles.catalog.schedule import PUZZLES, setting_text, size_text
from puzzles.failure import Failure, of_refusal, sanitized
from puzzles.tracks.outcomes import RunOutcome, RunRequest, Score

from .feedback import above_possible
from .judge import senseless, trace_in

MAX_RESULT = 16 << 20
"""Bytes that a run may send back: a trace of some 100,000 operations."""

NO_LIMIT = 10**15
"""More time and memory than any run takes."""

UNPRICED = re.compile(r"\b(\w+) has no price in the costs '([^']*)'")


@dataclass(frozen=True)
class FreeGame:
    """A function, by its name, to run at a size in a setting; `note` is on the puzzle of the same name, if any."""

    slug: str
    size: Size
    setting: Setting
    note: str = ""

    goal = None
    """A free game has no targets."""
    track = "schedule"

    @classmethod
    def of(cls, name: str, size: Size, setting: Setting) -> FreeGame:
        """The game, with a note if there is a puzzle of that name: its targets are for another size or setting."""
        puzzle = PUZZLES.get(name)
        if puzzle is None:
            return cls(name, size, setting)
        own = f"{size_text(puzzle.goal.size)}, {setting_text(puzzle.goal.setting)}"
        return cls(name, size, setting, f"The targets of {name} are for {own}; they do not apply here.")

    @property
    def title(self) -> str:
        return f"{self.slug}: {self.described}"

    @property
    def described(self) -> str:
        return f"{size_text(self.size)}, {setting_text(self.setting)}"

    def request(self) -> RunRequest:
        data = {"size": list(self.size), "setting": setting_to_json(self.setting), "longest": MAX_RESULT}
        return RunRequest(size_text(self.size), data, lambda row: Score({}))

    def judged(self, outcome: RunOutcome) -> tuple[Trace, Report] | Failure:
        """The trace of a run that is correct, and the report on it; or what is wrong."""
        if outcome.failure is not None:
            return advised(outcome.failure)
        trace = trace_in(outcome.row or {})
        if isinstance(trace, Failure):
            return outcome.explained(trace)
        return self.report_on(trace, outcome)

    def report_on(self, trace: Trace, outcome: RunOutcome = RunOutcome()) -> tuple[Trace, Report] | Failure:  # noqa: B008
        """The same of a trace, which may be forged."""
        try:
            report = free_report(trace, self.slug, self.size, self.setting)
        except (Exception, RecursionError) as why:  # a forged trace may break even the referee
            return senseless(why)
        if report.error is not None:
            return advised(outcome.explained(of_refusal(report.error)))
        return trace, report


def free_report(trace: Trace, name: str, size: Size, setting: Setting) -> Report:
    """The referee's report by the rules of a puzzle (nothing made by hand, at this size, in this setting), but with
    targets that every run meets."""
    return referee(trace, Goal(name, size, NO_LIMIT, NO_LIMIT, setting=setting))


def advised(failure: Failure) -> Failure:
    """A failure, with the costs that price an operation where it is for an operation without a price."""
    found = UNPRICED.search(failure.sentence)
    if found is None:
        return failure
    able = pricing(found[1])
    advice = f"costs that price it: {', '.join(able)}" if able else f"no named costs price {found[1]}"
    return failure._replace(sentence=f"{failure.sentence}; {advice}")


def summary(trace: Trace, report: Report) -> Sequence[str]:
    """What a correct run is and took, in sentences."""
    peak, found = report.peak, recognize(trace)
    lines = [
        f"Correct: {with_papers(found) if found else report.family}. {report.costs.took(report.timesteps)}, over at "
        f"{report.makespan:,.9g}; the ranks are idle for {report.bubble:.1%} of the time.",
        f"Peak memory {peak.memory:,} elements, on rank {peak.rank} at t={peak.time:g}"
        + (f"; {report.lasting_peak:,} in a second step." if report.lasting_peak > peak.memory else "."),
    ]
    lines += [
        f"On the {tier}: {most.memory:,} elements, on rank {most.rank} at t={most.time:g}."
        for tier, most in report.peaks.items()
        if most.memory
    ]
    if report.traffic:
        lines.append(f"Traffic: rank {report.sent.rank} sends {report.traffic:,} elements, the most of all ranks.")
    possible = (
        above_possible(trace, found, {"timesteps": report.timesteps, "peak_memory": peak.memory}) if found else ()
    )
    return [*lines, *possible, *(f"Note: {sanitized(note.text)}" for note in report.notes)]
