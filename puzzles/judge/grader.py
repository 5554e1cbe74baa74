"""Grades a player's file, puzzle by puzzle: runs what it defines in the sandbox, and lets the judge state verdicts."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from puzzles.catalog.puzzle import Puzzle
from puzzles.failure import Failure
from puzzles.sandbox.client import Client, SandboxLostError
from puzzles.sandbox.limits import Limits
from puzzles.sandbox.worker.reading import Sketch
from puzzles.tracks import ALL, track_of

from .judge import Definition, judge, run_judge
from .session import SandboxRunner, Session, lost
from .submission import Submission
from .verdict import Graded, Verdict

NOT_INSTALLED = "not installed here; nothing uses the import, so it was left out"
"""How the note on such an import ends."""


def grade_file(
    path: str,
    puzzles: Iterable[Puzzle] | None = None,
    limits: Limits = Limits(),  # noqa: B008  # frozen
    strict: bool = False,
    keep: bool = False,
    submission: Submission | None = None,
    client: Client | None = None,
) -> Graded:
    """The verdicts on one file. Each run has its own process, so that runs cannot affect each other.

    Without `puzzles`, grades every schedule, and the classes and layouts that the file attempts; if it attempts
    nothing, the puzzles that it has begun.
    """
    with Session(submission or Submission.read(Path(path)), limits, client) as session:
        wanted = _default_puzzles(session) if puzzles is None else puzzles
        verdicts = [grade_puzzle(puzzle, session, strict, keep) for puzzle in wanted]
    if puzzles is None:
        begun = [verdict for verdict in verdicts if session.submission.looks_defined(verdict.puzzle)]
        if begun and not any(verdict.attempted for verdict in verdicts):
            verdicts = begun
        else:
            verdicts = [v for v in verdicts if v.attempted or track_of(v.puzzle).is_default(v.puzzle)]
    return Graded(path, tuple(verdicts))


def grade_puzzle(
    puzzle: Puzzle,
    session: Session,
    strict: bool = False,
    keep: bool = False,
    secret: str = "",
) -> Verdict:
    """The verdict on one puzzle; `strict`, `keep` and `secret` are the judge's."""
    track, definition = track_of(puzzle.slug), definition_in(session, puzzle.slug)
    if definition is None:
        return Verdict(puzzle.slug, track.name, "not_attempted", track.words.targets(puzzle))
    judging = judge(puzzle, definition, strict, keep, secret=secret)
    return run_judge(judging, SandboxRunner(session, track, puzzle.slug))


@dataclass(frozen=True, kw_only=True)
class SubmittedDefinition(Definition):
    """A definition in a file or notebook."""

    submission: Submission
    idle: Mapping[str, int] = field(default_factory=dict)
    """Packages of imports that nothing uses, with their lines."""

    def placed(self, text: str) -> str:
        return self.submission.placed(text)

    def source(self, line: int) -> str:
        return self.submission.line(line)

    def remarks(self) -> list[str]:
        return [
            f"line {line}: {package} is {NOT_INSTALLED}" for package, line in self.idle.items() if _is_missing(package)
        ]


def definition_in(session: Session, slug: str) -> SubmittedDefinition | None:
    """A submission's definition for a puzzle; None if it has none and no star import."""
    submission, survey = session.submission, dict[str, Any]()
    problem = submission.failure
    if problem is None:
        try:
            survey = session.read()
            problem = None if survey["problem"] is None else Failure(*survey["problem"])
        except SandboxLostError as why:
            problem = lost(why)
    if problem is not None:
        return SubmittedDefinition(submission.looks_defined(slug), problem=problem, submission=submission)
    lines, exists = survey["lines"], slug in survey["lines"] or slug in survey["broken"]
    if not exists and "*" not in lines:
        return None
    found = Sketch(*survey["sketches"].get(slug, ()))
    return SubmittedDefinition(exists, found, lines.get(slug, 0), submission=submission, idle=survey["idle"])


def _is_missing(package: str) -> bool:
    try:
        return find_spec(package) is None
    except ValueError:  # a module without a spec, such as __main__
        return False


def _default_puzzles(session: Session) -> Iterator[Puzzle]:
    """The puzzles that every file is graded on, and those that it seems to define; no others are loaded."""
    for slug, track in ALL.items():
        definition = definition_in(session, slug)
        if track.is_default(slug) or (definition is not None and definition.exists):
            yield track.puzzle(slug)
