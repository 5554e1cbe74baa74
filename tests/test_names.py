"""A class name stands for one thing, so that a file, a traceback or a page never shows two classes by one name."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

DOUBLE = {
    "Bound": "the least of a figure of any schedule; the least time and memory of a split in the planner",
    "Candidate": "a way to distribute an operator, public; a schedule that the solver tries",
    "Cell": "a microbatch in a stage, as recognition reads it from a trace; as a timetable writes it",
    "Judge": "one of the three objects of a track, in each track",
    "Message": "sent between ranks in a run; sent between cells of a timetable",
    "Pipeline": "read from and written to CSV, public; as recognition reads it from a trace",
    "Prices": "the least ticks of operations, for bounds; the cost of a split, for the planner",
    "References": "what files state of references: what a track has to say, and what the schedule track says",
    "Row": "values of one kind in the text on a peak; a rank's step, as recognition reads it",
    "Search": "the planner's result, public; the solver's result, public",
    "Show": "one of the three objects of a track, in each track",
    "Step": "a step of a redistribution, public; an operation in the solver's order",
    "Words": "one of the three objects of a track, in each track",
    "_Rank": "private: a rank with its actions; a rank of a planned step; a rank of a played timetable",
}
"""Names of several classes that never meet, each with what they are."""


def places_of(root: Path) -> dict[str, list[str]]:
    """By class name: the file and line of each definition."""
    found: dict[str, list[str]] = defaultdict(list)
    for package in ("lib", "drawing", "puzzles"):
        for path in sorted((root / package).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.ClassDef):
                    found[node.name].append(f"{path.relative_to(root)}:{node.lineno}")
    return found


def mistakes(places: dict[str, list[str]], listed: dict[str, str]) -> list[str]:
    """What differs between the names that are double and those that may be."""
    double = {name: where for name, where in places.items() if len(where) > 1}
    return [
        *(f"{name} is {', '.join(where)}; rename one" for name, where in double.items() if name not in listed),
        *(f"{name} is no longer double; take it off the list" for name in listed if name not in double),
        *(f"{name} is listed without a reason" for name, reason in listed.items() if not reason),
    ]


@pytest.mark.slow
def test_no_class_name_stands_for_two_things_that_can_meet() -> None:
    assert mistakes(places_of(ROOT), DOUBLE) == []


def test_a_new_double_name_and_an_old_entry_are_found(tmp_path: Path) -> None:
    for package in ("lib", "drawing"):
        (tmp_path / package).mkdir()
        (tmp_path / package / "one.py").write_text("class Same:\n    class Inner: pass\n")
    (tmp_path / "drawing" / "one.py").write_text("class Same: pass\n")
    found = places_of(tmp_path)
    (same,) = mistakes(found, {})
    assert same.startswith("Same is lib/one.py:1, drawing/one.py:1;")
    (inner,) = mistakes(found, {"Same": "two files", "Inner": "once"})
    assert inner.startswith("Inner is no longer")
    (unexplained,) = mistakes(found, {"Same": ""})
    assert unexplained.startswith("Same is listed without")
