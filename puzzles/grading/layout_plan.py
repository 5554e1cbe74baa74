"""The plan of a player's file: its function configures a graph, shut in; propagation completes that here."""

from __future__ import annotations

from pathlib import Path

from lib.layout import GraphPlan
from puzzles.catalog.layout.layout_puzzle import LayoutPuzzle
from puzzles.failure import Failure
from puzzles.sandbox.deadline import TIME_LIMIT
from puzzles.sandbox.limits import Limits
from puzzles.tracks import LAYOUTS
from puzzles.tracks.layout.judge import completed, strategies_of

from .attempt import run_in
from .session import Session
from .submission import Submission


def plan_in(path: str, puzzle: LayoutPuzzle, seconds: float = TIME_LIMIT) -> GraphPlan | Failure:
    """The plan of the function that a file has for a puzzle, whatever it costs; or why there is none."""
    submission = Submission.read(Path(path))
    if submission.failure is not None:
        return submission.failure
    with Session(submission, Limits(seconds=seconds)) as session:
        ran = run_in(session, LAYOUTS, puzzle.slug, {}, seconds)
    if ran.failure is not None:
        return ran.failure
    if ran.row is None:
        form = LAYOUTS.signature(puzzle.slug)
        return Failure("crash", f"there is no function {puzzle.slug} in {path}; write '{form}:'")
    strategies = strategies_of(ran.row)
    return strategies if isinstance(strategies, Failure) else completed(puzzle, strategies)
