"""The pictures of players' schedules: one run as far as it went, two side by side, all attempts at a puzzle."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import click

from lib import PuzzleError, Trace, referee
from puzzles.catalog.schedule import Puzzle
from puzzles.failure import Failure, of_source
from puzzles.grading.discover import submissions
from puzzles.grading.schedule_run import play
from puzzles.grading.submission import Submission
from puzzles.sandbox.deadline import Timer


@dataclass(frozen=True)
class Wish:
    """What to draw: the file of a player, the puzzle, and how; `output` is empty for the usual name."""

    path: str
    puzzle: Puzzle
    output: str = ""
    text: bool = False
    width: int | None = None
    against: str = ""
    pareto: bool = False
    critical: bool = False
    dark: bool = False
    seconds: float = 10.0

    @property
    def target(self) -> str:
        suffix = "_pareto" if self.pareto else "_against" if self.against else ""
        return self.output or f"{self.puzzle.slug}{suffix}.svg"


def fulfil(wish: Wish) -> int:
    """Runs what there is to run, and draws it; 1 if a run failed, which it tells, else 0."""
    drawing = _drawing()
    try:
        if wish.output or not wish.text:
            drawing.require_ending(wish.target, of_a_run=not (wish.pareto or wish.against))
        if wish.pareto:
            return _pareto(wish, drawing)
        if wish.against:
            return _compare(wish, drawing)
        return _timeline(wish, drawing)
    except PuzzleError as why:
        raise click.UsageError(str(why)) from None


def _drawing() -> ModuleType:
    try:
        import drawing
    except ImportError as why:
        raise click.ClickException(f"pictures need chalk-diagrams; pip install it ({why})") from None
    return drawing


def _timeline(wish: Wish, drawing: ModuleType) -> int:
    trace, failure = _play(wish.path, wish)
    if trace is not None and not any(trace.ranks) and failure is None:
        raise click.ClickException(f"{wish.puzzle.slug} did nothing, so there is nothing to draw")
    title, goal = wish.puzzle.title, wish.puzzle.goal
    if trace is not None and any(trace.ranks):
        if wish.text:
            click.echo(drawing.text(trace, title, wish.width or drawing.TEXT_WIDTH, goal), nl=False)
        if wish.target.lower().endswith(".svg") and (wish.output or not wish.text):
            _save(drawing.draw(trace, title, wish.critical, goal, wish.dark), wish, drawing)
        elif wish.output:
            drawing.save(trace, wish.output, title, goal, wish.critical)
            click.echo(f"Wrote {wish.output}.")
    return _told(wish.puzzle, failure)


def _compare(wish: Wish, drawing: ModuleType) -> int:
    path = _reference(wish)
    reference, problem = _play(path, wish)
    if reference is None or problem is not None:
        raise click.ClickException(f"{path}, to compare with, failed: {problem.message if problem else 'no run'}")
    mine, failure = _play(wish.path, wish)
    if mine is not None and any(mine.ranks):
        names = (wish.path, path)
        goal = wish.puzzle.goal
        picture = drawing.draw_compare(mine, reference, wish.puzzle.title, names, wish.critical, goal, wish.dark)
        _save(picture, wish, drawing)
    return _told(wish.puzzle, failure)


def _reference(wish: Wish) -> str:
    """The file to compare with: of several in a folder, the one that is named after the puzzle."""
    found = [str(path) for path in _solving(wish.against, wish.puzzle.slug)]
    if not found:
        raise click.UsageError(f"{wish.against} has no function {wish.puzzle.slug} to compare with")
    return min(found, key=lambda path: (Path(path).stem != wish.puzzle.slug, path))


def _pareto(wish: Wish, drawing: ModuleType) -> int:
    attempts: list[Any] = []
    failures = 0
    files = [str(path) for path in _solving(wish.path, wish.puzzle.slug)]
    if not files:
        raise click.ClickException(_missing(wish.path, wish.puzzle))
    for path in files:
        trace, failure = _play(path, wish)
        name = os.path.relpath(path, wish.path) if os.path.isdir(wish.path) else os.path.basename(path)
        if trace is not None:
            attempts.append(drawing.Attempt(name, referee(trace, wish.puzzle.goal)))
        if failure is not None:
            failures = 1
            click.echo(f"{path}: {failure.message}", err=True)
    _save(drawing.draw_pareto(wish.puzzle.goal, attempts, wish.puzzle.title, wish.dark), wish, drawing)
    return failures


def draw_layout(path: str, puzzle: Any, target: str, dark: bool, seconds: float) -> int:
    """The completed plan of a layout: operators with their strategies, edges with what they pay; 1 if there is none."""
    from puzzles.grading.layout_plan import plan_in

    if not target.lower().endswith(".svg"):
        raise click.UsageError(f"pictures are written as SVG; '{target}' should end in .svg")
    drawing = _drawing()
    from drawing.layouts.graph import draw_plan

    try:
        plan = plan_in(path, puzzle, seconds)
        if isinstance(plan, Failure):
            return _told(puzzle, plan)
        drawing.save(draw_plan(plan, puzzle.title, dark), target)
    except PuzzleError as why:
        raise click.UsageError(str(why)) from None
    click.echo(f"Wrote {target}.")
    return 0


def _solving(path: str, slug: str) -> Iterator[Path]:
    """The files at or below a path that have a function for the puzzle, or cannot be read to find out."""
    for file in submissions([path]):
        if Submission.read(Path(file)).looks_defined(slug):
            yield Path(file)


def _play(path: str, wish: Wish) -> tuple[Trace | None, Failure | None]:
    """A run at the puzzle's size; a file that is no Python, or has no such function, ends it all."""
    submission = Submission.read(Path(path))
    if submission.problem is not None:
        raise click.ClickException(f"{path}: {of_source(submission.problem).message}")
    trace, failure = play(submission, wish.puzzle.slug, wish.puzzle.goal.size, Timer(wish.seconds))
    if trace is None and failure is None:
        raise click.ClickException(_missing(path, wish.puzzle))
    return trace, failure


def _missing(path: str, puzzle: Puzzle) -> str:
    return f"{path} has no function {puzzle.slug}; write 'def {puzzle.slug}(model):'"


def _save(picture: Any, wish: Wish, drawing: ModuleType) -> None:
    drawing.save(picture, wish.target)
    click.echo(f"Wrote {wish.target}.")


def _told(puzzle: Puzzle, failure: Failure | None) -> int:
    if failure is None:
        return 0
    click.echo(f"{puzzle.slug} failed: {failure.message}", err=True)
    return 1
