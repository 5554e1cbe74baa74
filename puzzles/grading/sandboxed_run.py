"""Runs one definition in a process of its own: returns the row that it sent back, or the reason why there is none."""

import json
import signal
from collections.abc import Mapping, Sequence
from typing import Any

from puzzles.failure import Failure, sanitized
from puzzles.sandbox.client import SandboxLostError
from puzzles.sandbox.limits import Limits
from puzzles.sandbox.worker.os_limits import SIGKILL
from puzzles.sandbox.worker.runner import too_slow
from puzzles.tracks.base import Track
from puzzles.tracks.outcomes import RunOutcome, RunRequest

from .session import Session
from .verdict import LOST

REASONS = ("rule", "deadlock", "mismatch", "incomplete", "crash", "syntax", "timeout", "memory")
"""Of failures that runs of any track report; a track may have others, see `Track.reasons`."""

MAX_SENTENCE = 2000
"""Characters of a sentence that comes from a run."""

MIN_SECONDS = 0.01
"""Given to a run when the runs before it have used up the time."""


class SandboxRunner:
    """Runs one definition of a submission in the sandbox; its runs share the seconds of the session's limits."""

    def __init__(self, session: Session, track: Track[Any], slug: str) -> None:
        self.session = session
        self.track = track
        self.slug = slug
        self.left = session.limits.seconds

    def __call__(self, request: RunRequest) -> RunOutcome:
        outcome = run_in(self.session, self.track, self.slug, request.data, max(self.left, MIN_SECONDS))
        self.left -= outcome.took
        return outcome


def run_in(session: Session, track: Track[Any], slug: str, data: Mapping[str, Any], left: float) -> RunOutcome:
    """Runs a definition once in a session, with so many seconds left. `data` may set `longest`, the bytes that the run
    may send back."""
    reasons = (*REASONS, *track.reasons)
    try:
        survey = session.read()
        problem = survey["problem"] or survey["broken"].get(slug)
        if problem is not None:
            return RunOutcome(failure=_failure(problem, reasons))
        asked = {"longest": track.max_result, **data, "stage": track.stage, "slug": slug}
        answer = session.run(asked, left)
    except SandboxLostError as why:
        return RunOutcome(failure=lost(why))
    outcome = _read(answer, session.limits, reasons)
    return outcome._replace(printed=str(answer["output"]), took=float(answer["took"]))


def lost(why: SandboxLostError) -> Failure:
    """The failure when the sandbox was lost, for which nobody is blamed."""
    return Failure(LOST, f"the sandbox was {why}, twice, and this file may not be the cause; grade it again")


def _read(answer: Mapping[str, Any], limits: Limits, reasons: Sequence[str]) -> RunOutcome:
    row = _last_row(str(answer["result"]))
    ended = (answer["ended"], answer["code"])
    failure = None if row is None else _failure(row.get("failure"), reasons)
    forgotten = row.get("forgotten") if row else ""
    outcome = RunOutcome(row, failure, sanitized(forgotten)[:MAX_SENTENCE] if isinstance(forgotten, str) else "")
    if row is None or (ended != ("exit", 0) and failure is None):
        failure = _of_end(*ended, limits)
        outcome = outcome._replace(row=None)
    if failure is not None:
        return outcome._replace(failure=outcome.explained(failure))
    return outcome if row is None or row.get("defined") is not False else RunOutcome()


def _last_row(text: str) -> dict[str, Any] | None:
    lines = text.splitlines()
    if not lines:
        return None
    try:
        row = json.loads(lines[-1])
    except (ValueError, RecursionError):
        return None
    return row if isinstance(row, dict) else None


def _failure(row: Any, reasons: Sequence[str]) -> Failure | None:
    """A failure as the run reports it: text for the player, nothing more."""
    match row:
        case [str(reason), str(sentence), int(line), *_] if reason in reasons:
            return Failure(reason, sanitized(sentence)[:MAX_SENTENCE], line if 0 <= line < 10**7 else 0)
        case None:
            return None
    return Failure("crash", "the run failed, and its report cannot be read")


def _of_end(ended: str, code: int, limits: Limits) -> Failure:
    """The failure of a run that sent back nothing."""
    match ended:
        case "time":
            return Failure("timeout", too_slow(limits.seconds))
        case "output":
            return Failure(
                "crash", f"it printed more than {code:,} bytes; print less, or allow more with --limit output=64M"
            )
        case "memory":
            return Failure(
                "memory",
                f"its processes used more than {code:,} bytes of memory together; use less, or allow more with "
                "--limit memory=2048M",
            )
        case "files":
            return Failure(
                "crash", f"it wrote more than {code:,} bytes to files; write less, or allow more with --limit files=64M"
            )
        case "result":
            return Failure("crash", f"the run sent back more than {code:,} bytes; a solution needs far fewer")
        case "signal" if code == SIGKILL:
            return Failure("memory", "the process was killed, probably because memory ran out; use less of it")
        case "signal":
            name = (signal.strsignal(code) if code in signal.valid_signals() else "") or "unknown"
            return Failure(
                "crash", f"the process was ended by signal {code} ({name}); leave its memory and signals alone"
            )
    return Failure(
        "crash",
        f"the process exited with code {code} before its run was over; let the function return instead",
    )
