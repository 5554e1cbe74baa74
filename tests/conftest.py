"""No test touches the progress of whoever runs the tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from puzzles.progress import HOME


@pytest.fixture(autouse=True)
def home_of_its_own(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path_factory.mktemp("home")
    monkeypatch.setenv(HOME, str(home))
    return home
