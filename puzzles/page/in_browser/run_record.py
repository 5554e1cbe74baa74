"""What the Python that runs players' code hands to the one that judges: plain data, read strictly and judged there."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from puzzles.catalog.puzzle import Puzzle
from puzzles.failure import Failure, sanitized
from puzzles.judge.judge import judge, run_judge
from puzzles.judge.verdict import Verdict
from puzzles.player.local_run import NotebookDefinition
from puzzles.sandbox.worker.reading import Sketch
from puzzles.tracks import Track, track_of
from puzzles.tracks.outcomes import RunOutcome, RunRequest

MAX_RUNS, MAX_TEXT = 100, 2_000
"""Runs of one judgement, and characters of a failure's text."""


class KeptRun(NamedTuple):
    """A run: what a track sends of it, as text, and why it failed. With neither there was no definition."""

    sent: str = ""
    failure: Failure | None = None

    def outcome(self, track: Track[Any]) -> RunOutcome:
        return outcome_of(track, self.sent, self.failure) if self.sent else RunOutcome(None, self.failure)


def outcome_of(track: Track[Any], text: str, failure: Failure | None = None) -> RunOutcome:
    """The outcome of a run in text."""
    try:
        return RunOutcome(track.judge.row_of(text), failure)
    except (ValueError, RecursionError) as why:
        return RunOutcome(failure=Failure("rule", sanitized(f"this run cannot be judged: {why}")))


@dataclass(frozen=True)
class RunRecord:
    """All that a judgement needs: what is known of the definition, and its runs as the judge requests them."""

    problem: Failure | None = None
    sketch: Sketch = Sketch()  # noqa: RUF009  # immutable
    line: int = 0
    runs: tuple[KeptRun, ...] = ()

    @staticmethod
    def runs_of(track: Track[Any], outcomes: Iterable[RunOutcome]) -> tuple[KeptRun, ...]:
        """The runs as the track sends them."""
        return tuple(KeptRun(track.judge.sent(one.row) if one.row is not None else "", one.failure) for one in outcomes)

    def without_lines(self) -> RunRecord:
        """The same with no line anywhere."""
        runs = tuple(run._replace(failure=run.failure and run.failure._replace(line=0)) for run in self.runs)
        problem, found = self.problem and self.problem._replace(line=0), self.sketch._replace(methods=())
        return replace(self, problem=problem, sketch=found, line=0, runs=runs)

    def data(self) -> dict[str, Any]:
        return {
            "problem": self.problem and list(self.problem),
            "sketch": list(self.sketch),
            "line": self.line,
            "runs": [[run.sent, run.failure and list(run.failure)] for run in self.runs],
        }

    @classmethod
    def read(cls, data: Any) -> RunRecord:
        match data:
            case {
                "problem": problem,
                "sketch": [str(digest), todo, list(methods)],
                "line": int(line),
                "runs": list(runs),
            } if len(runs) <= MAX_RUNS:
                calls = None if todo is None else tuple(map(_text, todo))
                found = Sketch(digest, calls, tuple(map(_method, methods)))
                return cls(_failure(problem), found, line, tuple(map(_run, runs)))
        raise ValueError("the run left no record that can be judged")


def _run(data: Any) -> KeptRun:
    match data:
        case [str(sent), failure]:
            return KeptRun(sent, _failure(failure))
    raise ValueError("the record of the runs is damaged")


def _failure(data: Any) -> Failure | None:
    match data:
        case None:
            return None
        case [str(reason), str(sentence), int(line), str(file), str(method)]:
            return Failure(reason[:MAX_TEXT], sanitized(sentence[:MAX_TEXT]), line, file[:MAX_TEXT], method[:MAX_TEXT])
    raise ValueError("the record of a failure is damaged")


def _method(data: Any) -> tuple[str, int]:
    match data:
        case [str(name), int(line)]:
            return name, line
    raise ValueError("the record of the definition is damaged")


def _text(data: Any) -> str:
    if isinstance(data, str):
        return data
    raise ValueError("the record of the definition is damaged")


MISSING = RunOutcome(failure=Failure("crash", "this run is missing in the record"))


def judged(puzzle: Puzzle, data: Any) -> Verdict:
    """The verdict on a record; a failure if it is none."""
    track = track_of(puzzle.slug)
    try:
        record = RunRecord.read(data)
    except ValueError as why:
        record = RunRecord(problem=Failure("rule", str(why)))
    definition = NotebookDefinition(sketch=record.sketch, line=record.line, problem=record.problem)
    runs = iter(record.runs)

    def outcome(request: RunRequest) -> RunOutcome:
        if request.own is not None:
            return RunOutcome(request.own())
        run = next(runs, None)
        return MISSING if run is None else run.outcome(track)

    return run_judge(judge(puzzle, definition, keep=True), outcome)


def judged_run(puzzle: Puzzle, trace: str) -> Verdict:
    """The verdict on a saved run. It says nothing of other sizes, of which there is no run."""
    outcome = outcome_of(track_of(puzzle.slug), trace)
    return run_judge(judge(puzzle, NotebookDefinition(), keep=True, only_shown=True), lambda request: outcome)
