"""The commands next and path: from an empty folder along the core path, with what was solved anywhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from puzzles import play
from puzzles.catalog.path import CORE, PATH
from puzzles.judge import progress
from puzzles.tracks import ALL, TRACKS
from tests.support.commands import puzzles, said

pytestmark = pytest.mark.usefixtures("in_an_empty_folder")

SOLUTIONS = Path(__file__).parents[2] / "solutions"


def lines(*arguments: str) -> list[str]:
    result = puzzles(*arguments)
    assert result.exit_code == 0, result.output
    return result.output.splitlines()


def solve(*slugs: str) -> None:
    entries = progress.load()
    for turn, slug in enumerate(slugs, 1):
        entries[slug] = progress.PuzzleProgress(attempts=1, stars=2, turn=turn)
    progress.save(entries)


def test_next_adds_one_starter_after_another_to_one_file() -> None:
    page = said("next")
    assert page.startswith("basic: Standard training ")
    assert "Core 1 of 25." in page
    assert "'puzzles watch my_solutions.py'" in page
    assert "my_solutions.py" in said("next")
    solve("basic", "grad_accum", "ddp")
    assert said("next").startswith("DataParallel: ")
    text = Path("my_solutions.py").read_text()
    assert text.count("def basic(") == text.count("class DataParallel(") == 1
    assert progress.is_own_file("my_solutions.py")


def test_next_goes_on_in_the_latest_file_if_the_usual_one_was_renamed() -> None:
    said("next")
    Path("my_solutions.py").rename("renamed.py")
    progress.add_own_file("renamed.py")
    solve("basic")
    said("next")
    assert not Path("my_solutions.py").exists()
    assert "def grad_accum(" in Path("renamed.py").read_text()


def test_the_map_fits_a_screen_and_shows_what_is_done() -> None:
    for stars in (0, 3):
        progress.save({slug: progress.PuzzleProgress(bool(stars), stars) for slug in ALL})
        page = lines("path")
        assert len(page) < 24
        assert all(len(line) <= 80 for line in page)
        assert all(step.title in "\n".join(page) for step in PATH)
        assert all(slug in "\n".join(page).split() for slug in CORE)


def test_what_comes_before_a_solved_puzzle_counts_as_known() -> None:
    assert "0 of 25" in said("path")
    solve("gpipe")
    page = said("path")
    assert "5 of 25" in page
    assert "basic (known) grad_accum (known)" in page
    assert "gpipe ★★☆" in page
    assert "'puzzles show one_f_one_b'" in page


def test_a_play_in_a_notebook_or_a_script_counts() -> None:
    source = (SOLUTIONS / "basic.py").read_text(encoding="utf-8")
    names: dict[str, object] = {}
    exec(compile(source, "basic.py", "exec"), names)
    assert play("basic", names["basic"]).status == "passed"
    assert progress.load()["basic"].attempts == 1
    assert said("next").startswith("grad_accum: Gradient accumulation")


def test_at_the_end_of_the_path_next_goes_on_with_extra_puzzles_until_there_are_none() -> None:
    solve(*CORE)
    assert "25 of 25" in said("path")
    assert said("next").split(":")[0] in TRACKS["plan"].slugs
    solve(*ALL)
    assert "puzzles show" not in said("next")
