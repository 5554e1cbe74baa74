"""Grading without a sandbox: submissions that hold their own verdicts, and a pool that works in this process.

`write_verdicts` writes a submission, and `without_sandbox` lets every command read its verdicts from it: a test of a
table, a page or a file of results states the verdicts that it is about, and grades them in milliseconds.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from puzzles.catalog.puzzle import Puzzle
from puzzles.grading.submission import Submission
from puzzles.grading.verdict import Graded, Verdict
from puzzles.tracks import default_slugs, track_of


def real_verdict(slug: str, status: str = "passed", stars: int = 2, **fields: Any) -> Verdict:
    """A verdict on a shipped puzzle with its targets; what passes or is over target has figures at the targets."""
    track = track_of(slug)
    targets = track.targets(track.puzzle(slug))
    if status in ("passed", "over_target"):
        fields.setdefault("figures", FIGURES.get(slug, dict(targets)))
    return Verdict(slug, track.name, status, targets, stars=stars, **fields)


FIGURES: dict[str, dict[str, float]] = {
    "basic": {"timesteps": 16.5, "makespan": 16.6, "peak_memory": 2_621_440, "traffic": 0},
    "ddp": {"timesteps": 5.1, "makespan": 5.2, "peak_memory": 1_835_008, "traffic": 786_432},
}
"""Of the reference solutions."""


def write_verdicts(path: str | Path, *verdicts: Verdict) -> Path:
    """Writes a submission for which `without_sandbox` states these verdicts."""
    Path(path).write_text(json.dumps(Graded("", verdicts).row()["verdicts"]), encoding="utf-8")
    return Path(path)


def stated_in(path: str, puzzles: list[Puzzle] | None, submission: Submission) -> Graded:
    """The verdicts that a submission holds, on the puzzles that every file is graded on or on those that are named."""
    rows = json.loads(submission.text or "[]")
    verdicts = {verdict.puzzle: verdict for verdict in Graded.of_row({"path": path, "verdicts": rows}).verdicts}
    wanted = default_slugs() if puzzles is None else [puzzle.slug for puzzle in puzzles]
    slugs = list(dict.fromkeys([*wanted, *(verdicts if puzzles is None else ())]))
    return Graded(path, tuple(verdicts.get(slug) or real_verdict(slug, "not_attempted", 0) for slug in slugs))


class InlineProcesses:
    """A pool of processes that works in this one, in the order in which it is given work."""

    def __init__(self, processes: int) -> None:
        self.ended = False

    def submit(self, call: Callable[..., Any], *arguments: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(call(*arguments))
        except Exception as why:
            future.set_exception(why)
        return future

    def shutdown(self) -> None:
        pass

    def end_now(self) -> None:
        self.ended = True

    def __enter__(self) -> InlineProcesses:
        return self

    def __exit__(self, *_: object) -> None:
        pass


def without_sandbox(patch: pytest.MonkeyPatch) -> None:
    """Lets commands read the verdicts that submissions hold, in this process."""

    def grade_file(path: str, puzzles: list[Puzzle] | None = None, *more: Any, **named: Any) -> Graded:
        (submission,) = (one for one in (*more, *named.values()) if isinstance(one, Submission))
        return stated_in(path, puzzles, submission)

    patch.setattr("puzzles.grading.checkpoint.grade_file", grade_file)
    patch.setattr("puzzles.grading.checkpoint.client_for", lambda *_: None)
    patch.setattr("puzzles.grading.batch.LocalProcesses", InlineProcesses)


def graded_without_sandbox() -> Iterator[None]:
    """`without_sandbox` as a context, for fixtures of any scope."""
    with pytest.MonkeyPatch.context() as patch:
        without_sandbox(patch)
        yield
