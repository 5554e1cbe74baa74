"""Fixtures of the tests of the game: a track whose runs are written down."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from puzzles.tracks import register, unregister
from tests.support.fake_track import Fakes


@pytest.fixture
def fakes() -> Iterator[Fakes]:
    """The track of fakes, which is registered for this test."""
    track = Fakes()
    register(track)
    yield track
    unregister(track)
