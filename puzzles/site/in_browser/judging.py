"""Judges the code in the editor, as `play` judges a notebook's cell: in this process, which is the player's own."""

from __future__ import annotations

import linecache
import sys
from contextlib import redirect_stdout
from dataclasses import replace
from io import StringIO
from types import ModuleType
from typing import Any

from lib import PuzzleError
from puzzles.catalog.puzzle import Puzzle
from puzzles.failure import Failure, line_in, of_crash, of_refusal, sanitized
from puzzles.grading.judge import first_lines, judge, run_judge
from puzzles.grading.verdict import Verdict
from puzzles.notebook.local_run import NotebookDefinition, judge_here
from puzzles.notebook.source_lines import file_of
from puzzles.sandbox.worker.source import SubmissionCode
from puzzles.tracks import track_of
from puzzles.tracks.outcomes import RunOutcome

FILE = "your_code.py"
SECONDS = 3600.0
"""Of a turn: the page ends the worker long before."""

MAX_PRINTED = 100_000
"""Characters of what the player's code prints that are kept."""


class Printed(StringIO):
    """Keeps the beginning of what is printed."""

    def write(self, text: str) -> int:
        if self.tell() < MAX_PRINTED:
            super().write(text[:MAX_PRINTED])
        return len(text)


async def judged(puzzle: Puzzle, text: str) -> Verdict:
    """The verdict on the definition of a puzzle in a player's text, with its run."""
    printed = Printed()
    with redirect_stdout(printed):
        definition = loaded(puzzle.slug, text)
        if isinstance(definition, Failure):
            verdict = failed(puzzle, definition)
        else:
            verdict = await judge_here(puzzle, definition, SECONDS)
            if file_of(definition) not in ("", FILE):
                verdict = replace(verdict, line=0)  # it was imported: the line is in another file
    return replace(verdict, printed=first_lines(printed.getvalue()))


def loaded(slug: str, text: str) -> Any:
    """The definition of this name in a player's text, or the Failure to get it."""
    code = SubmissionCode(FILE, text, (slug,))
    problem = code.problem or code.broken.get(slug)
    if problem is not None or code.code is None:
        return problem
    linecache.cache[FILE] = len(text), None, text.splitlines(keepends=True), FILE
    module = sys.modules["submission"] = ModuleType("submission")
    module.__file__ = FILE
    try:
        exec(code.code, module.__dict__)
    except PuzzleError as why:
        return of_refusal(why, line_in(why.__traceback__, FILE))
    except (Exception, SystemExit) as why:
        return of_crash(why, FILE, "while the code is loaded")
    if slug not in module.__dict__:
        signature = track_of(slug).signature(slug)
        return Failure(
            "crash", f"there is no {slug} in this code; write 'async {signature}:', or go back to the starter"
        )
    return module.__dict__[slug]


def failed(puzzle: Puzzle, failure: Failure) -> Verdict:
    """The verdict on code that cannot be run."""
    return run_judge(judge(puzzle, NotebookDefinition(problem=failure)), lambda request: RunOutcome(failure=failure))


def judged_run(puzzle: Puzzle, trace: str) -> Verdict:
    """The verdict on a saved run. It says nothing of other sizes, of which there is no run."""
    try:
        outcome = RunOutcome(track_of(puzzle.slug).row_of_saved(trace))
    except ValueError as why:
        outcome = RunOutcome(failure=Failure("rule", sanitized(f"this run cannot be judged: {why}")))
    return run_judge(judge(puzzle, NotebookDefinition(), keep=True, only_shown=True), lambda request: outcome)
