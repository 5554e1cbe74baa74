"""Files of wrong solutions: each gets the status or reason that its first line says, as `puzzles check` asks."""

from __future__ import annotations

from pathlib import Path

import pytest

from puzzles.custom.clone import WRONG, expected_of
from puzzles.grading.grader import grade_file
from puzzles.tracks import SHIPPED, find

FILES = sorted(WRONG.glob("*/*.py"))


def test_each_folder_is_named_after_a_puzzle() -> None:
    assert {path.parent.name for path in FILES} <= SHIPPED


@pytest.mark.sampled(4)
@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_a_wrong_solution_gets_what_its_first_line_says(path: Path) -> None:
    (verdict,) = grade_file(str(path), [find(path.parent.name)]).verdicts
    assert expected_of(path) in (verdict.status, verdict.reason), verdict.message
    assert verdict.status not in ("passed", "not_attempted")
