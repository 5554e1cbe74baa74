"""Finds solutions that are the same in several submissions: the same program but for names, or the same run."""

import ast
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from puzzles.custom import home_of
from puzzles.failure import UNPARSABLE
from puzzles.grading.verdict import Graded, Verdict
from puzzles.sandbox.visible_files import INSTALL_ROOT
from puzzles.sandbox.worker.source import DIGEST, work
from puzzles.tracks import ALL, track_of


@dataclass
class CommonWork:
    """What every submission may contain: digests of programs, runs and lines of references and starters."""

    programs: set[str] = field(default_factory=set)
    runs: set[str] = field(default_factory=set)
    lines: set[str] = field(default_factory=set)

    def add(self, work: Sequence[str]) -> None:
        """Adds a solution as `Verdict.work` has it."""
        program, run, *lines = work
        self.programs.add(program)
        self.runs |= {run} - {""}
        self.lines |= {line[:DIGEST] for line in lines}


@dataclass(frozen=True)
class Same:
    """Submissions with the same solution of a puzzle: what they share, and the lines that all of them have."""

    puzzle: str
    what: str
    submissions: tuple[Graded, ...]
    lines: tuple[str, ...]


PROGRAM, RUN, BOTH = "the program, names aside", "the run", "the program, names aside, and the run"


def same_work(graded: Sequence[Graded], known: Mapping[str, CommonWork]) -> list[Same]:
    """The solutions that several submissions share, by puzzle; references and starters do not count."""
    found: list[Same] = []
    for slug in ALL:
        having = [(one, v) for one in graded for v in one.verdicts if v.puzzle == slug and v.attempted and v.work]
        mine = known.get(slug, CommonWork())
        programs = _groups(having, 0, mine.programs)
        runs = _groups(having, 1, mine.runs)
        for group in dict.fromkeys([*programs, *runs]):
            lines = _own_lines([v for one, v in having if one.path in group], mine.lines)
            what = BOTH if group in programs and group in runs else PROGRAM if group in programs else RUN
            if lines or what == RUN:
                found.append(Same(slug, what, tuple(one for one, _ in having if one.path in group), tuple(lines)))
    return found


def _groups(having: Iterable[tuple[Graded, Verdict]], place: int, known: set[str]) -> list[tuple[str, ...]]:
    """The paths of several submissions whose digests at a place are equal."""
    by_digest: dict[str, list[str]] = {}
    for one, verdict in having:
        digest = verdict.work[place]
        if digest and digest not in known:
            by_digest.setdefault(digest, []).append(one.path)
    return [tuple(paths) for paths in by_digest.values() if len(paths) > 1]


def _own_lines(verdicts: Sequence[Verdict], known: set[str]) -> list[str]:
    """The lines of the first that all have, without those that every submission may contain."""
    shared = set.intersection(*({line[:DIGEST] for line in v.work[2:]} for v in verdicts)) - known
    return [line[DIGEST + 1 :] for line in verdicts[0].work[2:] if line[:DIGEST] in shared]


Grade = Callable[[str, str], Graded]
"""Grades a puzzle in a file, both by name."""


def known_work(slugs: Iterable[str], grade: Grade) -> dict[str, CommonWork]:
    """What every submission may contain, for each puzzle; `grade` runs each solution once, for its run."""
    shipped = {file: _definitions(file.read_text(encoding="utf-8")) for file in _shipped()}
    return {slug: _known(slug, shipped, grade) for slug in slugs}


def _known(slug: str, shipped: dict[Path, dict[str, ast.stmt]], grade: Grade) -> CommonWork:
    known = CommonWork()
    files = dict(shipped)
    for file in _own(slug):
        files[file] = _definitions(file.read_text(encoding="utf-8-sig", errors="replace"))
    for file, definitions in files.items():
        if slug in definitions:
            (verdict,) = grade(str(file), slug).verdicts
            known.add(verdict.work or ("", ""))
    starter = _definitions(track_of(slug).puzzle(slug).starter)
    if slug in starter and (lines := work(slug, starter)):
        known.add((lines[0], "", *lines[1:]))
    return known


def _shipped() -> Iterator[Path]:
    return (file for file in sorted((INSTALL_ROOT / "solutions").rglob("*.py")) if not file.name.startswith("_"))


def _own(slug: str) -> list[Path]:
    home = home_of(slug)
    own = home.puzzles[slug] if home else None
    file = own.file.parent / own.reference if own and own.reference else None
    return [file] if file and file.is_file() else []


def _definitions(source: str) -> dict[str, ast.stmt]:
    """The functions and classes at the top of our own source, by name."""
    try:
        body = ast.parse(source).body
    except UNPARSABLE:
        return {}
    return {node.name: node for node in body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)}
