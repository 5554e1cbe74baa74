"""Free play as commands and `play` know it: games without targets, which are shown, or replayed on tensors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from lib import CLASSIC_SETTING, PuzzleError, Report, Setting, Size, Trace
from lib.ledger.meetings import axes_of
from lib.ledger.setting import Game
from puzzles.catalog.puzzle import Puzzle
from puzzles.catalog.schedule import PUZZLES

from . import ALL, TRACKS, track_of
from .base import TensorOptions, Workbench
from .schedule.free_game import FreeGame as FreeGame
from .schedule.free_game import figures as figures
from .schedule.free_game import judged_saved as judged_saved
from .schedule.free_game import require_size
from .schedule.free_game import summary as summary
from .schedule.show import timeline

if TYPE_CHECKING:
    from rich.console import Console


def own_game(slug: str) -> tuple[Puzzle, Size, Setting] | None:
    """The puzzle of this name with its size and setting; None if the track with free play has none."""
    puzzle = PUZZLES.get(slug)
    return None if puzzle is None else (puzzle, puzzle.goal.size, puzzle.goal.setting)


def game_of(slug: str, given: Mapping[str, Any]) -> Puzzle | FreeGame:
    """The game of a name, where a size and fields of a setting are given; the rest is as in the puzzle of that name, or
    as in the classic puzzles. What is the puzzle's own is that puzzle.

    Raises:
        PuzzleError: there is no such game. It says why, and what to do.
    """
    puzzle, own_size, own = own_game(slug) or (None, None, CLASSIC_SETTING)
    if puzzle is None and slug in ALL:
        able = TRACKS[FreeGame.track].title.lower()
        raise PuzzleError(f"{slug} is a puzzle of the track '{track_of(slug).name}'; {min(given)} is for {able}")
    setting = replace(own, **{field: value for field, value in given.items() if field != "size"})
    size = require_size(given.get("size", own_size))
    setting = replace(setting, mesh=axes_of(setting.mesh, size.ranks))
    Game.of(size, setting)  # refuses a setting that does not fit the size
    if puzzle is not None and (size, setting) == (own_size, own):
        return puzzle
    return FreeGame.of(slug, size, setting)


def picture(game: FreeGame, trace: Trace, colour: str) -> str:
    """A run as SVG; empty if there is nothing to draw."""
    return timeline(trace, game.title, judged=False, colour=colour)


def show_report(console: Console, game: FreeGame, trace: Trace, report: Report) -> None:
    """What a correct run is and took, as sentences and a table."""
    from .schedule.run_on_tensors import show_report  # here, since it takes rich and numpy

    show_report(console, game, trace, report)


def replay_trace(slug: str, title: str, trace: Trace, options: TensorOptions, bench: Workbench) -> bool:
    """Replays a correct trace on real tensors, and returns whether everything was as predicted."""
    from .schedule.run_on_tensors import replay_trace  # here, since it takes rich and numpy

    return replay_trace(slug, title, trace, options, bench)
