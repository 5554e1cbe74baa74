"""Gathers the verdicts on a submission's files: of each puzzle the best solution counts."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from puzzles.failure import sanitized
from puzzles.grading.verdict import LOST, Graded, Verdict
from puzzles.tracks import ALL, default_slugs, track_of

from .handed_in import Submitted

NO_FILE = "there is no .py or .ipynb here"
MISSING = "nothing was handed in"


class Gathering:
    """The submissions of a class, as their files are graded one by one."""

    def __init__(
        self,
        submitted: Sequence[Submitted],
        slugs: Sequence[str],
        worth: Callable[[Verdict], float],
        finish: Callable[[Graded], Graded] = lambda graded: graded,
        aliases: Mapping[str, str] | None = None,
    ) -> None:
        """`slugs` that were asked for, or none; `worth` of a verdict in points; `finish` is called with each submission
        that is graded, and returns what to keep of it; `aliases` by path, where nobody is to be named."""
        self._submitted = submitted
        self._slugs = slugs
        self._worth = worth
        self._finish = finish
        self._owner = {file.path: one for one in submitted for file in one.files}
        self._files: dict[str, dict[str, Graded]] = {one.path: {} for one in submitted}
        self._done: dict[str, Graded] = {}
        self._names = names_of(submitted)
        self._aliases = aliases

    def add(self, graded: Graded) -> Graded:
        """Takes the verdicts on a file; returns them without the runs."""
        one = self._owner[graded.path]
        mine = self._files[one.path]
        mine[graded.path] = graded
        if len(mine) == len(one.files):
            self._done[one.path] = self._finish(self._merged(one, [mine[file.path] for file in one.files]))
            mine.clear()
        return without_runs(graded)

    def all(self) -> list[Graded]:
        """The submissions in their order, or in the order of their aliases. Of those without a file that could be
        graded, nothing was attempted."""
        for one in self._submitted:
            if not one.files:
                self._done[one.path] = self._finish(self._blank(one))
        found = [self._done[one.path] for one in self._submitted]
        return sorted(found, key=lambda one: one.path) if self._aliases else found

    def _merged(self, one: Submitted, files: Sequence[Graded]) -> Graded:
        found: dict[str, list[Verdict]] = {}
        for file in files:
            for verdict in file.verdicts:
                mine = replace(verdict, found_in=file.path) if len(files) > 1 else verdict
                found.setdefault(verdict.puzzle, []).append(mine)
        best = tuple(max(found[slug], key=self._rank) for slug in ALL if slug in found)
        return self._graded(one, best)

    def _rank(self, verdict: Verdict) -> tuple[object, ...]:
        """Greater is better. A lost verdict comes before a failure, so that it is seen and graded again."""
        better = tuple(-figure for figure in verdict.figures.values())
        return self._worth(verdict), verdict.stars, verdict.reason == LOST, verdict.attempted, better

    def _blank(self, one: Submitted) -> Graded:
        words = MISSING if one.is_missing else NO_FILE
        verdicts = []
        for slug in self._slugs or default_slugs():
            track = track_of(slug)
            targets = track.targets(track.puzzle(slug))
            verdicts.append(Verdict(slug, track.name, "not_attempted", targets, message=words))
        return self._graded(one, tuple(verdicts))

    def _graded(self, one: Submitted, verdicts: tuple[Verdict, ...]) -> Graded:
        if self._aliases is None:
            return Graded(one.path, verdicts, one.student, self._names[one.path])
        alias = self._aliases[one.path]
        unnamed = tuple(replace(v, found_in="") if v.found_in else v for v in verdicts)
        return Graded(alias, unnamed, one.student, alias, is_anonymous=True)


def without_runs(graded: Graded) -> Graded:
    """The same verdicts without the runs that were kept with them."""
    return replace(graded, verdicts=tuple(replace(v, trace="") if v.trace else v for v in graded.verdicts))


def names_of(submitted: Sequence[Submitted]) -> dict[str, str]:
    """What reports call each submission, by its path: the student's name, with something else if several have it;
    empty where no name is known."""
    often = Counter(one.student.name for one in submitted)
    return {
        one.path: sanitized(
            one.student.name
            if often[one.student.name] == 1 or not one.student.name
            else f"{one.student.name} ({next(iter(one.student.identifiers), one.key)})"
        )
        for one in submitted
    }
