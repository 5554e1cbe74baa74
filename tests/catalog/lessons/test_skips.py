"""A lesson that can be skipped is not taught: solutions without a puzzle's idea miss its targets, as tables say.

A skip that is an edit of the reference is a file in `tests/catalog/wrong`. Those in the tables are members of families:
one program with parameters (`grid(4, order=gpipe)`, `replicas("3")`), or the reference of another puzzle. As files, one
program would stand there some 300 times.
"""

from __future__ import annotations

import pytest

from puzzles.catalog.schedule import PUZZLES
from puzzles.custom.clone import wrong_solutions
from tests.catalog.lessons.judged import judged, missed
from tests.catalog.lessons.tables.every import SKIPS
from tests.catalog.lessons.tables.unstopped import UNSTOPPED

CASES = [pytest.param(slug, name, id=f"{slug}: {name}") for slug in SKIPS for name in SKIPS[slug]]


@pytest.mark.sampled(5)
@pytest.mark.parametrize(("slug", "name"), CASES)
def test_a_skip_misses_what_its_table_says(slug: str, name: str) -> None:
    schedule, expected = SKIPS[slug][name]
    report = judged(schedule, PUZZLES[slug].goal)
    assert missed(report) == expected
    assert report.stars == (2 if report.status == "passed" else 1)


@pytest.mark.parametrize("slug", [*UNSTOPPED])
def test_what_the_targets_allow_has_three_stars(slug: str) -> None:
    for schedule, expected in UNSTOPPED[slug].values():
        assert missed(judged(schedule, PUZZLES[slug].goal)) == expected, "a target stops it: move it to SKIPS"


def test_a_puzzle_with_skips_has_three() -> None:
    assert set(SKIPS) <= set(PUZZLES)
    assert [slug for slug, skips in SKIPS.items() if len(skips) + len(wrong_solutions(slug)) < 3] == []
