"""Judges a player's file, puzzle by puzzle: what it defines is run elsewhere, and its track judges what comes back."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from puzzles.failure import Failure, plain
from puzzles.sandbox.client import Client, WorkerLostError
from puzzles.sandbox.limits import Limits
from puzzles.sandbox.tiers import Tier
from puzzles.sandbox.worker.source import digest
from puzzles.tracks import ALL, SCHEDULES, track_of
from puzzles.tracks.base import Attempt, Judged, Track, tried_with

from .attempt import Ran, run_in
from .session import Session
from .submission import Submission
from .verdict import Graded, Verdict


def grade_file(
    path: str,
    puzzles: Iterable[Any] | None = None,
    limits: Limits = Limits(),  # noqa: B008  # frozen
    tier: Tier | None = None,
    strict: bool = False,
    keep: bool = False,
    submission: Submission | None = None,
    client: Client | None = None,
) -> Graded:
    """The verdicts on one file; each run has a process of its own, so that none can spoil another's.

    Without `puzzles`: on every schedule, and on those classes and layouts that the file attempts; of one that
    attempts nothing, on what it has the beginnings of.
    """
    with Session(submission or Submission.read(Path(path)), limits, tier, client) as session:
        wanted = _all(session) if puzzles is None else puzzles
        verdicts = [grade(puzzle, session, strict, keep) for puzzle in wanted]
    if puzzles is None:
        begun = [verdict for verdict in verdicts if session.submission.looks_defined(verdict.puzzle)]
        if not begun or any(verdict.attempted for verdict in verdicts):
            verdicts = [verdict for verdict in verdicts if verdict.attempted or verdict.track == SCHEDULES.name]
        else:
            verdicts = begun
    return Graded(path, tuple(verdicts))


def _all(session: Session) -> Iterator[Any]:
    """Every schedule, and of the other tracks what the file seems to define; only those are loaded."""
    problem, survey = _survey(session)
    for slug, track in ALL.items():
        if problem is not None:
            defined = session.submission.looks_defined(slug)
        else:
            defined = slug in survey["lines"] or slug in survey["broken"]
        if defined or track is SCHEDULES:
            yield track.puzzle(slug)


def grade(puzzle: Any, session: Session, strict: bool = False, keep: bool = False) -> Verdict:
    """The verdict on one puzzle of a submission.

    `strict` fails what works only at the shown size; `keep` keeps what was judged with the verdict.
    """
    slug, track = puzzle.slug, track_of(puzzle.slug)
    nothing = Verdict(slug, track.name, "not_attempted", track.targets(puzzle))
    problem, survey = _survey(session)
    if problem is not None:
        return _failed(nothing, problem, session.submission, session.submission.looks_defined(slug))
    lines, defined = survey["lines"], slug in survey["lines"] or slug in survey["broken"]
    if not (defined or ("*" in lines and track is SCHEDULES)) or survey["digests"].get(slug) == _starter(
        puzzle.starter
    ):
        return nothing
    runs = Runs(track, slug, session)
    attempts = track.attempts(puzzle)
    shown = next(attempts)
    ran = runs.run(shown)
    if ran.row is None and ran.failure is None:
        return nothing
    kept = track.kept(ran.row) if keep and ran.row is not None else ""
    nothing = replace(nothing, printed=plain_output(ran.printed), trace=kept)
    judged = judge(shown, ran)
    if isinstance(judged, Failure):
        if ran.failure is None and not judged.line and judged.reason != "crash":
            judged = judged._replace(line=lines.get(slug, 0))
        return _failed(nothing, judged, session.submission, defined or ran.failure is None)
    missed, notes = list(judged.missed), [session.submission.placed(note) for note in judged.notes]
    stars, special = judged.stars, ""
    elsewhere = runs.elsewhere(shown, (other for other in attempts if not (missed and other.hidden)))
    if isinstance(elsewhere, Failure):
        return _failed(nothing, elsewhere, session.submission, True)
    if not missed:
        special, missed = elsewhere
    if special and strict:
        return replace(nothing, status="failed", reason="rule", message=special)
    if special:
        stars, notes = min(stars, 2), [*notes, special]
    return replace(
        nothing,
        status="over_target" if missed else "passed",
        stars=min(stars, 1) if missed else stars,
        figures=judged.figures,
        message=f"correct, but {'; and '.join(missed)}" if missed else "",
        notes=tuple(notes),
    )


def judge(attempt: Attempt, ran: Ran) -> Judged | Failure:
    """What a run is worth, or why it is worth nothing."""
    if ran.failure is not None:
        return ran.failure
    found = attempt.judge(ran.row or {})
    return ran.told(found) if isinstance(found, Failure) else found


def _survey(session: Session) -> tuple[Failure | None, dict[str, Any]]:
    """What the file defines, or why that cannot be told."""
    submission = session.submission
    if submission.failure is not None:
        return submission.failure, {}
    try:
        survey = session.read()
    except WorkerLostError as why:
        submission.problem = ValueError(f"Python itself broke on it ({why})")
        return submission.failure, {}
    return None if survey["problem"] is None else Failure(*survey["problem"]), survey


@cache
def _starter(source: str) -> str:
    """The digest of a starter: a definition that has it is still untouched."""
    return digest(ast.parse(source).body[0])


class Runs:
    """The runs of one puzzle of a submission, which share its seconds."""

    def __init__(self, track: Track, slug: str, session: Session) -> None:
        self.track = track
        self.slug = slug
        self.session = session
        self.left = session.limits.seconds

    def run(self, attempt: Attempt) -> Ran:
        ran = run_in(self.session, self.track, self.slug, attempt.request, max(self.left, 0.01))
        self.left -= ran.took
        return ran

    def elsewhere(self, shown: Attempt, others: Iterable[Attempt]) -> tuple[str, list[str]] | Failure:
        """What is wrong at a size that players are told of; else a note if something is at one that they are not
        told of, and the targets that are missed at the first size where any is."""
        note, missed = "", list[str]()
        for attempt in others:
            ran = self.run(attempt)
            found: Judged | Failure = judge(attempt, ran)
            if ran.row is None and ran.failure is None:
                found = Failure("incomplete", f"there is no {self.slug} then")
            if isinstance(found, Judged):
                if not missed:
                    missed = [tried_with(attempt.size) + words for words in found.missed]
            elif not attempt.hidden:
                return found._replace(sentence=tried_with(attempt.size) + found.sentence)
            elif not note:
                why = self.session.submission.placed(found.message)
                note = f"works only at the shown size ({shown.size}); with {attempt.size} it fails: {why}"
        return note, missed


def _failed(nothing: Verdict, failure: Failure, submission: Submission, defined: bool) -> Verdict:
    """A failure, unless the file never says that it has a solution; then it is just told."""
    message = submission.placed(failure.message)
    told = replace(nothing, message=message, source=plain(submission.line(failure.line)))
    return replace(told, status="failed", reason=failure.reason) if defined else told


def plain_output(printed: str) -> tuple[str, ...]:
    """The first lines of what a run printed, safe to show."""
    lines = [plain(line)[:LONGEST_LINE] for line in printed.splitlines()]
    return (
        *lines[:MOST_LINES],
        *([f"... and {len(lines) - MOST_LINES} lines more"] if len(lines) > MOST_LINES else []),
    )


LONGEST_LINE, MOST_LINES = 200, 10
