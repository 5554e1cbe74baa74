"""No forged class has a figure below what its recorded operations need, nor a second star."""

from __future__ import annotations

from pathlib import Path

import pytest

from puzzles.catalog.engine import ENGINE_PUZZLES
from puzzles.grading.grader import grade_puzzle
from puzzles.grading.session import Session
from puzzles.grading.submission import Submission
from puzzles.grading.verdict import Verdict

from .forged_classes import FORGERIES, solution


def graded(slug: str, source: str, secret: str = "") -> Verdict:
    with Session(Submission(Path("theirs.py"), source.encode())) as session:
        return grade_puzzle(ENGINE_PUZZLES[slug], session, secret=secret)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", FORGERIES)
def test_a_forgery_gains_no_figure(name: str) -> None:
    forgery = FORGERIES[name]
    verdict = graded(forgery.slug, forgery.source)
    figure = verdict.figures.get(forgery.figure)
    assert figure is None or figure >= forgery.honest, f"{name} has {figure} {forgery.figure}, not {forgery.honest}"
    assert verdict.stars <= 1, f"{name} has {verdict.stars} stars with {dict(verdict.figures)}"


def test_the_secret_is_drawn_anew_and_kept_in_the_verdict() -> None:
    one, other = (graded("DataParallel", solution("data_parallel")) for _ in range(2))
    assert len({one.secret, other.secret, ""}) == 3
    assert one.figures == other.figures, "of an honest class on any values"


def test_a_verdict_is_reproduced_by_its_secret() -> None:
    forgery = FORGERIES["bytes_from_public_seeds"]
    one = graded(forgery.slug, forgery.source)
    again, other = (graded(forgery.slug, forgery.source, secret) for secret in (one.secret, "another"))
    assert again.message == one.message
    assert (other.status, other.stars, other.figures) == (one.status, one.stars, one.figures)
