"""Fixtures of the tests of the game: a track whose runs are written down, and submissions that state their verdicts."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from puzzles.tracks import register, unregister
from tests.support.fake_grading import without_sandbox
from tests.support.fake_track import Fakes


@pytest.fixture
def fakes() -> Iterator[Fakes]:
    """The track of fakes, which is registered for this test."""
    track = Fakes()
    register(track)
    yield track
    unregister(track)


@pytest.fixture
def stated_verdicts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every command takes the verdicts that submissions state, and runs nothing."""
    without_sandbox(monkeypatch)
