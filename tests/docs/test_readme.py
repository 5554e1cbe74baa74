"""README.md and the pages that it begins: their code prints what they show; pictures and docs/papers.md are new."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest

from docs.generate import gallery, papers
from drawing import svg
from lib import PuzzleError, run
from puzzles.catalog.schedule import PUZZLES
from puzzles.tracks import TRACKS
from tests.support.commands import puzzles

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PLAY = (ROOT / "docs" / "play.md").read_text(encoding="utf-8")
NOTEBOOKS = (ROOT / "docs" / "notebooks.md").read_text(encoding="utf-8")
PAGES = README + NOTEBOOKS + (ROOT / "docs" / "tensors.md").read_text(encoding="utf-8")
"""The pages whose code runs in one namespace, in this order; PLAY comes last."""


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGES + PLAY, re.MULTILINE | re.DOTALL)


def lines(block: str) -> Iterator[str]:
    return (line for line in block.splitlines() if line)


def test_the_python_runs_and_prints_what_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, object] = {}
    for code in blocks("python"):
        exec(compile(code, "a page", "exec"), names)
    printed = capsys.readouterr().out
    _, *outputs = blocks("text")
    assert printed == "".join(outputs)


def test_the_message_of_the_forgotten_allreduce_is_the_one_shown() -> None:
    code = "\n".join(line for line in blocks("python")[0].splitlines() if "model.allreduce" not in line)
    names: dict[str, object] = {}
    exec(code, names)
    error = run(names["ddp"], 2, 4, 4).error  # type: ignore[arg-type]
    assert isinstance(error, PuzzleError)
    assert str(error) == blocks("text")[0].strip()


def test_the_commands_work_in_the_order_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a folder without `solutions/`, which `--against` finds where the game is installed. The reader has written
    `my_schedule`."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("webbrowser.open", lambda address: True)
    for line in lines("".join(blocks("console"))):
        words = shlex.split(line.removeprefix("$ puzzles "), comments=True)
        if "my_schedule" in words:
            pipeline = (ROOT / "solutions" / "gpipe.py").read_text(encoding="utf-8")
            (tmp_path / "mine.py").write_text(pipeline.replace("def gpipe", "def my_schedule"), encoding="utf-8")
        result = puzzles(*words)
        unsolved = words[0] in ("grade", "draw")
        assert result.exit_code == (1 if unsolved else 0), f"{line}: {result.output}"
    assert (tmp_path / "mine.py").exists()


def test_the_table_of_puzzles_is_that_of_the_catalog() -> None:
    rows = re.findall(
        r"^\| (\d+) \| (?:\w+ \| )?`(\w+)` \| .* \| (\d+), (\d+), (\d+) \| (< [\d.,]+)(?: us)? \| (< [\d.]+M) "
        r"\| (< [\d.]+M|-) \|$",
        PLAY,
        re.MULTILINE,
    )
    shown = [(int(n), slug, *map(int, row[:3]), *row[3:]) for n, slug, *row in rows]
    goals = [(PUZZLES.number(p.slug), p.slug, p.goal) for p in PUZZLES.values()]
    limits = [(goal.time_text, goal.memory_text, goal.traffic_text or "-") for _, _, goal in goals]
    assert shown == [(n, slug, *goal.size, *texts) for (n, slug, goal), texts in zip(goals, limits, strict=True)]


def test_the_first_pictures_are_what_is_drawn_today() -> None:
    for name, picture in islice(gallery.pictures(), 4):
        assert (gallery.FOLDER / f"{name}.svg").read_text(encoding="utf-8") == svg(picture), "out of date: make docs"


@pytest.mark.slow
def test_the_pictures_are_what_is_drawn_today() -> None:
    drawn = {f"{name}.svg": svg(picture) for name, picture in gallery.pictures()}
    shown = {path.name: path.read_text(encoding="utf-8") for path in gallery.FOLDER.iterdir()}
    del shown["profile.svg"]  # which the test of docs/profile.md draws
    assert sorted(shown) == sorted(drawn), "a picture is missing or left over: make docs"
    assert [name for name in drawn if shown[name] != drawn[name]] == [], "out of date: make docs"


def test_every_paper_that_a_puzzle_names_is_listed() -> None:
    assert papers.FILE.read_text(encoding="utf-8") == papers.page(), "out of date: make docs"


def test_the_readme_has_the_right_number_of_puzzles_per_track() -> None:
    said = re.findall(r"^\| .*?, (\d+) puzzles \|", README, re.MULTILINE)
    assert list(map(int, said)) == [len(track.slugs) for track in TRACKS.values()]


def test_every_picture_is_shown() -> None:
    page = "".join((ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8") for name in ("pictures", "field"))
    assert sorted(set(re.findall(r"\(pictures/(.*?)\)", page))) == sorted(
        path.name for path in gallery.FOLDER.iterdir()
    )
    for path in re.findall(r"\]\((docs/[^)]*)\)", README):
        assert (ROOT / path).exists(), path
