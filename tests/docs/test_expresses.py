"""docs/expresses.md: it is written by its generator, and its schedules are as short, and as playable, as they say."""

from __future__ import annotations

import pytest

from docs.generate.expresses import FILE, lines_of, outcome, page
from docs.generate.short_schedules import SHORT, Short
from lib import Report

MOST_LINES = 25


def test_the_page_is_what_the_schedules_give() -> None:
    assert FILE.read_text(encoding="utf-8") == page()


@pytest.mark.parametrize("entry", SHORT, ids=lambda entry: entry.name)
def test_a_schedule_is_short_and_is_played_or_refused(entry: Short) -> None:
    assert isinstance(outcome(entry.name), Report) == entry.playable
    assert lines_of(entry) <= MOST_LINES


def test_names_are_unique() -> None:
    assert len({entry.name for entry in SHORT}) == len(SHORT)
