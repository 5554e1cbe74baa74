"""README.md and the pages that it begins: their code prints what they show; pictures and lists are new."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest

from docs.generate import gallery, listings, screens
from drawing import svg
from lib import PuzzleError, run
from puzzles.tracks import SHIPPED
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


@pytest.mark.parametrize("file", listings.PAGES, ids=lambda file: file.name)
def test_a_page_lists_the_puzzles_of_today(file: Path) -> None:
    assert file.read_text(encoding="utf-8") == listings.PAGES[file](), "out of date: make docs"


def test_every_view_of_the_map_has_every_puzzle_once_and_every_link_leads_to_its_file() -> None:
    _, *views = listings.MAP.read_text(encoding="utf-8").split("\n## ")
    assert len(views) == 3
    for view in views:
        links = re.findall(r"\[(\w+)\]\(\.\./([\w/]+\.toml)\)", view)
        assert sorted(slug for slug, _ in links) == sorted(SHIPPED)
        assert all((ROOT / path).is_file() and Path(path).stem == slug for slug, path in links)


def test_the_first_pictures_are_what_is_drawn_today() -> None:
    for name, picture in islice(gallery.pictures(), 4):
        assert (gallery.FOLDER / f"{name}.svg").read_text(encoding="utf-8") == svg(picture), "out of date: make docs"


@pytest.mark.slow
def test_the_pictures_are_what_is_drawn_today() -> None:
    drawn = {f"{name}.svg": svg(picture) for name, picture in gallery.pictures()}
    shown = {path.name: path.read_text(encoding="utf-8") for path in gallery.FOLDER.iterdir()}
    for name in ("profile", *(f"screen_{name}" for name in screens.SHOWN)):  # which other tests draw
        del shown[f"{name}.svg"]
    assert sorted(shown) == sorted(drawn), "a picture is missing or left over: make docs"
    assert [name for name in drawn if shown[name] != drawn[name]] == [], "out of date: make docs"


def test_every_picture_is_shown() -> None:
    page = "".join((ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8") for name in ("pictures", "field"))
    assert sorted(set(re.findall(r"\((?:docs/)?pictures/(.*?)\)", page + README))) == sorted(
        path.name for path in gallery.FOLDER.iterdir()
    )
    for path in re.findall(r"\]\((docs/[^)]*)\)", README):
        assert (ROOT / path).exists(), path
