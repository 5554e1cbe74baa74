"""The one judge: requests a definition's runs, scores their outcomes, and states the verdict.

It is a generator that yields the next run and is sent the outcome, so that the same code serves a notebook's event
loop, the sandbox, the page and a test with written-down outcomes. It decides the status, the stars and what a failure
at another size costs: at a size that the statement shows it fails the solution, at a hidden one it costs the third
star. It does not decide what is run and how a run is scored, which is the track's, nor how a run is isolated.

Rejected: a quick check of its own for players, teachers or the browser, since two judges would disagree one day. The
price is that a track must describe its runs as data before anything is run. Rejected: a callback that runs, because an
event loop cannot wait in one.
"""

from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, replace
from secrets import token_hex
from typing import NamedTuple

from lib.errors import Sentences
from lib.ledger.algebra import counted
from puzzles.catalog.puzzle import Puzzle
from puzzles.custom import fault_in
from puzzles.failure import Failure, sanitized
from puzzles.judge.starters import is_unchanged_starter
from puzzles.sandbox.worker.reading import Sketch
from puzzles.tracks import track_of
from puzzles.tracks.outcomes import RunOutcome, RunRequest, Score

from .submission import MAX_FILE_SIZE
from .verdict import Verdict

SAYS = Sentences(
    {
        "puzzle at fault": "this puzzle cannot be graded here: {fault}; ask its author to fix it",
        "not at this size": "there is no {slug} at this size",
        "shown size only": "works only at the shown size ({shown}); with {size} it fails: {why}",
        "file not judged": "this file cannot be judged: {why}",
    }
)
"""Why a run is not judged, or costs a star."""

Judging = Generator[RunRequest, RunOutcome, Verdict]

UNGRADABLE = "ungradable"
"""Reason if a teacher's puzzle is at fault: one of its files is missing or broken."""

MAX_LINE, MAX_LINES = 200, 10
"""Characters of a line and lines of a run's output that a verdict keeps."""


@dataclass(frozen=True)
class Definition:
    """What is known about a player's definition before any run."""

    exists: bool = True
    """True if the player's file defines it; otherwise a run may find that it was imported."""
    sketch: Sketch = Sketch()  # noqa: RUF009  # immutable
    line: int = 0
    problem: Failure | None = None
    """The reason why nothing in the file can be run."""

    def message(self, failure: Failure) -> str:
        """A failure as the player reads it."""
        return self.placed(failure.message)

    def located(self, failure: Failure) -> Failure:
        """A failure of a method with the line of the method, unless it has a line."""
        return failure._replace(line=failure.line or dict(self.sketch.methods).get(failure.method, 0))

    def placed(self, text: str) -> str:
        """A text with line numbers as the player knows them."""
        return text

    def source(self, line: int) -> str:
        """The text of a line; empty if that is not known."""
        return ""

    def remarks(self) -> list[str]:
        """Notes on what was left out of the file, where a solution was judged without it."""
        return []


class OtherSizes(NamedTuple):
    """Result of the runs at other sizes: a note on a failure at a hidden size, the targets that are missed at the first
    such size, and a remark on the first size where the solution is much worse."""

    note: str = ""
    missed: tuple[str, ...] = ()
    remark: str = ""


def run_judge(judging: Judging, run: Callable[[RunRequest], RunOutcome]) -> Verdict:
    """The verdict; `run` performs each run."""
    try:
        request = next(judging)
        while True:
            request = judging.send(run(request))
    except StopIteration as done:
        verdict: Verdict = done.value
        return verdict


def judge(
    puzzle: Puzzle,
    definition: Definition,
    strict: bool = False,
    keep: bool = False,
    only_shown: bool = False,
    secret: str = "",
) -> Judging:
    """Judges a definition as a solution of a puzzle.

    `strict` fails a solution that works only at the shown size; `keep` stores the run at the shown size in the verdict;
    `only_shown` judges only that run. With the `secret` of an earlier verdict, that verdict is reproduced; without one,
    the judge draws it.
    """
    track = track_of(puzzle.slug)
    not_attempted = Verdict(puzzle.slug, track.name, "not_attempted", track.words.targets(puzzle))
    try:
        drawn = secret or token_hex(16)
        return (yield from _judged(not_attempted, puzzle, definition, strict, keep, only_shown, drawn))
    except Exception as why:
        fault = fault_in(puzzle.slug, why)
        if not fault:
            raise
        failure = Failure(UNGRADABLE, SAYS("puzzle at fault", fault=fault))
        return _failed(not_attempted, definition, failure, definition.exists)


def _judged(
    not_attempted: Verdict,
    puzzle: Puzzle,
    definition: Definition,
    strict: bool,
    keep: bool,
    only_shown: bool,
    secret: str,
) -> Judging:
    track = track_of(puzzle.slug)
    if definition.problem is not None:
        return _failed(not_attempted, definition, definition.problem, definition.exists)
    if is_unchanged_starter(puzzle, definition.sketch):
        return not_attempted
    requests = track.judge.requests(puzzle)
    shown = next(requests)
    outcome, score = yield from _scored(shown, secret, definition)
    if outcome.is_absent:
        return not_attempted
    kept = track.judge.kept(outcome.row) if keep and outcome.row is not None else ""
    not_attempted = replace(not_attempted, printed=first_lines(outcome.printed), trace=kept, secret=secret)
    if isinstance(score, Failure):
        of_function = outcome.failure is None and score.reason != "crash" and not definition.sketch.methods
        if of_function and not score.line:  # the first line of a class would say nothing
            score = score._replace(line=definition.line)
        return _failed(not_attempted, definition, score, definition.exists or outcome.failure is None)
    other_sizes: OtherSizes | Failure = OtherSizes()
    if not only_shown:
        other_sizes = yield from _judge_other_sizes(puzzle.slug, definition, shown, requests, secret)
    if isinstance(other_sizes, Failure):
        return _failed(not_attempted, definition, other_sizes)
    return _stated(not_attempted, definition, score, other_sizes, strict)


def _scored(
    request: RunRequest, secret: str, definition: Definition
) -> Generator[RunRequest, RunOutcome, tuple[RunOutcome, Score | Failure]]:
    """The outcome of a run, and its score; or that of the last of the runs that follow from it."""
    outcome = yield request
    score = request.score_of(outcome)
    while callable(score):
        further = score(secret)
        score = further.score_of((yield further))
    if isinstance(score, Failure):
        score = definition.located(score)
    return outcome, score


def first_lines(printed: str) -> tuple[str, ...]:
    """The first lines of a run's output, safe to show."""
    lines = [sanitized(line)[:MAX_LINE] for line in printed.splitlines()]
    more = [f"... and {counted(len(lines) - MAX_LINES, 'more line')}"] if len(lines) > MAX_LINES else []
    return (*lines[:MAX_LINES], *more)


def _judge_other_sizes(
    slug: str, definition: Definition, shown: RunRequest, others: Iterator[RunRequest], secret: str
) -> Generator[RunRequest, RunOutcome, OtherSizes | Failure]:
    """A failure at a size that the puzzle mentions fails the solution; at a hidden size it is noted."""
    found = OtherSizes()
    for request in others:
        outcome, score = yield from _scored(request, secret, definition)
        if outcome.is_absent:
            score = Failure("incomplete", SAYS("not at this size", slug=slug))
        tried = f"tried with {request.size}: " if request.size else ""  # it is empty where nothing but the case differs
        if isinstance(score, Score):
            if not found.missed:
                found = found._replace(missed=tuple(tried + words for words in score.missed))
            if score.remark and not found.remark:
                found = found._replace(remark=f"with {request.size}, {score.remark}")
        elif not request.hidden:
            return score._replace(sentence=tried + score.sentence)
        elif not found.note:
            why = definition.message(score)
            found = found._replace(note=SAYS("shown size only", shown=shown.size, size=request.size, why=why))
    return found


def _stated(
    not_attempted: Verdict, definition: Definition, score: Score, other_sizes: OtherSizes, strict: bool
) -> Verdict:
    """The verdict on a definition that is correct at the shown size."""
    missed, note = score.missed or other_sizes.missed, other_sizes.note
    remark = "" if score.missed or note else other_sizes.remark
    if note and strict:
        return replace(not_attempted, status="failed", reason="rule", message=note)
    stars = min(score.stars, 1 if missed else 2 if note or remark else 3)
    return replace(
        not_attempted,
        status="over_target" if missed else "passed",
        stars=stars,
        figures=score.figures,
        message=definition.placed(f"correct, but {'; and '.join(missed)}") if missed else "",
        notes=(*map(definition.placed, (*definition.remarks(), *score.notes)), *filter(None, (note, remark))),
        advice=definition.placed(score.advice),
        why=tuple(map(definition.placed, score.why)),
        why_matters=score.why_matters,
        family=score.family,
        second_step=definition.placed(score.second_step),
        shown_size_only=bool(note),
    )


def _failed(not_attempted: Verdict, definition: Definition, failure: Failure, attempted: bool = True) -> Verdict:
    """A failure; only a message if the file does not define a solution."""
    verdict = replace(
        not_attempted,
        message=definition.message(failure),
        source=sanitized(definition.source(failure.line)),
        line=failure.line,
        file=failure.file,
    )
    return replace(verdict, status="failed", reason=failure.reason) if attempted else verdict


def judge_saved(puzzle: Puzzle, data: bytes) -> Verdict:
    """The verdict on a saved run, at its size only."""
    try:
        if len(data) > MAX_FILE_SIZE:
            raise ValueError(f"it has more than {MAX_FILE_SIZE:,} bytes")
        outcome = RunOutcome(track_of(puzzle.slug).judge.row_of(data.decode("utf-8-sig")))
    except ValueError as why:
        outcome = RunOutcome(failure=Failure("rule", sanitized(SAYS("file not judged", why=why))))
    verdict = run_judge(judge(puzzle, Definition(), only_shown=True), lambda request: outcome)
    if verdict.status == "failed" and outcome.failure is None:
        return replace(verdict, message=f"Not correct. {verdict.message}")
    return verdict
