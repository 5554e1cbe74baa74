"""Verdicts of the grader on a submission's text, in the sandbox that is lent."""

from __future__ import annotations

from pathlib import Path

from puzzles.grading.grader import grade_puzzle
from puzzles.grading.session import Session
from puzzles.grading.submission import Submission
from puzzles.grading.verdict import Verdict
from puzzles.sandbox.limits import Limits
from puzzles.tracks import find

DEFAULT = Limits()


def session_of(source: str | bytes, limits: Limits = DEFAULT) -> Session:
    """A session with a file that has this text."""
    return Session(Submission(Path("theirs.py"), source.encode() if isinstance(source, str) else source), limits)


def verdict_on(slug: str, source: str | bytes, limits: Limits = DEFAULT, secret: str = "") -> Verdict:
    """The verdict on a file with this text."""
    with session_of(source, limits) as session:
        return grade_puzzle(find(slug), session, secret=secret)
