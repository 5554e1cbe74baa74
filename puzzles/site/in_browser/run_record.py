"""What the Python that runs a player's code hands to the one that judges: plain data, read strictly there."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from puzzles.failure import Failure, sanitized
from puzzles.sandbox.worker.sketch import Sketch
from puzzles.tracks import Track
from puzzles.tracks.outcomes import Row, RunOutcome

MAX_RUNS, MAX_TEXT = 100, 2_000
"""Runs of one judgement, and characters of a failure's text."""


class KeptRun(NamedTuple):
    """A run: what a track sends of it, as text, and why it failed. With neither there was no definition."""

    sent: str = ""
    failure: Failure | None = None

    def outcome(self, track: Track[Any]) -> RunOutcome:
        return outcome_of(track.row_of_sent, self.sent, self.failure) if self.sent else RunOutcome(None, self.failure)


def outcome_of(read: Callable[[str], Row], text: str, failure: Failure | None = None) -> RunOutcome:
    """The outcome of a run in text, which a track's method reads."""
    try:
        return RunOutcome(read(text), failure)
    except (ValueError, RecursionError) as why:
        return RunOutcome(failure=Failure("rule", sanitized(f"this run cannot be judged: {why}")))


@dataclass(frozen=True)
class RunRecord:
    """All that a judgement needs: what is known of the definition, its runs in the order of the judge's requests, and
    what it printed."""

    problem: Failure | None = None
    sketch: Sketch = Sketch()  # noqa: RUF009  # immutable
    line: int = 0
    runs: tuple[KeptRun, ...] = ()
    printed: str = ""

    @staticmethod
    def runs_of(track: Track[Any], outcomes: Iterable[RunOutcome]) -> tuple[KeptRun, ...]:
        """The runs as the track sends them."""
        return tuple(KeptRun(track.sent(one.row) if one.row is not None else "", one.failure) for one in outcomes)

    def without_lines(self) -> RunRecord:
        """The same with no line anywhere."""
        runs = tuple(run._replace(failure=run.failure and run.failure._replace(line=0)) for run in self.runs)
        return replace(self, problem=self.problem and self.problem._replace(line=0), line=0, runs=runs)

    def data(self) -> dict[str, Any]:
        return {
            "problem": self.problem and list(self.problem),
            "sketch": list(self.sketch),
            "line": self.line,
            "runs": [[run.sent, run.failure and list(run.failure)] for run in self.runs],
            "printed": self.printed,
        }

    @classmethod
    def read(cls, data: Any) -> RunRecord:
        match data:
            case {
                "problem": problem,
                "sketch": [str(digest), todo],
                "line": int(line),
                "runs": list(runs),
                "printed": str(printed),
            } if len(runs) <= MAX_RUNS:
                found = Sketch(digest, None if todo is None else tuple(map(_text, todo)))
                return cls(_failure(problem), found, line, tuple(map(_run, runs)), printed)
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
        case [str(reason), str(sentence), int(line), str(file)]:
            return Failure(reason[:MAX_TEXT], sanitized(sentence[:MAX_TEXT]), line, file[:MAX_TEXT])
    raise ValueError("the record of a failure is damaged")


def _text(data: Any) -> str:
    if isinstance(data, str):
        return data
    raise ValueError("the record of the definition is damaged")
