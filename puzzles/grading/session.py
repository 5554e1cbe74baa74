"""Session of one submission with a sandbox: opened once for all puzzles, surveyed, and asked for runs."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self

from puzzles.sandbox.client import Client, SandboxClient, WorkerLostError
from puzzles.sandbox.limits import Limits
from puzzles.sandbox.tiers import START_SECONDS, Tier, best
from puzzles.sandbox.visible_files import SITE_PACKAGES
from puzzles.sandbox.worker.notebook_cells import Cell
from puzzles.tracks import TRACKS

from .submission import Submission


def client_for(tier: Tier, limits: Limits) -> Client:
    """Returns a client of a new server; on a system that cannot fork, one that needs no server."""
    if tier.forks:
        return SandboxClient(tier, limits)
    from puzzles.sandbox.client_oneshot import OneshotClient  # here, for few systems need it

    return OneshotClient(tier, limits)


class Session:
    """A submission that can be surveyed and run. A context manager.

    A `client` that is lent stays open for the next session; otherwise it ends with this one.
    """

    def __init__(
        self,
        submission: Submission,
        limits: Limits = Limits(),  # noqa: B008  # frozen
        tier: Tier | None = None,
        client: Client | None = None,
    ) -> None:
        self.submission = submission
        self.limits = limits
        self.tier = tier or best()
        self.survey: dict[str, Any] | None = None
        self._client = client or client_for(self.tier, limits)
        self._lent = client is not None
        self._is_open = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        if self._is_open and self._lent:
            self._client.done()
        elif not self._lent:
            self._client.close()
        self._is_open = False

    def read(self) -> dict[str, Any]:
        """Returns the survey of the submission's definitions, made in the sandbox.

        Raises:
            WorkerLostError: Python itself broke on the file, or took too long.
        """
        if self.survey is None:
            self._open()
        assert self.survey is not None
        return self.survey

    def run(self, request: dict[str, Any], left: float) -> dict[str, Any]:
        """Runs one definition, with `left` seconds: how that ended, and what it sent and printed.

        Raises:
            WorkerLostError: the server or the supervisor did not survive it.
        """
        self.read()
        if not self._is_open:
            self._open()
        try:
            return self._client.ask({**request, "left": left}, left + START_SECONDS)
        except WorkerLostError:
            self._is_open = False
            raise

    def _open(self) -> None:
        seen = self.submission.names
        given = {
            **self.submission.as_given(),
            "slugs": [slug for track in TRACKS.values() for slug in track.slugs],
            "stages": [track.stage for track in TRACKS.values() if seen.intersection(track.slugs)],
            "limits": self.limits._asdict(),
            "packages": SITE_PACKAGES,
        }
        self.survey = self._client.open(given, START_SECONDS + self.limits.seconds)
        self.submission.cells = [Cell(*cell) for cell in self.survey["cells"]]
        self._is_open = True
