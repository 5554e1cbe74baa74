"""One submission and the keeper that runs it."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self

from puzzles.sandbox.client import Line, Lost
from puzzles.sandbox.limits import Limits
from puzzles.sandbox.tiers import PACKAGES, PATIENCE, Tier, best
from puzzles.tracks import TRACKS

from .submission import Submission


def line_of(tier: Tier, limits: Limits) -> Line:
    """A line to a keeper; where the system cannot fork, what does the same without one."""
    if tier.forks:
        return Line(tier, limits)
    from puzzles.sandbox.client_oneshot import SingleLine

    return SingleLine(tier, limits)  # type: ignore[return-value]  # the same four methods


class Session:
    """A submission that can be surveyed and run. To be used with `with`.

    With a `line` that is lent, the keeper stays for the next session; else it ends with this one.
    """

    def __init__(
        self,
        submission: Submission,
        limits: Limits = Limits(),  # noqa: B008  # frozen
        tier: Tier | None = None,
        line: Line | None = None,
    ) -> None:
        self.submission = submission
        self.limits = limits
        self.tier = tier or best()
        self.survey: dict[str, Any] | None = None
        self._line = line or line_of(self.tier, limits)
        self._lent = line is not None
        self._is_open = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        if self._is_open and self._lent:
            self._line.done()
        elif not self._lent:
            self._line.close()
        self._is_open = False

    def read(self) -> dict[str, Any]:
        """What the submission defines, by the keeper's reading.

        Raises:
            Lost: Python itself broke on the file, or took too long.
        """
        if self.survey is None:
            self._open()
        assert self.survey is not None
        return self.survey

    def run(self, request: dict[str, Any], left: float) -> dict[str, Any]:
        """How one run of one definition ended, and what it sent and printed.

        Raises:
            Lost: the keeper did not survive it.
        """
        self.read()
        if not self._is_open:
            self._open()
        try:
            return self._line.ask({**request, "left": left}, left + PATIENCE)
        except Lost:
            self._is_open = False
            raise

    def _open(self) -> None:
        seen = self.submission.seems_to_define()
        given = {
            **self.submission.as_given(),
            "slugs": [slug for track in TRACKS.values() for slug in track.slugs],
            "stages": [track.stage for track in TRACKS.values() if seen.intersection(track.slugs)],
            "limits": self.limits._asdict(),
            "packages": PACKAGES,
        }
        self.survey = self._line.open(given, PATIENCE + self.limits.seconds)
        self._is_open = True
