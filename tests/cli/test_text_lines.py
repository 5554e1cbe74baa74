"""Markdown in a terminal: random texts keep every word, their structure as lines, and the width."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from puzzles.judge.starters import starter_file
from puzzles.screens.html import text_html
from puzzles.text_lines import text_lines
from puzzles.tracks import ALL, track_of

WORDS = st.lists(st.sampled_from(["gradient", "rank", "`a b`", "x = 1", "waits", "sum"]), min_size=1, max_size=12)
TEXT = WORDS.map(" ".join)
ITEMS = st.lists(TEXT, min_size=1, max_size=4)
ROWS = st.lists(st.tuples(TEXT, TEXT), min_size=1, max_size=3)


def words(text: str) -> list[str]:
    return re.findall(r"\w+", text)


@given(ITEMS, st.sampled_from(["- ", "1. "]), st.integers(30, 90))
def test_every_item_of_a_list_begins_a_line(items: list[str], mark: str, width: int) -> None:
    shown = text_lines("".join(f"{mark}{item}\n" for item in items), width)
    marks = [f"{number}. " if mark == "1. " else mark for number in range(1, len(items) + 1)]
    begun = [line for line in shown if not line.startswith(" ")]
    assert [line[: len(mark)] for mark, line in zip(marks, begun, strict=True)] == marks
    assert words(" ".join(line[len(mark) :] for line in shown)) == words(" ".join(items))
    assert all(len(line) <= width for line in shown)


@given(ROWS, st.integers(40, 90))
def test_a_table_has_its_cells_in_columns(rows: list[tuple[str, str]], width: int) -> None:
    shown = text_lines("| first | second |\n|:--|--:|\n" + "".join(f"| {a} | {b} |\n" for a, b in rows), width)
    assert words(shown[0]) == ["first", "second"]
    assert set(shown[1]) == {"─"}
    assert all(len(line) <= width for line in shown)
    assert sorted(words(" ".join(shown[2:]))) == sorted(words(" ".join(cell for row in rows for cell in row)))
    assert "|" not in "".join(shown)


def test_blocks_within_blocks() -> None:
    text = "Do:\n\n- one\n  1. a\n  2. b\n- two\n\n3. third\n\n   more\n4. fourth\n\n> said\n\n    code  x\n\n# Head\n"
    assert text_lines(text, 40) == [
        "Do:", "", "- one", "  1. a", "  2. b", "- two", "", "3. third", "", "   more", "", "4. fourth", "",
        "> said", "", "    code  x", "", "Head",
    ]  # fmt: skip


@pytest.mark.slow
def test_no_puzzle_loses_a_word() -> None:
    for slug, track in ALL.items():
        puzzle = track.puzzle(slug)
        for text in (puzzle.statement, puzzle.concept, *puzzle.hints[-1:]):
            assert words(" ".join(text_lines(text, 80))) == words(text), slug
        assert len([line for line in text_lines(puzzle.statement, 80) if len(line) > 80 and line[0] != " "]) == 0


def test_a_starter_keeps_the_structure() -> None:
    puzzle = track_of("GShardTop2").puzzle("GShardTop2")
    source = starter_file([puzzle], "mine.py")
    assert re.findall(r"^# (\d)\. ", source, re.MULTILINE) == ["1", "2", "3", "4"]


def test_pages_have_tables_too() -> None:
    assert "<td>1</td>" in text_html("| a |\n|---|\n| 1 |\n")
