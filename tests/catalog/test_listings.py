"""All catalogs: each module holds the puzzle of its slug, and each publication is written once and cited."""

from __future__ import annotations

from pathlib import Path

import pytest

from lib.recognition import names
from puzzles.catalog import engine_papers, papers, schedule_papers
from puzzles.catalog.engine import ENGINE_PUZZLES
from puzzles.catalog.layout import LAYOUT_PUZZLES
from puzzles.catalog.paper import Paper
from puzzles.catalog.plan import PLAN_PUZZLES
from puzzles.catalog.puzzle import Puzzle
from puzzles.catalog.schedule import PUZZLES

CATALOG = Path(papers.__file__).parent
BY_MODULE = [
    [value for value in vars(module).values() if isinstance(value, Paper)] for module in (papers, engine_papers)
]
PAPERS = [paper for of_module in BY_MODULE for paper in of_module]
ALL: list[tuple[str, Puzzle]] = [
    *PUZZLES.items(),
    *ENGINE_PUZZLES.items(),
    *LAYOUT_PUZZLES.items(),
    *PLAN_PUZZLES.items(),
]


@pytest.mark.sampled(24)
@pytest.mark.parametrize(("slug", "puzzle"), ALL, ids=[slug for slug, _ in ALL])
def test_each_slug_leads_to_the_puzzle_of_that_slug(slug: str, puzzle: Puzzle) -> None:
    assert puzzle.slug == slug


def test_a_slug_that_is_not_there_is_a_key_error() -> None:
    for catalog in (PUZZLES, ENGINE_PUZZLES, LAYOUT_PUZZLES, PLAN_PUZZLES):
        assert "nobody" not in catalog
        with pytest.raises(KeyError):
            catalog["nobody"]


def test_every_publication_is_defined_once_and_cited() -> None:
    assert len({paper.title for paper in PAPERS}) == len(PAPERS)
    for of_module in BY_MODULE:
        assert [paper.year for paper in of_module] == sorted(paper.year for paper in of_module)
    assert not any(paper.note for paper in PAPERS)
    assert {source.cited_for("") for _, puzzle in ALL for source in puzzle.sources} == set(PAPERS)


def test_each_schedule_that_has_a_name_has_its_papers() -> None:
    without = {names.WEIGHT_SHARDED}  # a step of the classic puzzles on the way to ZeRO-3, which no paper named
    assert schedule_papers.PAPERS.keys() == {value for name, value in vars(names).items() if name.isupper()} - without


def test_authors_and_year_are_short() -> None:
    assert [papers.GPIPE.short, papers.PIPEDREAM.short] == ["Huang et al. 2019", "Narayanan et al. 2019"]
    assert [papers.LOCAL_SGD.short, papers.DEEPSEEK_V3.short] == ["Stich 2019", "DeepSeek-AI 2024"]
    assert papers.BREADTH_FIRST_PIPELINE.short == "Lamy-Poirier 2022"


def test_publications_are_written_nowhere_else() -> None:
    written = {path.name for path in CATALOG.rglob("*.py") if "= Paper(" in path.read_text(encoding="utf-8")}
    assert written == {"papers.py", "engine_papers.py", "schedule_papers.py"}
