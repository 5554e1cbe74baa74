"""Grading without a sandbox: submissions that state their own verdicts, and a pool that works in this process.

`write_verdicts` writes a submission, and `without_sandbox` lets every command read its verdicts from it: a test of a
table, a page or a file of results states the verdicts that it is about, and grades them in milliseconds. Nothing in
such a file is run.
"""

import ast
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import asdict
from pathlib import Path
from typing import Any, Self

import pytest

from puzzles.catalog.puzzle import Puzzle
from puzzles.failure import of_source
from puzzles.judge.checkpoint import GradingJob
from puzzles.judge.grader import SubmittedDefinition
from puzzles.judge.judge import judge, run_judge
from puzzles.judge.submission import Submission, source_of
from puzzles.judge.verdict import Graded, Verdict
from puzzles.tracks import ALL, find, track_of
from puzzles.tracks.outcomes import RunOutcome


def real_verdict(slug: str, status: str = "passed", stars: int = 2, **fields: Any) -> Verdict:
    """A verdict on a shipped puzzle with its targets. What is correct has figures at the targets, unless some are
    given."""
    track = track_of(slug)
    targets = track.words.targets(track.puzzle(slug))
    if status in ("passed", "over_target"):
        fields.setdefault("figures", figures_at(targets))
    return Verdict(slug, track.name, status, targets, stars=stars, **fields)


def figures_at(targets: Mapping[str, float]) -> dict[str, float]:
    """Figures of these targets: a schedule's are named otherwise."""
    if "time" not in targets:
        return dict(targets)
    time, memory = float(targets["time"]), targets["memory"]
    return {"timesteps": time, "makespan": time + 0.5, "peak_memory": memory, "traffic": targets.get("traffic", 0)}


def stating(*verdicts: Verdict) -> str:
    """The source of a file whose definitions state these verdicts."""
    return "\n\n".join(map(_definition, verdicts))


def _definition(verdict: Verdict) -> str:
    usual = asdict(Verdict(verdict.puzzle, verdict.track, "", {}))
    stated = {name: given for name, given in asdict(verdict).items() if given != usual[name] and name not in IMPLIED}
    return f"def {verdict.puzzle}(model):\n    return {stated!r}\n"


IMPLIED = ("puzzle", "track", "targets")


def write_verdicts(path: str | Path, *verdicts: Verdict) -> Path:
    """Writes a submission that states these verdicts."""
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text(stating(*verdicts), encoding="utf-8")
    return Path(path)


def stated_in(path: str, puzzles: Iterable[Puzzle] | None, submission: Submission) -> Graded:
    """The verdicts that a submission states, on the puzzles that are named, or on those that every file is graded on
    and those that it defines. A definition that states none is not attempted; a file that is not Python is judged."""
    problem, stated = submission.failure, dict[str, dict[str, Any]]()
    try:
        stated = dict(_stated(ast.parse(source_of(submission))))
    except SyntaxError as why:
        problem = problem or of_source(why)
    asked = None if puzzles is None else [puzzle.slug for puzzle in puzzles]
    slugs = asked or [slug for slug in ALL if slug in stated or ALL[slug].is_default(slug)]

    def verdict_on(slug: str) -> Verdict:
        if problem is not None:
            definition = SubmittedDefinition(submission.looks_defined(slug), problem=problem, submission=submission)
            return run_judge(judge(track_of(slug).puzzle(slug), definition), lambda request: RunOutcome())
        track = track_of(slug)
        fields = stated.get(slug, {"status": "not_attempted"})
        return Verdict(slug, track.name, targets=track.words.targets(track.puzzle(slug)), **fields)

    return Graded(path, tuple(map(verdict_on, slugs)))


def _stated(tree: ast.Module) -> Iterator[tuple[str, dict[str, Any]]]:
    for node in tree.body:
        match node:
            case ast.FunctionDef(name=name, body=[*_, ast.Return(value=ast.Dict() as fields)]) if name in ALL:
                yield name, ast.literal_eval(fields)


class StatedJob(GradingJob):
    """A job that takes the verdicts that submissions state, in whichever process it works."""

    def grade(self, path: str, source: bytes | OSError, client: object = None) -> Graded:
        submission = Submission(Path(path), source)
        return stated_in(path, [find(slug) for slug in self.slugs or ()], submission)

    grade_with_kept_client = grade


class InlineProcesses:
    """A pool of processes that works in this one, on what it is given at once."""

    def __init__(self, processes: int) -> None:
        self.is_interrupted = False
        """True once an error or an interrupt has left the pool."""

    def submit(self, call: Callable[..., Any], *arguments: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(call(*arguments))
        except Exception as why:
            future.set_exception(why)
        return future

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.is_interrupted = kind is not None


def without_sandbox(patch: pytest.MonkeyPatch) -> None:
    """Lets commands read the verdicts that submissions hold, in this process."""

    def grade_file(path: str, puzzles: Iterable[Puzzle] | None = None, *more: Any, **named: Any) -> Graded:
        given = (one for one in (*more, *named.values()) if isinstance(one, Submission))
        return stated_in(path, puzzles, next(given, None) or Submission.read(Path(path)))

    for module in ("checkpoint", "grader"):  # one imports it by its name
        patch.setattr(f"puzzles.judge.{module}.grade_file", grade_file)
    patch.setattr("puzzles.judge.checkpoint.new_client", lambda *_: None)
    patch.setattr("puzzles.judge.checkpoint._kept", threading.local())  # or later tests would get that client
    patch.setattr("puzzles.judge.batch.LocalProcesses", InlineProcesses)
