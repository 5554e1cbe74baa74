"""The core path is played from an empty folder with `next` and `watch` only, in a terminal of 80 x 24."""

from __future__ import annotations

import ast
import io
from pathlib import Path

import pytest
from rich.console import Console

from puzzles.catalog.path import CORE
from puzzles.cli.watch import WatchState
from puzzles.judge import progress
from puzzles.sandbox.limits import Limits
from puzzles.tracks import reference_file, track_of
from tests.support.commands import puzzles

pytestmark = pytest.mark.usefixtures("in_an_empty_folder", "in_this_process")

COLUMNS, ROWS = 80, 24
FILE = Path("my_solutions.py")
CLEAR = "\x1b[2J\x1b[H"


class Player:
    """A player who types what the screens say, and knows the references."""

    def __init__(self) -> None:
        self.screen = io.StringIO()
        console = Console(
            file=self.screen, width=COLUMNS, height=ROWS, highlight=False, markup=False, force_terminal=True,
            color_system=None,
        )  # fmt: skip
        self.game = WatchState(str(FILE), Limits(), console)
        self.game.begin()

    def shown(self) -> list[str]:
        """The last screen."""
        text = self.screen.getvalue().rpartition(CLEAR)[2] or self.screen.getvalue()
        self.screen.seek(0)
        self.screen.truncate()
        return text.splitlines()

    def press(self, key: str) -> list[str]:
        self.game.handle(key)
        return self.shown()

    def solve(self, slug: str) -> list[str]:
        """Writes the reference in place of the starter's definition, below the imports that the file has."""
        starter, source = track_of(slug).puzzle(slug).starter, reference_file(slug)
        assert source is not None
        text, file = source.read_text(encoding="utf-8"), FILE.read_text(encoding="utf-8")
        lines = text.splitlines(keepends=True)
        pieces = ["".join(lines[node.lineno - 1 : node.end_lineno]) for node in ast.parse(text).body[1:]]
        body = "\n\n".join(piece for piece in pieces if piece not in file)
        assert starter in file, "the file has the starter"
        FILE.write_text(file.replace(starter, body), encoding="utf-8")
        return self.press("saved")


def fits(lines: list[str]) -> bool:
    """True if a screen has room for it, with a row for the cursor."""
    return len(lines) < ROWS and all(len(line) <= COLUMNS for line in lines)


def play(slugs: tuple[str, ...]) -> None:
    """From `next` in an empty folder to the last of these puzzles, along what the screens offer."""
    opened = puzzles("next").output
    assert "'puzzles watch my_solutions.py'" in " ".join(opened.split())
    assert fits(opened.splitlines()), opened
    player = Player()
    assert "\n".join(player.shown()[:2]) in opened
    for slug, following in zip(slugs, (*CORE[1:], ""), strict=False):
        assert player.game.current == slug
        passed = player.solve(slug)
        assert any(line.startswith("passed  ★★") for line in passed), "\n".join(passed)
        assert fits(passed), "\n".join(passed)
        words = " ".join(" ".join(passed).split())
        assert f"'puzzles compare my_solutions.py {slug}' shows" in words
        assert "Press n for" in words, "there are extra puzzles after the last core one"
        if following:
            statement = player.press("n")
            assert fits(statement), "\n".join(statement)
            assert "my_solutions.py" in " ".join(statement)
            assert player.game.current == following
            for key in "hls":
                page = player.press(key)
                assert fits(page), "\n".join(page)
    assert {slug for slug, entry in progress.load().items() if entry.stars >= 2} >= set(slugs)


def test_the_first_step_of_the_path_is_played() -> None:
    play(CORE[:3])


@pytest.mark.slow
def test_the_core_path_is_played_to_its_end() -> None:
    play(CORE)
