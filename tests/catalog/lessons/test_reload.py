"""No puzzle but the classics is solved by loading weights again for each use, which reads the peak in steady state."""

from __future__ import annotations

import pytest

from puzzles.catalog.schedule import PUZZLES
from tests.catalog.lessons.families.load_again import load_again
from tests.catalog.lessons.judged import MODERN, judged, missed
from tests.support.solved import reference_of


@pytest.mark.sampled(6)
@pytest.mark.parametrize("slug", MODERN)
def test_a_reference_that_loads_again_does_not_pass(slug: str) -> None:
    report = judged(load_again(reference_of(slug)), PUZZLES[slug].goal)
    assert report.status == "over_target"
    assert missed(report) == {"steady"}
