"""Judges a player's layouts: its function annotates a graph, propagation completes it, and the plan is measured."""

from __future__ import annotations

import inspect
import io
import sys
import warnings
from collections.abc import Iterable
from contextlib import redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import Any

from lib import PuzzleError
from lib.layout import Graph, GraphPlan, propagate
from lib.layout.graph import Strategy

from .inside.failure import Failure, line_in, of_crash, of_refusal, of_source, plain
from .layout_catalog import LAYOUT_PUZZLES, LayoutPuzzle
from .layout_verdict import LayoutGraded, LayoutVerdict
from .own_file import Submission
from .starters import untouched
from .timer import TIME_LIMIT, Timer, TimeUp

PAYERS = 3
"""How many edges or operators a message names."""


def grade_file(
    path: str, puzzles: Iterable[LayoutPuzzle] = LAYOUT_PUZZLES.values(), seconds: float = TIME_LIMIT
) -> LayoutGraded:
    """The verdicts on one file."""
    submission = Submission.read(Path(path))
    return LayoutGraded(path, tuple(grade(puzzle, submission, seconds) for puzzle in puzzles))


def grade(puzzle: LayoutPuzzle, submission: Submission, seconds: float = TIME_LIMIT) -> LayoutVerdict:
    """The verdict on one layout puzzle of a submission."""
    nothing = LayoutVerdict(puzzle.slug, "not_attempted", puzzle.target, puzzle.memory_cap)
    if submission.problem is not None:
        return _failed(nothing, of_source(submission.problem), submission)
    mine: Any = puzzle  # a starter is all that is looked at
    if not submission.may_define(puzzle.slug) or untouched(mine, submission.functions.get(puzzle.slug)):
        return nothing
    found = completed(puzzle, submission, seconds)
    if isinstance(found, Failure):
        return _failed(nothing, found, submission)
    if found is None:
        return nothing
    passed = found.bytes <= puzzle.target and found.memory <= puzzle.memory_cap
    return replace(
        nothing,
        status="passed" if passed else "over_target",
        stars=3 if passed else 1,
        bytes_moved=found.bytes,
        memory=found.memory,
        message="" if passed else missed(found, puzzle),
    )


def completed(puzzle: LayoutPuzzle, submission: Submission, seconds: float = TIME_LIMIT) -> GraphPlan | Failure | None:
    """The plan that propagation makes of the player's annotations, or why there is none."""
    path, code, timer = str(submission.path), submission.code, Timer(seconds)
    assert code is not None
    start = submission.start_of(puzzle.slug)
    graph = puzzle.graph()
    stdin, sys.stdin = sys.stdin, io.StringIO()
    try:
        with submission.environment() as names, redirect_stdout(sys.stderr), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            timer.run(lambda: exec(code, names))
            if puzzle.slug not in names:
                return None
            function = names[puzzle.slug]
            problem = _unplayable(puzzle.slug, function)
            if problem:
                return Failure("crash", problem, start)
            timer.run(lambda: function(graph))
        return _finished(puzzle, graph)
    except TimeUp:
        sentence = f"time was up after {timer.seconds:g} s; look for a loop that does not end"
        return Failure("timeout", sentence, timer.line_in(path) or start)
    except PuzzleError as why:
        return of_refusal(why, line_in(why.__traceback__, path) or start)
    except (Exception, SystemExit, GeneratorExit) as why:
        return of_crash(why, path, otherwise=start)
    finally:
        sys.stdin = stdin


def missed(found: GraphPlan, puzzle: LayoutPuzzle) -> str:
    """Which limit was missed by how much, and who pays."""
    said = []
    if found.bytes > puzzle.target:
        who = "; ".join(text for _, text in found.paying()[:PAYERS])
        said.append(f"{found.bytes:,} bytes move, the target is {puzzle.target:,}: {who}")
    if found.memory > puzzle.memory_cap:
        size = found.graph.itemsize
        held = {name: found.layout(name).elements * size for name in found.graph.shapes}
        largest = sorted(held, key=lambda name: -held[name])[:PAYERS]
        who = ", ".join(f"'{name}' takes {held[name]:,}" for name in largest)
        said.append(f"each device holds {found.memory:,} bytes, the cap is {puzzle.memory_cap:,}: {who}")
    return "; and ".join(said)


def _finished(puzzle: LayoutPuzzle, theirs: Graph) -> GraphPlan | Failure:
    """Only strategies are taken from the player's graph: the rest is built afresh."""
    graph = puzzle.graph()
    mine: dict[str, Strategy] = {}
    for name, strategy in theirs.strategies.items():
        if graph.strategies.get(name) != strategy:
            mine[name] = strategy
    taken = [name for name in mine if name in puzzle.given]
    if taken and not puzzle.may_change:
        return Failure("annotations", f"'{taken[0]}' is given as {puzzle.given[taken[0]]}; configure other operators")
    if len(mine) > puzzle.annotations:
        return Failure(
            "annotations",
            f"{len(mine)} operators are configured, {', '.join(mine)}; this puzzle allows {puzzle.annotations}",
        )
    for name, strategy in mine.items():
        graph.shard(name, strategy)
    return propagate(graph)


def _unplayable(slug: str, function: Any) -> str:
    if not callable(function):
        return f"{slug} is of type {type(function).__name__}, not a function; write 'def {slug}(graph):'"
    if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function):
        return f"{slug} has to be a plain function, for nothing waits here; write 'def {slug}(graph):'"
    try:
        inspect.signature(function).bind(None)
    except (TypeError, ValueError):
        return f"{slug} is called with one argument, the graph; write 'def {slug}(graph):'"
    return ""


def _failed(nothing: LayoutVerdict, failure: Failure, submission: Submission) -> LayoutVerdict:
    """A failure, unless the file never says that it has a solution; then it is just told."""
    told = replace(nothing, message=failure.message, source=plain(submission.line(failure.line)))
    if not submission.defines(nothing.puzzle):
        return told
    return replace(told, status="failed", reason=failure.reason)
