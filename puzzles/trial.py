"""Runs one function of a submission at one size, in a process of its own: a trace, or the reason why there is none."""

from __future__ import annotations

import json
import signal
from typing import Any, NamedTuple

from lib import PuzzleError, Size, Trace, trace_from_json
from lib.pause import no_collection

from .inside.failure import Failure, plain
from .inside.perform import too_slow
from .limits import Limits
from .session import Lost, Session
from .submission import Submission
from .timer import Timer

REASONS = ("rule", "deadlock", "mismatch", "incomplete", "crash", "syntax", "timeout", "memory")
LONGEST = 2000
"""Characters of a sentence that comes from a run."""


class Played(NamedTuple):
    """A run. Its `trace` goes as far as the run went; both are None if the file has no such function."""

    trace: Trace | None = None
    failure: Failure | None = None
    forgotten: str = ""
    """What Python remarks about the player's own coroutine that was called without await, if there is one."""

    def told(self, failure: Failure) -> Failure:
        """The failure with that remark, which is likely to be its cause."""
        if not self.forgotten:
            return failure
        return failure._replace(sentence=f"{failure.sentence}; {self.forgotten}, so it did not run")


class Run(NamedTuple):
    """What came of a run, what it printed, and the seconds that it took."""

    played: Played
    printed: str = ""
    took: float = 0.0


def play(submission: Submission, slug: str, size: Size, timer: Timer) -> Played:
    """One run by itself, as for a picture."""
    if submission.failure is not None:
        return Played(failure=submission.failure)
    with Session(submission, Limits(seconds=timer.seconds)) as session:
        return play_in(session, slug, size, timer.seconds).played


def play_in(session: Session, slug: str, size: Size, left: float) -> Run:
    """One run in a session, with so many seconds left. Whatever comes back is read as data, and as nothing else."""
    try:
        survey = session.read()
        problem = survey["problem"] or survey["broken"].get(slug)
        if problem is not None:
            return Run(Played(failure=_failure(problem)))
        answer = session.run(slug, size, left)
    except Lost as why:
        return Run(
            Played(failure=Failure("crash", f"the process that ran this was {why}; leave other processes alone"))
        )
    return Run(_played(answer, session.limits), str(answer["output"]), float(answer["took"]))


def _played(answer: dict[str, Any], limits: Limits) -> Played:
    row = _last_row(str(answer["result"]))
    ended = (answer["ended"], answer["code"])
    failure = None if row is None else _failure(row.get("failure"))
    trace = None
    if (ended != ("exit", 0) and failure is None) or row is None:
        failure = _of_end(*ended, limits)
    elif isinstance(row.get("trace"), str):
        try:
            with no_collection():
                trace = trace_from_json(row["trace"])
        except (PuzzleError, RecursionError, MemoryError, ValueError, TypeError) as why:
            failure = failure or Failure("rule", plain(f"what the run sent back is no trace: {why}")[:LONGEST])
    elif failure is None and row.get("defined") is not False:
        failure = Failure(
            "crash", "the run sent back no trace; let the function return, and leave the rest to the grader"
        )
    forgotten = row.get("forgotten") if row else ""
    played = Played(trace, failure, plain(forgotten)[:LONGEST] if isinstance(forgotten, str) else "")
    return played if failure is None else played._replace(failure=played.told(failure))


def _last_row(text: str) -> dict[str, Any] | None:
    lines = text.splitlines()
    if not lines:
        return None
    try:
        row = json.loads(lines[-1])
    except (ValueError, RecursionError):
        return None
    return row if isinstance(row, dict) else None


def _failure(row: Any) -> Failure | None:
    """A failure as the run tells it: text for the player, nothing more."""
    match row:
        case [str(reason), str(sentence), int(line)] if reason in REASONS:
            return Failure(reason, plain(sentence)[:LONGEST], line if 0 <= line < 10**7 else 0)
        case None:
            return None
    return Failure("crash", "the run failed, and did not say how in a way that can be read")


def _of_end(ended: str, code: int, limits: Limits) -> Failure:
    """Why a run that told nothing counts for nothing."""
    match ended:
        case "time":
            return Failure("timeout", too_slow(limits.seconds))
        case "output":
            return Failure(
                "crash", f"it printed more than {code:,} bytes; print less, or allow more with --output-limit"
            )
        case "result":
            return Failure(
                "crash", f"the run sent back more than {code:,} bytes; a schedule of this size needs far fewer"
            )
        case "signal" if code == signal.SIGKILL:
            return Failure("memory", "the process was killed, as it happens when memory runs out; use less of it")
        case "signal":
            name = signal.strsignal(code) or "unknown"
            return Failure(
                "crash", f"the process was ended by signal {code} ({name}); leave its memory and signals alone"
            )
    return Failure(
        "crash",
        f"the process ended by itself, with code {code}, before its run was over; let the function return instead",
    )
