"""One run of one definition in a process of its own: the row that it sent back, or the reason why there is none."""

from __future__ import annotations

import json
import signal
from collections.abc import Mapping
from typing import Any, NamedTuple

from puzzles.failure import Failure, plain
from puzzles.sandbox.client import WorkerLostError
from puzzles.sandbox.limits import Limits
from puzzles.sandbox.worker.runner import too_slow
from puzzles.tracks.base import Track

from .session import Session

REASONS = ("rule", "deadlock", "mismatch", "incomplete", "layout", "crash", "syntax", "timeout", "memory")
LONGEST = 2000
"""Characters of a sentence that comes from a run."""


class Ran(NamedTuple):
    """What came of a run. Whatever came back is data, and is trusted by nobody; `failure` tells why it does not count.
    Both are None if the file has no such definition."""

    row: Mapping[str, Any] | None = None
    failure: Failure | None = None
    forgotten: str = ""
    """What Python remarks about the player's own coroutine that was called without await, if there is one."""
    printed: str = ""
    took: float = 0.0

    def told(self, failure: Failure) -> Failure:
        """A failure with that remark, which is likely to be its cause."""
        if not self.forgotten:
            return failure
        return failure._replace(sentence=f"{failure.sentence}; {self.forgotten}, so it did not run")


def run_in(session: Session, track: Track, slug: str, request: Mapping[str, Any], left: float) -> Ran:
    """One run in a session, with so many seconds left."""
    try:
        survey = session.read()
        problem = survey["problem"] or survey["broken"].get(slug)
        if problem is not None:
            return Ran(failure=_failure(problem))
        asked = {**request, "track": track.name, "slug": slug, "longest": track.longest}
        answer = session.run(asked, left)
    except WorkerLostError as why:
        words = f"the process that ran this was {why}; leave other processes alone"
        return Ran(failure=Failure("crash", words))
    ran = _read(answer, session.limits)
    return ran._replace(printed=str(answer["output"]), took=float(answer["took"]))


def _read(answer: Mapping[str, Any], limits: Limits) -> Ran:
    row = _last_row(str(answer["result"]))
    ended = (answer["ended"], answer["code"])
    failure = None if row is None else _failure(row.get("failure"))
    forgotten = row.get("forgotten") if row else ""
    ran = Ran(row, failure, plain(forgotten)[:LONGEST] if isinstance(forgotten, str) else "")
    if row is None or (ended != ("exit", 0) and failure is None):
        failure = _of_end(*ended, limits)
        ran = ran._replace(row=None)
    if failure is not None:
        return ran._replace(failure=ran.told(failure))
    return ran if row is None or row.get("defined") is not False else Ran()


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
            return Failure("crash", f"the run sent back more than {code:,} bytes; a solution needs far fewer")
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
