"""`puzzles record` of a class: graded in the sandbox at every size, compared, filed with its source, and refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import puzzles.catalog.engine.chapter as chapter_module
import puzzles.leaderboard.take_over as solution_module
from puzzles.catalog.engine import ENGINE_PUZZLES, EnginePuzzle
from puzzles.catalog.engine.found import FOUND, with_found
from puzzles.catalog.found import INDEX, rows_of
from puzzles.commands.main import main
from puzzles.custom import folder_added
from puzzles.custom.writing import begin
from puzzles.grading.grader import grade_file
from puzzles.sandbox.tiers import IsolationTier
from puzzles.tracks import find, track_of

ROOT = Path(__file__).parents[2]
RECORD = ROOT / "solutions" / "engine" / "records" / "balance_loss.py"
FIGURES = {"sent": 6_144, "peak": 9_216, "weights": 0}


def record(*words: object) -> Result:
    return CliRunner().invoke(main, ["record", *map(str, words)])


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """A folder with the puzzle `total`, whose targets leave room for its reference."""
    folder = tmp_path / "week3"
    file, *_ = begin("total", "engine", folder)
    file.write_text(file.read_text() + "[targets]\nsent = 9_999\npeak = 9_216\nweights = 0\n")
    return folder


@pytest.fixture
def mine(own: Path, tmp_path: Path) -> Path:
    file = tmp_path / "mine.py"
    file.write_text((own / "solutions" / "total.py").read_text())
    return file


def require_refused(result: Result, folder: Path, *facts: str) -> None:
    assert result.exit_code == 1, result.output
    assert result.output.count("\n") == 1, "one sentence"
    for fact in facts:
        assert fact in result.output
    assert not (folder / "records").exists(), "nothing is filed"


@pytest.mark.slow
def test_a_class_becomes_a_record_and_decides_the_third_star(own: Path, mine: Path) -> None:
    done = record(mine, "total", "--name", "Ann", "--puzzles", own)
    assert done.exit_code == 0, done.output
    (row,) = rows_of(own / "records")
    assert {name: row[name] for name in FIGURES} == FIGURES
    filed = own / "records" / str(row["file"])
    assert (row["name"], filed.read_text()) == ("Ann", mine.read_text())
    worse = mine.with_name("worse.py")
    swap = "self.send(self.device_id ^ 1, x[:1])\n        self.receive(self.device_id ^ 1)\n        return "
    worse.write_text(mine.read_text().replace("return ", swap))
    with folder_added(own):
        stars = {file.name: grade_file(str(file), [find("total")]).verdicts[0].stars for file in (filed, worse)}
    assert stars == {filed.name: 3, "worse.py": 2}
    again = record(mine, "total", "--name", "Ben", "--puzzles", own)
    assert again.exit_code == 1
    assert "a known record is as good: 6,144 bytes sent" in again.output
    assert rows_of(own / "records") == [row]


def test_what_meets_only_the_targets_is_no_record(own: Path, mine: Path) -> None:
    file = own / "total.toml"
    file.write_text(file.read_text().replace("9_999", "6_144"))
    require_refused(record(mine, "total", "--name", "Ann", "--puzzles", own), own, "as good", "6,144 bytes sent")


@pytest.mark.parametrize(
    ("change", "facts"),
    [
        (("self.reduce_scatter(x)", "self.reduce_scatter(x) + 1"), ("does not pass total",)),
        (("self.all_gather(self.reduce_scatter(x))", "self.all_reduce(x)"), ("does not pass total", "all_reduce")),
        (
            ("return ", "assert self.num_devices == 4\n        return "),
            ("does not pass total", "only at the shown size"),
        ),
        (("class total", "class other"), ("it has no total",)),
    ],
)
def test_a_class_that_does_not_pass_at_every_size(
    own: Path, mine: Path, change: tuple[str, str], facts: tuple[str, ...]
) -> None:
    changed = mine.read_text().replace(*change)
    assert changed != mine.read_text()
    mine.write_text(changed)
    require_refused(record(mine, "total", "--name", "Ann", "--puzzles", own), own, *facts)


def test_a_class_is_not_taken_over_without_a_sandbox(own: Path, mine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        solution_module, "select_tier", lambda: IsolationTier("process", "this system cannot fork", forks=False)
    )
    refused = record(mine, "total", "--name", "Ann", "--puzzles", own)
    require_refused(refused, own, "sandbox", "this system cannot fork", "puzzles doctor")


def test_nothing_is_overwritten(own: Path, mine: Path) -> None:
    assert record(mine, "total", "--name", "Ann", "--puzzles", own).exit_code == 0
    (filed,) = (own / "records").glob("*.py")
    index = own / "records" / INDEX
    for left, fact in (("[]", filed.name), ("[{]", "repair it")):
        index.write_text(left)
        if fact == "repair it":
            filed.unlink()
        refused = record(mine, "total", "--name", "Ann", "--puzzles", own)
        assert (refused.exit_code, refused.output.count("\n"), index.read_text()) == (1, 1, left)
        assert fact in refused.output


@pytest.mark.parametrize(
    ("words", "facts"),
    [
        (("total",), ("--name",)),
        (("total", "--name", "two\nlines"), ("name", "one line")),
        (("--name", "Ann"), ("no puzzle 'mine'",)),
        (("matmul", "--name", "Ann"), ("layout has no records", "proven")),
    ],
)
def test_words_that_are_missing_or_wrong(own: Path, mine: Path, words: tuple[str, ...], facts: tuple[str, ...]) -> None:
    require_refused(record(mine, *words, "--puzzles", own), own, *facts)


def test_a_class_in_a_notebook_or_words_with_an_entry(own: Path, mine: Path) -> None:
    notebook, entry = mine.with_suffix(".ipynb"), mine.with_suffix(".json")
    notebook.write_text(json.dumps({"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}))
    entry.write_text("{}")
    require_refused(record(notebook, "total", "--name", "Ann", "--puzzles", own), own, "class", ".py")
    require_refused(record(entry, "total", "--puzzles", own), own, "leave out SLUG and --name")


@pytest.mark.slow
def test_a_record_of_a_shipped_class_is_filed_with_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if nobody had beaten the reference before."""
    found = tmp_path / "found"
    monkeypatch.setattr(track_of("BalanceLoss"), "found_folder", found)
    monkeypatch.setattr(chapter_module, "FOUND", found)
    monkeypatch.setattr("puzzles.tracks.engine.score.RECORDS", {})
    done = record(RECORD, "BalanceLoss", "--name", "Ann")
    assert done.exit_code == 0, done.output
    (row,) = rows_of(found)
    assert ENGINE_PUZZLES["BalanceLoss"].records == ({"sent": row["sent"], "collectives": row["collectives"]},)
    assert ENGINE_PUZZLES["FSDP"].records == ()


def test_rows_without_all_figures_are_no_records(tmp_path: Path) -> None:
    puzzle = ENGINE_PUZZLES["BalanceLoss"]
    (tmp_path / INDEX).write_text(json.dumps([{"puzzle": "BalanceLoss", "sent": 1}]))
    assert with_found(puzzle, tmp_path) is puzzle


def found_rows() -> list[tuple[EnginePuzzle, dict[str, object]]]:
    return [(ENGINE_PUZZLES[str(row["puzzle"])], dict(row)) for row in rows_of(FOUND)]


def test_every_found_class_of_the_game_is_what_its_source_reaches() -> None:
    """Those that `puzzles record` has filed; they run in the sandbox only."""
    files = {path.name for path in FOUND.iterdir()} - {INDEX} if FOUND.exists() else set()
    assert files == {str(row["file"]) for _, row in found_rows()}
    for puzzle, row in found_rows():
        (verdict,) = grade_file(str(FOUND / str(row["file"])), [puzzle], strict=True).verdicts
        assert (verdict.status, verdict.figures) == ("passed", {name: row[name] for name in puzzle.targets})
