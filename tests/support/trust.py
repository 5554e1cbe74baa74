"""For tests that grade folders on any machine."""

import pytest

from puzzles.cli.grade import grade
from puzzles.sandbox.client import protection


@pytest.fixture
def trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets `puzzles grade` take a folder without being asked to trust it, where there is no sandbox."""
    if not protection().guards_files:
        (trust,) = (option for option in grade.params if option.name == "trust")
        monkeypatch.setattr(trust, "default", True)
