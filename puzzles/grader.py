"""Judges a player's file, puzzle by puzzle: what it defines is run elsewhere, and the referee reads the trace."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from lib import PuzzleError, Report, Size, Trace, referee, trace_to_json

from .catalog import PUZZLES, Puzzle
from .inside.failure import Failure, of_refusal, plain
from .limits import Limits
from .sandbox import Tier
from .session import Lost, Session
from .starters import size_text
from .submission import Submission
from .trial import Played, play_in
from .verdict import Graded, Verdict


def grade_file(
    path: str,
    puzzles: Iterable[Puzzle] = PUZZLES.values(),
    limits: Limits = Limits(),  # noqa: B008  # frozen
    tier: Tier | None = None,
    strict: bool = False,
    keep: bool = False,
    submission: Submission | None = None,
) -> Graded:
    """The verdicts on one file; each run has a process of its own, so that none can spoil another's."""
    with Session(submission or Submission.read(Path(path)), limits, tier) as session:
        return Graded(path, tuple(grade(puzzle, session, strict, keep) for puzzle in puzzles))


def grade(puzzle: Puzzle, session: Session, strict: bool = False, keep: bool = False) -> Verdict:
    """The verdict on one puzzle of a submission.

    `strict` fails what works only at the shown size; `keep` keeps the trace with the verdict.
    """
    goal, slug = puzzle.goal, puzzle.slug
    nothing = Verdict(slug, "not_attempted", goal.time, goal.memory)
    problem, lines, untouched = _survey(session)
    if problem is not None:
        return _failed(nothing, problem, session.submission, session.submission.looks_defined(slug))
    assert session.survey is not None
    defined = slug in lines or slug in session.survey["broken"]
    if not (defined or "*" in lines) or slug in untouched:
        return nothing
    runs = Runs(puzzle, session)
    played = runs.play(goal.size)
    if played.failure is not None:
        nothing = replace(nothing, printed=plain_output(runs.printed), trace=_kept(played, keep))
        return _failed(nothing, played.failure, session.submission, defined)
    if played.trace is None:
        return nothing
    nothing = replace(nothing, printed=plain_output(runs.printed), trace=_kept(played, keep))
    report = judge(played.trace, puzzle, goal.size)
    start = lines.get(slug, 0)
    if isinstance(report, Failure) or report.error is not None:
        failure = report if isinstance(report, Failure) else of_refusal(report.error, start)
        return _failed(nothing, played.told(failure), session.submission, True)
    stars, notes = report.stars, [session.submission.placed(plain(note.text)) for note in report.notes]
    status, reason, message = report.status, None, "" if report.status == "passed" else _missed(report, puzzle)
    if status == "passed":
        special = runs.only_here()
        if special and strict:
            status, reason, message, stars = "failed", "rule", special, 0
        elif special:
            stars, notes = min(stars, 2), [*notes, special]
    return replace(
        nothing,
        status=status,
        reason=reason,
        stars=stars,
        timesteps=report.timesteps if reason is None else None,
        makespan=report.makespan if reason is None else None,
        peak_memory=report.peak.memory if reason is None else None,
        message=message,
        notes=tuple(notes),
    )


def _kept(played: Played, keep: bool) -> str:
    return trace_to_json(played.trace) if keep and played.trace is not None else ""


def _survey(session: Session) -> tuple[Failure | None, dict[str, int], list[str]]:
    """What the file defines, or why that cannot be told."""
    submission = session.submission
    if submission.failure is not None:
        return submission.failure, {}, []
    try:
        survey = session.read()
    except Lost as why:
        submission.problem = ValueError(f"Python itself broke on it ({why})")
        return submission.failure, {}, []
    if survey["problem"] is not None:
        return Failure(*survey["problem"]), {}, []
    return None, survey["lines"], survey["untouched"]


def judge(trace: Trace, puzzle: Puzzle, size: Size) -> Report | Failure:
    """The referee's report. A trace that breaks even the referee is a failure of the trace."""
    longest = max(map(len, trace.ranks), default=0)
    if longest > MOST_OPERATIONS:  # checked before judging, which may take the square of it
        advice = f"a schedule of this size needs far fewer than {MOST_OPERATIONS:,}"
        return Failure("rule", f"a rank recorded {longest:,} operations; {advice}")
    try:
        return referee(trace, replace(puzzle.goal, size=size))
    except (Exception, RecursionError) as why:
        return Failure("rule", plain(f"what the run sent back makes no sense as a trace ({type(why).__name__}: {why})"))


MOST_OPERATIONS = 2000
"""Of one rank. The longest of our own schedules has a fifth of that."""


class Runs:
    """The runs of one puzzle of a submission, which share its seconds."""

    def __init__(self, puzzle: Puzzle, session: Session) -> None:
        self.puzzle = puzzle
        self.session = session
        self.left = session.limits.seconds
        self.printed = ""

    def play(self, size: Size) -> Played:
        run = play_in(self.session, self.puzzle.slug, size, max(self.left, 0.01))
        self.left -= run.took
        self.printed = self.printed or run.printed
        return run.played

    def only_here(self) -> str:
        """A note for the player if the schedule is wrong at another size; empty if it is right at all of them."""
        for size in self.puzzle.other_sizes:
            why = self._problem_at(size)
            if why:
                shown = size_text(self.puzzle.goal.size)
                return f"works only at the shown size ({shown}); with {size_text(size)} it fails: {why}"
        return ""

    def _problem_at(self, size: Size) -> str:
        played = self.play(size)
        failure = played.failure
        if failure is None and played.trace is not None:
            report = judge(played.trace, self.puzzle, size)
            if isinstance(report, Failure):
                failure = report
            elif isinstance(report.error, PuzzleError):
                failure = of_refusal(report.error)
        elif failure is None:
            failure = Failure("incomplete", f"there is no {self.puzzle.slug} then")
        return self.session.submission.placed(failure.message) if failure is not None else ""


def _failed(nothing: Verdict, failure: Failure, submission: Submission, defined: bool) -> Verdict:
    """A failure, unless the file never says that it has a solution; then it is just told."""
    message = submission.placed(failure.message)
    told = replace(nothing, message=message, source=plain(submission.line(failure.line)))
    return replace(told, status="failed", reason=failure.reason) if defined else told


def plain_output(printed: str) -> tuple[str, ...]:
    """The first lines of what a run printed, safe to show."""
    lines = [plain(line)[:LONGEST_LINE] for line in printed.splitlines()]
    return (
        *lines[:MOST_LINES],
        *([f"... and {len(lines) - MOST_LINES} lines more"] if len(lines) > MOST_LINES else []),
    )


LONGEST_LINE, MOST_LINES = 200, 10


def _missed(report: Report, puzzle: Puzzle) -> str:
    goal = puzzle.goal
    missed = []
    if not report.meets_time:
        missed.append(f"it takes {report.timesteps:g} timesteps and the target is {goal.time}")
    if not report.meets_memory:
        peak = report.peak
        missed.append(
            f"it needs {peak.memory:,} elements of memory (rank {peak.rank} at t={peak.time:g}) "
            f"and the target is {goal.memory:,}"
        )
    return f"correct, but {'; and '.join(missed)}"
