"""Free play as commands know it: games without targets, and the track that has them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from puzzles.catalog.puzzle import Puzzle

from .base import Track
from .registry import TRACKS, track_of
from .schedule.free_game import FreeGame, figures, judged_saved, require_size

if TYPE_CHECKING:
    from rich.console import Console

    from lib import Report, Setting, Size, Trace

__all__ = ["FreeGame", "figures", "free_track", "judged_saved", "own_game", "require_size", "show_report", "track_for"]


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


def show_report(console: Console, game: FreeGame, trace: Trace, report: Report) -> None:
    """Shows what a correct run is and took."""
    from .schedule.free_run import show_report

    show_report(console, game, trace, report)
