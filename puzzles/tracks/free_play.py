"""Free play as commands and `play` know it: games without targets, and the track that has them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from puzzles.catalog.puzzle import Puzzle

from .base import Track
from .registry import ALL, TRACKS, track_of
from .schedule.free_game import FreeGame, figures, judged_saved, require_size, summary

if TYPE_CHECKING:
    from rich.console import Console

    from lib import Report, Setting, Size, Trace

    from .workbench import TensorOptions, Workbench

__all__ = [
    "FreeGame",
    "figures",
    "free_track",
    "game_of",
    "judged_saved",
    "own_game",
    "picture",
    "replay_on_tensors",
    "show_report",
    "summary",
    "track_for",
]


def free_track() -> Track[Any]:
    """The track whose definitions can be run at any size."""
    return TRACKS["schedule"]


def track_for(game: Puzzle | FreeGame) -> Track[Any]:
    """The track that a puzzle or a free game is of."""
    return track_of(game.slug) if isinstance(game, Puzzle) else free_track()


def own_game(slug: str) -> tuple[Puzzle, Size, Setting] | None:
    """The puzzle of this name with its size and setting; None if the track with free play has none."""
    from puzzles.catalog.schedule import PUZZLES

    puzzle = PUZZLES.get(slug)
    return None if puzzle is None else (puzzle, puzzle.goal.size, puzzle.goal.setting)


def game_of(slug: str, given: Mapping[str, Any]) -> Puzzle | FreeGame:
    """The game of a name, where a size and fields of a setting are given; the rest is as in the puzzle of that name, or
    as in the classic puzzles. What is the puzzle's own is that puzzle.

    Raises:
        PuzzleError: there is no such game. It says why, and what to do.
    """
    from lib import CLASSIC_SETTING, PuzzleError
    from lib.communication.mesh import axes_of
    from lib.game.setting import Game

    puzzle, own_size, own = own_game(slug) or (None, None, CLASSIC_SETTING)
    if puzzle is None and slug in ALL:
        able = free_track().title.lower()
        raise PuzzleError(f"{slug} is a puzzle of the track '{track_of(slug).name}'; {min(given)} is for {able}")
    setting = replace(own, **{field: value for field, value in given.items() if field != "size"})
    size = require_size(given.get("size", own_size), setting.replicas)
    setting = replace(setting, mesh=axes_of(setting.mesh, size.ranks))
    Game.of(size, setting)  # refuses what cannot be folded
    if puzzle is not None and (size, setting) == (own_size, own):
        return puzzle
    return FreeGame.of(slug, size, setting)


def show_report(console: Console, game: FreeGame, trace: Trace, report: Report) -> None:
    """Shows what a correct run is and took."""
    from .schedule.run_on_tensors import show_report

    show_report(console, game, trace, report)


def replay_on_tensors(game: FreeGame, trace: Trace, options: TensorOptions, bench: Workbench) -> bool:
    """Runs the trace of a game on tensors, shows the result, and returns whether everything was as predicted."""
    from .schedule.run_on_tensors import replay_trace

    return replay_trace(game.slug, game.title, trace, options, bench)


def picture(game: FreeGame, trace: Trace, colour: str) -> str:
    """A run as SVG; empty if there is nothing to draw."""
    from .schedule.pictures import timeline

    return timeline(trace, game.title, judged=False, colour=colour)
