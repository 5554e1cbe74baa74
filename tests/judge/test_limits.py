"""What decides about a figure is one limit: in the rules, in the text of a verdict and in its JSON."""

from __future__ import annotations

import re
from decimal import ROUND_DOWN, Decimal
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lib import Goal, Size
from puzzles.judge.verdict import Verdict
from puzzles.tracks import ALL, track_of

PAGE = (Path(__file__).parents[2] / "docs" / "teaching.md").read_text(encoding="utf-8")


def cut(number: float, to: str) -> Decimal:
    """A number without the digits beyond a precision, such as 0.1."""
    return Decimal(str(number)).quantize(Decimal(to), ROUND_DOWN)


@given(
    time=st.integers(1, 300) | st.integers(1, 3000).map(lambda tenths: tenths / 10),
    steps=st.integers(0, 30_000).map(lambda hundredths: hundredths / 100),
    near=st.integers(-150, 150),
)
@example(time=33, steps=33.9, near=0)
@example(time=5.5, steps=5.6, near=0)
def test_a_time_decides_at_the_precision_in_which_it_is_stated(time: float, steps: float, near: int) -> None:
    goal = Goal("relay", Size(1, 1, 1), time, 100_000)
    shown = Decimal(goal.time_text.removeprefix("< "))
    for taken in (steps, max(0, round(time + near / 100, 2))):
        meets = cut(taken, "1" if isinstance(time, int) else "0.1") <= Decimal(str(time))
        assert (goal.meets_time(taken), Decimal(str(taken)) < shown) == (meets, meets)


@given(memory=st.integers(1, 10**7), elements=st.integers(0, 10**7))
@example(memory=4_100_000, elements=4_194_304)
@example(memory=4_100_000, elements=4_200_000)
def test_memory_decides_in_hundreds_of_thousands(memory: int, elements: int) -> None:
    goal = Goal("relay", Size(1, 1, 1), 1, memory)
    assert goal.meets_memory(elements) == (elements // 100_000 <= memory // 100_000)


def _number(text: str) -> float:
    """The number in '< 4.2M', '< 6' or '12,288'."""
    found = re.fullmatch(r"(?:< )?([\d.,]+)(M?)(?: for the third star)?", text)
    assert found, text
    return round(float(found[1].replace(",", "")) * (1_000_000 if found[2] else 1), 6)


@pytest.mark.sampled(24)
@pytest.mark.parametrize("slug", ALL)
def test_text_and_json_of_a_verdict_say_the_same_limits(slug: str) -> None:
    track = track_of(slug)
    puzzle = track.puzzle(slug)
    row = Verdict(slug, track.name, "not_attempted", track.words.targets(puzzle)).as_json()
    limits = row["limits"]
    assert limits, "something decides"
    for number, (name, rule) in enumerate(limits.items()):
        ((kind, limit),) = rule.items()
        for value in (limit - 1, limit - 0.01, limit, limit + 0.01, limit + 1):
            measure = track.words.measures(puzzle, {name: value})[number]
            assert measure.value == value
            assert measure.met == {"below": value < limit, "at_most": value <= limit}[kind]
            assert _number(measure.target_text) == limit
    assert len(limits) == len(track.words.measures(puzzle, {}))


def test_every_key_of_the_json_is_documented() -> None:
    described = re.findall(r"^\| (.+?) \|", PAGE.partition("## Results for programs")[2].partition("\n## ")[0], re.M)
    known = {name for cell in described for name in re.findall(r"`(\w+)`", cell)}
    rows = [Verdict(slug, track_of(slug).name, "failed", {}).as_json(why=True) for slug in ALL]
    assert {key for row in rows for key in row} == known
