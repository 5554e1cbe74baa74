"""All listings: each slug leads to its puzzle, and each publication is written once and cited."""

from __future__ import annotations

import re

import pytest

from lib.pipelines.rank_work import Names
from puzzles.catalog import schedule_papers
from puzzles.catalog.engine import ENGINE_PUZZLES
from puzzles.catalog.layout import LAYOUT_PUZZLES
from puzzles.catalog.plan import PLAN_PUZZLES
from puzzles.catalog.puzzle import Paper, Puzzle, papers
from puzzles.catalog.schedule import PUZZLES

ALL: list[tuple[str, Puzzle]] = [
    *PUZZLES.items(),
    *ENGINE_PUZZLES.items(),
    *LAYOUT_PUZZLES.items(),
    *PLAN_PUZZLES.items(),
]


@pytest.mark.parametrize("puzzle", dict(ALL).values(), ids=dict(ALL))
def test_the_words_are_all_there_and_hints_grow_more_explicit(puzzle: Puzzle) -> None:
    texts = (puzzle.title, puzzle.statement, puzzle.concept, puzzle.in_practice, puzzle.credit, *puzzle.hints)
    assert all(text.strip() for text in texts)
    first, *_, last = puzzle.hints
    assert len(puzzle.hints) >= 3
    assert len(first) < len(last) or puzzle.slug not in PUZZLES
    assert "`" in last
    years = {source.year for source in puzzle.sources}
    assert years
    assert all(
        str(source).startswith(f"{source.authors} ({source.year}). {source.title}.") for source in puzzle.sources
    )
    assert {int(year) for year in re.findall(r"\b(?:19\d\d|20[0-2]\d)\b", puzzle.concept + puzzle.in_practice)} <= years


def test_a_slug_that_is_not_there_is_a_key_error() -> None:
    for catalog in (PUZZLES, ENGINE_PUZZLES, LAYOUT_PUZZLES, PLAN_PUZZLES):
        assert "nobody" not in catalog
        with pytest.raises(KeyError):
            catalog["nobody"]


def test_every_publication_is_cited_and_listed_by_year() -> None:
    listed = list(papers().values())
    assert len({paper.title for paper in listed}) == len(listed)
    assert [paper.year for paper in listed] == sorted(paper.year for paper in listed)
    cited = {source.cited_for("") for _, puzzle in ALL for source in puzzle.sources if isinstance(source, Paper)}
    by_schedules = {papers()[name] for names in schedule_papers.PAPERS.values() for name in names}
    assert cited | by_schedules == set(listed)


def test_each_schedule_that_has_a_name_has_its_papers() -> None:
    without = {Names.WEIGHT_SHARDED}  # a step of the classic puzzles on the way to ZeRO-3, which no paper named
    assert schedule_papers.PAPERS.keys() == {value for name, value in vars(Names).items() if name.isupper()} - without


def test_authors_and_year_are_short() -> None:
    short = {name: papers()[name].short for name in ("GPIPE", "PIPEDREAM", "LOCAL_SGD", "DEEPSEEK_V3")}
    assert [short["GPIPE"], short["PIPEDREAM"]] == ["Huang et al. 2019", "Narayanan et al. 2019"]
    assert [short["LOCAL_SGD"], short["DEEPSEEK_V3"]] == ["Stich 2019", "DeepSeek-AI 2024"]
    assert papers()["BREADTH_FIRST_PIPELINE"].short == "Lamy-Poirier 2022"
