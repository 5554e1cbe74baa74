"""Finds solutions that are the same in several submissions: the same program but for names, or the same run."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from puzzles.grading.verdict import Graded, Verdict
from puzzles.sandbox.worker.work import DIGEST
from puzzles.tracks import ALL


@dataclass
class CommonWork:
    """What everybody may have: digests of programs, runs and lines of references and starters."""

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
    """Submissions with the same solution of a puzzle: what of it is the same, and their own lines that all have."""

    puzzle: str
    what: str
    submissions: tuple[Graded, ...]
    lines: tuple[str, ...]


PROGRAM, RUN, BOTH = "the program, names aside", "the run", "the program, names aside, and the run"


def same_work(graded: Sequence[Graded], known: Mapping[str, CommonWork]) -> list[Same]:
    """The solutions that several submissions share, by puzzle; those of a reference or a starter do not count."""
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
    """The lines of the first that all have, but for those that everybody may have."""
    shared = set.intersection(*({line[:DIGEST] for line in v.work[2:]} for v in verdicts)) - known
    return [line[DIGEST + 1 :] for line in verdicts[0].work[2:] if line[:DIGEST] in shared]
