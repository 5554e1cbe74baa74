"""Each known forgery of a class's figures: it is refused, or its figures are unknown, or what its recording needs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lib.engine import launch
from puzzles.catalog.engine import ENGINE_PUZZLES
from puzzles.grading.grader import grade_puzzle
from puzzles.grading.session import Session
from puzzles.grading.submission import Submission
from puzzles.sandbox.worker.repeat.functions import UnrepeatableError
from puzzles.sandbox.worker.repeat.repeated import Repeated
from tests.hostile.forged_classes import FORGERIES


@pytest.mark.parametrize("name", FORGERIES)
def test_a_forged_figure_makes_no_third_star(name: str) -> None:
    slug, source, figure, honest = FORGERIES[name]
    with Session(Submission(Path("theirs.py"), source.encode())) as session:
        found = grade_puzzle(ENGINE_PUZZLES[slug], session, secret="of this test")
    got = found.figures.get(figure)
    told = f"the forgery got {found.stars} stars and {figure} {got}, and needs {honest}: {found.message}"
    assert found.stars < 3, told
    assert got is None or got >= honest, told


def of_all(key: int) -> Any:
    return ("view", key, 0, [2], [8], "<f8")


def test_devices_share_nothing_that_they_are_lent() -> None:
    """The first keeps its input in the parameters, and the second would read it there; nothing is sent."""
    loads = [["hold", 1, 16], ["given", 2], ["do", "numpy", "ravel", [of_all(2)], {}, [1]]]
    stores = [["hold", 3, 16], ["given", 3], ["do", "ufunc", "add.__call__", [of_all(3), 0], {"out": of_all(1)}, []]]
    takes = [["hold", 3, 16], ["given", 3], ["do", "communication", "barrier", [], {}, []], ["return", of_all(1)]]
    recordings = [[[], loads, [*stores, takes[2]]], [[], loads, takes]]
    told = []

    def play() -> None:
        with launch(Repeated, 2, recordings=recordings) as run:
            run.load_checkpoint({"weights": np.zeros(2)})
            told.extend(run.forward([np.array([3.0, 4.0]), np.zeros(2)]))

    with pytest.raises(UnrepeatableError, match="read-only"):
        play()
    assert not told, f"the second device got {told[1]} for 0 of 16 bytes"
