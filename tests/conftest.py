"""No test touches the progress of whoever runs the tests, and no module leaves a keeper to the next."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from puzzles.grading.progress import HOME


@pytest.fixture(autouse=True)
def home_of_its_own(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path_factory.mktemp("home")
    monkeypatch.setenv(HOME, str(home))
    return home


@pytest.fixture(scope="module", autouse=True)
def keeper_of_its_own() -> Iterator[None]:
    yield
    trials = sys.modules.get("tests.support.engine_trials")
    if trials is not None:
        trials.keeper().close()
