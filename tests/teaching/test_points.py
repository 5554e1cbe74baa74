"""Points of puzzles: of several names that mean a puzzle the most specific counts, in any order."""

from __future__ import annotations

import re
from itertools import permutations
from pathlib import Path

import pytest

from puzzles.custom import folder_added
from puzzles.teaching.course_file import points_from
from puzzles.teaching.roster import CourseError
from puzzles.tracks import ALL, UnknownPuzzleError, find_group, find_several
from tests.support.relay import TRACKS, finished_folder


def test_the_most_specific_name_counts_in_any_order(tmp_path: Path) -> None:
    pairs = {"relay_engine": 1, "week3-engine": 2, "week3": 3, "engine": 4, "schedule:fsdp": 5, "classics": 6,
             "schedule": 7}  # fmt: skip
    wanted = {"relay_engine": 1, "relay_layout": 3, "relay_schedule": 3, "FSDP": 4, "fsdp": 5, "ddp": 6, "gpipe": 6,
              "zb_v": 7, "ffn": 1}  # fmt: skip
    with folder_added(finished_folder(tmp_path / "week3")):
        for number, order in enumerate(permutations(pairs.items())):
            if number % 97 == 0:  # 52 of 5,040
                points = points_from(dict(order), "")
                assert {slug: points[slug] for slug in wanted} == wanted, order
        assert points_from({"relay_engine": 1, "week3-engine": 2}, "")["relay_engine"] == 1, "a chapter of one puzzle"


@pytest.mark.parametrize("names", [("fsdp", "schedule:fsdp"), ("fsdp", "7"), ("data", "DATA"), ("engine", "Engine")])
def test_contradictions_are_refused(names: tuple[str, str]) -> None:
    for first, second in (names, names[::-1]):
        with pytest.raises(CourseError) as refused:
            points_from({first: 1, second: 2}, "")
        assert {first, second} <= {*re.findall(r"[\w:]+", str(refused.value))}
    assert points_from(dict.fromkeys(names, 2), "")[find_several(names[0])[0]] == 2, "the same twice is none"


def test_a_folder_with_several_tracks_has_a_name_for_all(tmp_path: Path) -> None:
    both, one = tmp_path / "Week3", tmp_path / "b" / "week4"
    finished_folder(both)
    finished_folder(one)
    for path in one.glob("*.toml"):
        if path.stem == "relay_engine":
            path.rename(one / "other.toml")
            text = (one / "other.toml").read_text().replace("relay_engine", "other")
            (one / "other.toml").write_text(text.replace("trials/other", "trials/relay_engine"))
        else:
            path.unlink()
    with folder_added(both), folder_added(one):
        slugs = {f"relay_{track}" for track in TRACKS}
        assert set(find_several("week3")) == set(find_several("WEEK3")) == slugs
        assert find_several("week3-engine") == ("relay_engine",)
        assert find_several("week4") == ("other",)
        assert find_group("") is None
        assert set(find_several("engine")) > {"relay_engine", "other"}
    with pytest.raises(UnknownPuzzleError):
        find_several("week3")
    assert not slugs & set(ALL)
