"""A puzzle needs no hidden trick: its reference passes where each microbatch is taken from the model once, and kept."""

from __future__ import annotations

import pytest

from puzzles.catalog.schedule import PUZZLES
from tests.catalog.lessons.families.input_once import input_once
from tests.catalog.lessons.judged import judged
from tests.support.solved import reference_of

USES_TRICK = {
    *("checkpoint", "offload", "sequence_parallel", "fsdp_prefetch"),
    *("fsdp_bound", "axis_inside", "park_or_recompute", "weight_versions"),
}
"""Puzzles whose targets need the model's input to be taken again."""


@pytest.mark.sampled(4)
@pytest.mark.parametrize("slug", [*PUZZLES])
def test_the_reference_passes_if_the_input_is_taken_once(slug: str) -> None:
    assert judged(reference_of(slug), PUZZLES[slug].goal).status == "passed"
    once = judged(input_once(reference_of(slug)), PUZZLES[slug].goal)
    assert once.status == ("over_target" if slug in USES_TRICK else "passed")


@pytest.mark.parametrize("slug", sorted(USES_TRICK))
def test_a_statement_says_that_the_input_can_be_taken_again(slug: str) -> None:
    assert "`get_activation` returns it again" in " ".join(PUZZLES[slug].statement.split())
