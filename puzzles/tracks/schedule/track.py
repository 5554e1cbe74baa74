"""Schedules: the child sends a trace, and the referee judges it here, against the catalog's own sizes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from lib import PuzzleError, Report, Size, Trace, referee, trace_from_json, trace_to_json
from lib.gc_pause import no_collection
from puzzles.catalog.schedule import PUZZLES, Puzzle
from puzzles.catalog.schedule.size_text import size_text
from puzzles.failure import Failure, of_refusal, plain
from puzzles.tracks.base import Attempt, Judged, Part, Section, Track

from .calls import reminder

MOST_OPERATIONS = 2000
"""Of one rank. The longest of our own schedules has a fifth of that."""

LONGEST = 2000
"""Characters of what is said of a broken trace."""


class Schedules(Track):
    """Who does what, and when: one coroutine, which every rank runs."""

    name = "schedule"
    title = "Schedules"
    idea = "one coroutine that every rank runs: who computes what, who sends what, and when?"
    columns = (("timesteps", "timesteps", "time"), ("peak memory", "peak_memory", "memory"))

    @property
    def parts(self) -> Sequence[Part]:
        return [Part(self.name, self.title, self.idea, tuple(PUZZLES))]

    def puzzle(self, slug: str) -> Puzzle:
        return PUZZLES[slug]

    def targets(self, puzzle: Puzzle) -> Mapping[str, int]:
        return {"time": puzzle.goal.time, "memory": puzzle.goal.memory}

    def attempts(self, puzzle: Puzzle) -> Iterator[Attempt]:
        for size in (puzzle.goal.size, *puzzle.other_sizes):
            request = {"size": list(size)}
            yield Attempt(size_text(size), request, lambda row, size=size: judged(read(row), puzzle, size))

    def kept(self, row: Mapping[str, Any]) -> str:
        trace = read(row)
        return "" if isinstance(trace, Failure) else trace_to_json(trace)

    def called(self, puzzle: Puzzle) -> str:
        return f"puzzle {puzzle.number}"

    def limits(self, puzzle: Puzzle) -> str:
        goal = puzzle.goal
        return f"{size_text(goal.size)}; targets: {goal.time} timesteps, {goal.memory:,} elements"

    def figures_text(self, puzzle: Puzzle, figures: Mapping[str, float]) -> str:
        goal = puzzle.goal
        steps = f"{figures['timesteps']:g}" if figures else "-"
        memory = f"{figures['peak_memory']:,}" if figures else "-"
        return f"{steps} of {goal.time} timesteps, {memory} of {goal.memory:,} elements"

    def starter_head(self, puzzles: Sequence[Puzzle]) -> str:
        grads = any("WeightGrad" in puzzle.starter for puzzle in puzzles)
        return f"from lib import {'Model, WeightGrad' if grads else 'Model'}\n"

    def signature(self, slug: str) -> str:
        return f"def {slug}(model)"

    def record(self, puzzle: Puzzle, figures: Mapping[str, float], stars: int) -> str:
        if stars >= 3:
            return "Three stars: no schedule that we know is better."
        steps, memory = figures["timesteps"], int(figures["peak_memory"])
        better = next((r for r in puzzle.goal.records if r.dominates(steps, memory)), None)
        if better is None:
            return "Both targets met. See the note for the third star."
        return (
            "Both targets met. For the third star: a schedule with "
            f"{better.timesteps:g} timesteps and {better.peak_memory:,} elements is known."
        )

    def sections(self, puzzle: Puzzle) -> Sequence[Section]:
        return [Section("Calls", reminder(puzzle.calls))]


def read(row: Mapping[str, Any]) -> Trace | Failure:
    """The trace that a run has sent, if it is one."""
    text = row.get("trace")
    if not isinstance(text, str):
        words = "the run sent back no trace; let the function return, and leave the rest to the grader"
        return Failure("crash", words)
    try:
        with no_collection():
            return trace_from_json(text)
    except (PuzzleError, RecursionError, MemoryError, ValueError, TypeError) as why:
        return Failure("rule", plain(f"what the run sent back is no trace: {why}")[:LONGEST])


def judge(trace: Trace, puzzle: Puzzle, size: Size) -> Report | Failure:
    """The referee's report. A trace that breaks even the referee is a failure of the trace."""
    longest = max(map(len, trace.ranks), default=0)
    if longest > MOST_OPERATIONS:  # checked before judging, so that nobody's noise takes its time
        advice = f"a schedule of this size needs far fewer than {MOST_OPERATIONS:,}"
        return Failure("rule", f"a rank recorded {longest:,} operations; {advice}")
    try:
        return referee(trace, replace(puzzle.goal, size=size))
    except (Exception, RecursionError) as why:
        return Failure("rule", plain(f"what the run sent back makes no sense as a trace ({type(why).__name__}: {why})"))


def judged(trace: Trace | Failure, puzzle: Puzzle, size: Size) -> Judged | Failure:
    """The same as a verdict needs it. Targets are those of the shown size, and are missed there only."""
    report = trace if isinstance(trace, Failure) else judge(trace, puzzle, size)
    if isinstance(report, Failure):
        return report
    if report.error is not None:
        return of_refusal(report.error)
    figures = {"timesteps": report.timesteps, "makespan": report.makespan, "peak_memory": report.peak.memory}
    notes = tuple(plain(note.text) for note in report.notes)
    missed = tuple(_missed(report, puzzle)) if size == puzzle.goal.size else ()
    return Judged(figures, missed, report.stars, notes)


def _missed(report: Report, puzzle: Puzzle) -> Iterator[str]:
    goal, peak = puzzle.goal, report.peak
    if not report.meets_time:
        yield f"it takes {report.timesteps:g} timesteps and the target is {goal.time}"
    if not report.meets_memory:
        yield (
            f"it needs {peak.memory:,} elements of memory (rank {peak.rank} at t={peak.time:g}) "
            f"and the target is {goal.memory:,}"
        )
