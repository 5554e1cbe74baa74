"""A lesson that can be skipped is not taught: solutions without a puzzle's idea miss its targets, as tables say."""

from __future__ import annotations

import pytest

from puzzles.catalog.schedule import PUZZLES
from tests.catalog.lessons.judged import judged, missed
from tests.catalog.lessons.pending import READY
from tests.catalog.lessons.tables.every import SKIPS

CASES = [pytest.param(slug, name, id=f"{slug}: {name}") for slug in READY for name in SKIPS[slug]]


@pytest.mark.parametrize(("slug", "name"), CASES)
def test_a_skip_misses_what_its_table_says(slug: str, name: str) -> None:
    schedule, expected = SKIPS[slug][name]
    report = judged(schedule, PUZZLES[slug].goal)
    assert missed(report) == expected
    assert report.stars == (2 if report.status == "passed" else 1)


def test_every_puzzle_has_at_least_three_skips() -> None:
    assert {slug: len(SKIPS.get(slug, ())) for slug in PUZZLES if len(SKIPS.get(slug, ())) < 3} == {}
    assert set(SKIPS) == set(PUZZLES)
