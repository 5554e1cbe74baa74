"""Session of one submission with a sandbox: opened once for all puzzles, surveyed, and asked for runs."""

import json
from collections.abc import Collection, Mapping
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

from puzzles.failure import Failure
from puzzles.sandbox.client import Client, SandboxClient, end_words
from puzzles.sandbox.deadline import READING_PATIENCE
from puzzles.sandbox.limits import Limits
from puzzles.sandbox.tiers import START_SECONDS, IsolationTier, select_tier
from puzzles.sandbox.visible_files import SITE_PACKAGES
from puzzles.sandbox.worker.notebook_cells import NotebookCell
from puzzles.tracks import TRACKS

from .submission import Submission
from .verdict import LOST


def client_for(tier: IsolationTier, limits: Limits) -> Client:
    """Returns a client of a new server; on a system that cannot fork, one that needs no server."""
    if tier.forks:
        return SandboxClient(tier, limits)
    from puzzles.sandbox.client_oneshot import OneshotClient  # here, because few systems need it

    return OneshotClient(tier, limits)


class Session:
    """A submission that can be surveyed and run. A context manager.

    A `client` that is lent stays open for the next session; otherwise it ends with this one.
    """

    def __init__(
        self,
        submission: Submission,
        limits: Limits = Limits(),  # noqa: B008  # frozen
        tier: IsolationTier | None = None,
        client: Client | None = None,
        names: Collection[str] = (),
    ) -> None:
        """`names` are definitions that may be asked for besides puzzles."""
        self.names = names
        self.submission = submission
        self.limits = limits
        self.tier = tier or select_tier()
        self.survey: dict[str, Any] | None = None
        self._client = client or client_for(self.tier, limits)
        self._lent = client is not None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        if self._lent:
            self._client.done()
        else:
            self._client.close()

    def read(self) -> dict[str, Any]:
        """Returns the survey of the submission's definitions, made in the sandbox."""
        if self.survey is None:
            seen = self.submission.names
            given = {
                **self.submission.as_given(),
                "slugs": [slug for track in TRACKS.values() for slug in track.slugs] + list(self.names),
                "stages": [track.stage for track in TRACKS.values() if seen.intersection(track.slugs)],
                "limits": self.limits._asdict(),
                "packages": SITE_PACKAGES,
            }
            answer = self._client.open(given, START_SECONDS + READING_PATIENCE)
            self.survey = _survey(answer)
            self.submission.cells = [NotebookCell(*cell) for cell in self.survey["cells"]]
        return self.survey

    def run(self, request: dict[str, Any], left: float) -> dict[str, Any]:
        """Runs one definition, with `left` seconds: how that ended, and what it sent and printed."""
        self.read()
        return self._client.ask({**request, "left": left}, left + START_SECONDS)


def _survey(answer: Mapping[str, Any]) -> dict[str, Any]:
    """The survey that a worker sent; or one with a problem, if Python itself crashed on the file or took too long.

    If the machine was too busy to read it, nobody is blamed.
    """
    empty: dict[str, Any] = {"problem": None, "broken": {}, "lines": {}, "sketches": {}, "works": {}, "cells": []}
    with suppress(ValueError, RecursionError):
        survey = json.loads(answer["result"])
        if (answer["ended"], answer["code"]) == ("exit", 0) and survey.keys() == empty.keys():
            return dict(survey)
    if answer["ended"] == "time":
        words = f"the machine was too busy to read this file within {READING_PATIENCE:g} s; grade it again"
        return {**empty, "problem": Failure(LOST, words)}
    why = end_words(answer["ended"], answer["code"])
    words = f"Python broke on this file, or took too long to read it ({why}); make it shorter or simpler"
    return {**empty, "problem": Failure("syntax", words)}
