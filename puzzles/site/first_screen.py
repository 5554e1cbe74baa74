"""What somebody sees who opens the site for the first time: a schedule that moves, and a puzzle of one line."""

from pathlib import Path
from typing import Any

from lib import run
from lib.schedules import one_f_one_b, pipeline
from puzzles.catalog.schedule import PUZZLES
from puzzles.custom import add_folder

from .in_browser.pictures import viewed

WARM_UP = Path(__file__).parent / "warm_up"
"""The folder of the puzzle, whose chapter has its name."""


def add_warm_up() -> None:
    """Adds the puzzle, as teachers add theirs."""
    add_folder(WARM_UP)


def first_run() -> dict[str, Any] | None:
    """The schedule that moves, as data for the interactive picture."""
    goal = PUZZLES["one_f_one_b"].goal
    trace = run(pipeline(one_f_one_b), *goal.size, setting=goal.setting).trace
    return viewed(trace, "One forward, one backward", goal, "microbatch")
