"""One run of a schedule by itself, as for a picture: its trace as far as it went, and why it went no further."""

from __future__ import annotations

from typing import NamedTuple

from lib import Size, Trace
from puzzles.failure import Failure
from puzzles.sandbox.deadline import Timer
from puzzles.sandbox.limits import Limits
from puzzles.tracks import SCHEDULES
from puzzles.tracks.schedule.track import read

from .attempt import run_in
from .session import Session
from .submission import Submission


class Played(NamedTuple):
    """A run. Both are None if the file has no such function."""

    trace: Trace | None = None
    failure: Failure | None = None


def play(submission: Submission, slug: str, size: Size, timer: Timer) -> Played:
    """Runs one function of a submission at one size, in a process of its own."""
    if submission.failure is not None:
        return Played(failure=submission.failure)
    with Session(submission, Limits(seconds=timer.seconds)) as session:
        ran = run_in(session, SCHEDULES, slug, {"size": list(size)}, timer.seconds)
    if ran.row is None:
        return Played(failure=ran.failure)
    trace = read(ran.row)
    if isinstance(trace, Failure):
        return Played(failure=ran.failure or ran.told(trace))
    return Played(trace, ran.failure)
