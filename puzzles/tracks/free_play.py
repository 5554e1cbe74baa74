"""Free play as commands and `play` know it: games without targets, by name or saved, which are shown or replayed.

Here is which game a name and options mean, and its run in JSON. How a game is run and judged is in
`schedule.free_game`; only schedules have free play, and no command has to know that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from lib import CLASSIC_SETTING, PuzzleError, Report, Setting, Size, Trace
from lib.ledger.meetings import axes_of
from lib.ledger.setting import Game
from puzzles.catalog.puzzle import Puzzle
from puzzles.catalog.schedule import PUZZLES
from puzzles.failure import Failure

from . import ALL, TRACKS, track_of
from .base import TensorOptions, Workbench
from .schedule.free_game import FreeGame as FreeGame
from .schedule.free_game import summary as summary
from .schedule.judge import parse_trace
from .schedule.show import timeline

if TYPE_CHECKING:
    from rich.console import Console

MAX_SIZE = 1024
"""Layers, batches and ranks."""


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


def require_size(size: object) -> Size:
    """A size that a free game may have."""
    given = size if isinstance(size, Sequence) and not isinstance(size, str) else [size]
    if len(given) == 3 and all(type(n) is int and 1 <= n <= MAX_SIZE for n in given):
        return Size(*given)
    raise PuzzleError(
        f"a size is layers, batches and ranks, each a whole number from 1 to {MAX_SIZE:,}, as 4,8,4; "
        f"got {','.join(map(str, given))}"
    )


def judged_saved(name: str, saved: bytes) -> tuple[FreeGame, tuple[Trace, Report] | Failure]:
    """The game that a saved trace is of, and its trace and report; or what is wrong."""
    try:
        trace = parse_trace(saved.decode("utf-8-sig"))
    except (RecursionError, MemoryError, ValueError, TypeError) as why:
        raise PuzzleError(str(why)) from None
    game = FreeGame(name, require_size(trace.size), trace.setting)
    return game, game.report_on(trace)


def figures(report: Report) -> dict[str, Any]:
    """What a correct run took, as JSON holds it: times in steps, memory in elements."""
    return {
        "timesteps": report.timesteps,
        "makespan": report.makespan,
        "span": report.span,
        "bubble": round(report.bubble, 6),
        "peak_memory": report.peak.memory,
        "lasting_peak": report.lasting_peak,
        "traffic": report.traffic,
        "traffic_total": report.traffic_total,
        "family": report.family,
        "tiers": {tier: peak.memory for tier, peak in report.peaks.items()},
        "ranks": [
            {"busy": round(r.busy, 6), "peak_memory": max(r.memory), "messages": r.messages, "bytes_sent": r.bytes_sent}
            for r in report.ranks
        ],
    }


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
