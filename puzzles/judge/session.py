"""One submission's session with a sandbox: it is surveyed once, then runs its definitions."""

import json
import signal
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from typing import Any

from puzzles.failure import Failure, sanitized
from puzzles.sandbox.client import (
    START_SECONDS,
    Client,
    OneshotClient,
    SandboxClient,
    SandboxLostError,
    can_fork,
    end_words,
)
from puzzles.sandbox.limits import READING_PATIENCE, Limits
from puzzles.sandbox.visible_files import SITE_PACKAGES
from puzzles.sandbox.worker.os_limits import SIGKILL
from puzzles.sandbox.worker.reading import NotebookCell
from puzzles.sandbox.worker.runner import too_slow
from puzzles.tracks import TRACKS
from puzzles.tracks.base import Track
from puzzles.tracks.outcomes import RunOutcome, RunRequest

from .submission import Submission
from .verdict import LOST
from .words import SAYS


def new_client() -> Client:
    """A client of a new server; on a system that cannot fork, a client that needs no server."""
    if can_fork():
        return SandboxClient()
    return OneshotClient()


class Session(AbstractContextManager["Session"]):
    """A submission that can be surveyed and run, as a context manager.

    A `client` that is passed in stays open for the next session. `names` are definitions to find besides puzzles.
    """

    def __init__(
        self,
        submission: Submission,
        limits: Limits = Limits(),  # noqa: B008  # frozen
        client: Client | None = None,
        names: Collection[str] = (),
    ) -> None:
        self.names = names
        self.submission = submission
        self.limits = limits
        self.survey: dict[str, Any] | None = None
        self._client = client or new_client()
        self._lent = client is not None

    def __exit__(self, *_: object) -> None:
        if self._lent:
            self._client.done()
        else:
            self._client.close()

    def read(self) -> dict[str, Any]:
        """The survey of the submission's definitions, made in the sandbox."""
        if self.survey is None:
            seen = self.submission.names
            given = {
                **self.submission.as_given(),
                "slugs": [slug for track in TRACKS.values() for slug in track.slugs] + list(self.names),
                "stages": [track.judge.stage for track in TRACKS.values() if seen.intersection(track.slugs)],
                "limits": self.limits._asdict(),
                "packages": SITE_PACKAGES,
            }
            answer = self._client.open(given, START_SECONDS + READING_PATIENCE)
            self.survey = _survey(answer)
            self.submission.cells = [NotebookCell(*cell) for cell in self.survey["cells"]]
        return self.survey

    def run(self, request: dict[str, Any], left: float) -> dict[str, Any]:
        """Runs one definition for at most `left` seconds; returns how it ended, its result and its output."""
        self.read()
        return self._client.ask({**request, "left": left}, left + START_SECONDS)


def _survey(answer: Mapping[str, Any]) -> dict[str, Any]:
    """The survey that a worker sent; or one with a problem, if Python crashed on the file or took too long."""
    empty: dict[str, Any] = {
        "problem": None,
        "broken": {},
        "lines": {},
        "sketches": {},
        "idle": {},
        "cells": [],
    }
    with suppress(ValueError, RecursionError):
        survey = json.loads(answer["result"])
        if (answer["ended"], answer["code"]) == ("exit", 0) and survey.keys() == empty.keys():
            return dict(survey)
    if answer["ended"] == "time":
        return {**empty, "problem": Failure(LOST, SAYS("machine too busy", seconds=READING_PATIENCE))}
    crashed = SAYS("Python crashed", why=end_words(answer["ended"], answer["code"]))
    return {**empty, "problem": Failure("syntax", crashed)}


REASONS = ("rule", "deadlock", "mismatch", "incomplete", "crash", "syntax", "timeout", "memory")
"""Reasons of failures in any track; `Judge.reasons` has a track's own."""

MAX_SENTENCE = 2000
"""Characters of a sentence from a run."""

MIN_SECONDS = 0.01
"""Time for a run after earlier runs have used up the limit."""


class SandboxRunner:
    """Runs one definition in the sandbox; its runs share the session's time limit."""

    def __init__(self, session: Session, track: Track[Any], slug: str) -> None:
        self.session = session
        self.track = track
        self.slug = slug
        self.left = session.limits.seconds

    def __call__(self, request: RunRequest) -> RunOutcome:
        left = max(self.left, MIN_SECONDS) if request.own is None else self.session.limits.seconds
        outcome = run_in(self.session, self.track, self.slug, request.data, left)
        self.left -= outcome.took if request.own is None else 0
        return outcome


def run_in(session: Session, track: Track[Any], slug: str, data: Mapping[str, Any], left: float) -> RunOutcome:
    """Runs a definition once, for at most `left` seconds. `data` may set `longest`, the most bytes of its result."""
    reasons = (*REASONS, *track.judge.reasons)
    try:
        survey = session.read()
        problem = survey["problem"] or survey["broken"].get(slug)
        if problem is not None:
            return RunOutcome(failure=_failure(problem, reasons))
        asked = {"longest": track.judge.max_result, **data, "stage": track.judge.stage, "slug": slug}
        answer = session.run(asked, left)
    except SandboxLostError as why:
        return RunOutcome(failure=lost(why))
    outcome = _read(answer, session.limits, reasons)
    return outcome._replace(printed=str(answer["output"]), took=float(answer["took"]))


def lost(why: SandboxLostError) -> Failure:
    return Failure(LOST, SAYS("sandbox lost", why=why))


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
    """A failure as the run reports it; anything but text and a line is dropped."""
    match row:
        case [str(reason), str(sentence), int(line), *_] if reason in reasons:
            return Failure(reason, sanitized(sentence)[:MAX_SENTENCE], line if 0 <= line < 10**7 else 0)
        case None:
            return None
    return Failure("crash", SAYS("no report"))


def _of_end(ended: str, code: int, limits: Limits) -> Failure:
    """The failure of a run that sent back nothing."""
    match ended:
        case "output":
            return Failure("crash", SAYS("output", most=code))
        case "files":
            return Failure("crash", SAYS("files", most=code))
        case "result":
            return Failure("crash", SAYS("result", most=code))
        case "memory":
            return Failure("memory", SAYS("memory", most=code))
        case "time":
            return Failure("timeout", too_slow(limits.seconds))
        case "signal" if code == SIGKILL:
            return Failure("memory", SAYS("killed"))
        case "signal":
            name = (signal.strsignal(code) if code in signal.valid_signals() else "") or "unknown"
            return Failure("crash", SAYS("signal", signal=code, name=name))
    return Failure("crash", SAYS("exited", code=code))
