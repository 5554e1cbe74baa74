"""`puzzles draw` of a schedule: one run as far as it went, two side by side, or all attempts at a puzzle."""

import os
from contextlib import redirect_stdout, suppress
from io import StringIO
from pathlib import Path
from typing import Any

import click

import drawing
from lib import DeadlockError, Trace, referee
from lib.errors import Sentence, Sentences
from puzzles.catalog.schedule import SchedulePuzzle
from puzzles.failure import Failure, sanitized
from puzzles.tracks.base import DrawOptions, Workbench, report_failure
from puzzles.tracks.outcomes import Row

from .free_game import FreeGame, advised
from .judge import request_at, trace_in


def draw_runs(puzzle: SchedulePuzzle | FreeGame, options: DrawOptions, bench: Workbench) -> bool:
    """Runs the schedules, draws them, and returns True if none failed."""
    return _Drawing(puzzle, options, bench).run()


class _Drawing:
    """One call of the command."""

    def __init__(self, puzzle: SchedulePuzzle | FreeGame, options: DrawOptions, bench: Workbench) -> None:
        self.puzzle = puzzle
        self.options = options
        self.bench = bench
        suffix = "_pareto" if options.pareto else "_against" if options.against else ""
        self.target = options.output or f"{puzzle.slug}{suffix}.svg"

    def run(self) -> bool:
        options = self.options
        if options.output or not options.text:
            drawing.require_ending(self.target, of_a_run=not (options.pareto or options.against))
        if options.pareto:
            return self._pareto()
        return self._compare() if options.against else self._timeline()

    def _timeline(self) -> bool:
        trace, failure = self._trace(self.bench.path)
        if trace is not None and failure is not None and failure.reason == "deadlock":
            self._write_timeline(drawing.EndedRun(trace, DeadlockError(failure.sentence)))
        elif trace is not None and any(trace.ranks):
            self._write_timeline(trace)
        elif trace is not None and failure is None:
            raise click.ClickException(f"{self.puzzle.slug} did nothing, so there is nothing to draw")
        return report_failure(self.puzzle.slug, failure, self.bench)

    def _write_timeline(self, trace: Any) -> None:
        options, title, goal = self.options, self.puzzle.title, self.puzzle.goal
        if options.text:
            click.echo(drawing.text(trace, title, options.width, goal, options.colour), nl=False)
        if drawing.is_picture(self.target) and (options.output or not options.text):
            with redirect_stdout(StringIO()):  # `draw` prints figures, which the picture shows too
                picture = drawing.draw(trace, title, options.critical, goal, options.dark, colour=options.colour)
            self._save(picture)
        elif options.output:
            drawing.save(trace, options.output, title, goal, options.critical, options.colour)
            self.bench.wrote(options.output)

    def _compare(self) -> bool:
        path, options = self._reference(), self.options
        reference, problem = self._trace(path)
        if reference is None or problem is not None:
            why = self.bench.message(problem, path) if problem else "no run"
            raise click.ClickException(f"{path}, to compare with, failed: {why}")
        mine, failure = self._trace(self.bench.path)
        if mine is not None and any(mine.ranks):
            names, goal = (self.bench.path, path), self.puzzle.goal
            picture = drawing.draw_compare(
                mine, reference, self.puzzle.title, names, options.critical, goal, options.dark, options.colour
            )
            self._save(picture)
        return report_failure(self.puzzle.slug, failure, self.bench)

    def _reference(self) -> str:
        """The file to compare with: of several in a folder, the one that is named after the puzzle."""
        slug, found = self.puzzle.slug, self.bench.files(self.options.against)
        if not found:
            raise click.UsageError(f"{self.options.against} has no function {slug} to compare with")
        return min(found, key=lambda path: (Path(path).stem != slug, path))

    def _pareto(self) -> bool:
        goal = self.puzzle.goal
        if goal is None:
            raise click.UsageError(
                "--pareto plots runs beside a puzzle's targets, and there are none here; leave it out"
            )
        attempts: list[Any] = []
        passed, above = True, self.bench.path
        files = self.bench.files(above)
        if not files:
            raise click.ClickException(self.bench.absent())
        for path in files:
            trace, failure = self._trace(path)
            name = os.path.relpath(path, above) if os.path.isdir(above) else os.path.basename(path)
            if trace is not None:
                attempts.append(drawing.Attempt(name, referee(trace, goal)))
            if failure is not None:
                passed = False
                click.echo(f"{path}: {self.bench.message(failure, path)}", err=True)
        self._save(drawing.draw_pareto(goal, attempts, self.puzzle.title, self.options.dark))
        return passed

    def _trace(self, path: str) -> tuple[Trace | None, Failure | None]:
        """A run of the game; a file that is not Python, or has no such function, ends the command."""
        self.bench.require_readable(path)
        puzzle = self.puzzle
        request = puzzle.request() if isinstance(puzzle, FreeGame) else request_at(puzzle, puzzle.goal.size)
        outcome = self.bench.run(request, path)
        if outcome.is_absent:
            raise click.ClickException(self.bench.absent(path))
        if outcome.row is None:
            return None, outcome.failure and advised(outcome.failure)
        trace = trace_in(outcome.row)
        if isinstance(trace, Failure):
            return None, outcome.failure or outcome.explained(trace)
        failure = outcome.failure and advised(outcome.failure)
        if failure is not None and failure.reason == "deadlock":
            failure = failure._replace(sentence=_with_facts(failure.sentence, outcome.row, len(trace.ranks)))
        return trace, failure

    def _save(self, picture: Any) -> None:
        drawing.save(picture, self.target)
        self.bench.wrote(self.target)


SAYS = Sentences({"nobody can move": "{sentence}"})
"""A deadlock in the words of a run in the sandbox."""


def _with_facts(sentence: str, row: Row, ranks: int) -> Sentence:
    """What a run says of its deadlock, with the facts that it has sent back if they can be those of a run."""
    facts: dict[str, Any] = {}
    with suppress(ValueError, TypeError, KeyError, AttributeError, OverflowError):
        given = row["deadlock"]
        waits = {int(rank): sanitized(call) for rank, call in given["waits"].items()}
        lines = {int(rank): int(line) for rank, line in given["lines"].items()}
        cycle = [(int(rank), int(other)) for rank, other in given["cycle"]]
        if waits.keys() == lines.keys() and {*waits, *(rank for pair in cycle for rank in pair)} <= {*range(ranks)}:
            facts = {"waits": waits, "lines": lines, "cycle": cycle}
    return SAYS("nobody can move", sentence=sentence, **facts)
