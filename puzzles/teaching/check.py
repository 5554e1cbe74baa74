"""Checks puzzles of teachers: texts, starter, reference, wrong solutions, records; finds what the reference scores.

A puzzle is tested like code: by running its solutions through the judge that students get, in the same sandbox. So a
check can neither be more lenient nor stricter than grading. Findings are facts or problems, and each problem says what
to write. What is measured is only returned; writing it into the file is another module's (`writing`). The game's own
puzzles are checked by the same code, in a clone. Whether a puzzle teaches something is not decided here, only that its
lesson cannot be skipped by the wrong solutions that its author names.
"""

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple

from lib.ledger.goal import figures_text
from puzzles.catalog.fields import OwnPuzzleError
from puzzles.catalog.puzzle import END_OF_GAP, GAP, Puzzle
from puzzles.custom import EDITS, TAKEN, TEXTS, OwnPuzzle, edited, shown, unfinished
from puzzles.failure import UNPARSABLE, of_source
from puzzles.judge.grader import grade_file
from puzzles.judge.judge import UNGRADABLE
from puzzles.judge.submission import Submission
from puzzles.judge.verdict import STATUSES, Verdict
from puzzles.sandbox.client import Client
from puzzles.sandbox.limits import Limits
from puzzles.teaching.writing import can_be_written
from puzzles.tracks import TRACKS
from puzzles.tracks.base import ReferenceRow

MIN_HINTS, MIN_WRONG = 2, 2


class Finding(NamedTuple):
    """What was found out about a puzzle: a fact, or something that is wrong or missing."""

    text: str
    is_problem: bool = False


@dataclass
class Check:
    """The checks of one puzzle. Once its reference has been run: `targets` are the tightest that it meets, and `rows`
    what the file should say of it, None if it says so."""

    own: OwnPuzzle
    limits: Limits
    client: Client
    targets: Mapping[str, float] | None = None
    rows: Sequence[ReferenceRow] | None = None

    def findings(self) -> Iterator[Finding]:
        """All findings, the texts first."""
        yield from self._texts()
        yield from self._starter()
        try:
            yield from self._reference()
            yield from self._wrong()
            yield from self._records()
        except OwnPuzzleError as why:
            yield Finding(str(why), True)

    def _texts(self) -> Iterator[Finding]:
        puzzle = self.own.puzzle
        if puzzle.slug in TAKEN:
            yield Finding(f"name: on the site '{puzzle.slug}' is {TAKEN[puzzle.slug]}; choose another name", True)
        for name in TEXTS:
            if not getattr(puzzle, name).strip():
                yield Finding(f"{name}: missing", True)
        drafts = unfinished(puzzle)
        for name in drafts:
            yield Finding(f"{name}: still to be replaced", True)
        if "hints" not in drafts and len(puzzle.hints) < MIN_HINTS:
            yield Finding(f"hints: write at least {MIN_HINTS}, from a nudge to the full idea", True)

    def _starter(self) -> Iterator[Finding]:
        puzzle = self.own.puzzle
        try:
            defined = [getattr(node, "name", "") for node in ast.parse(puzzle.starter).body]
        except UNPARSABLE as why:
            yield Finding(f"starter: {of_source(why).message}", True)
            return
        if puzzle.slug not in defined:
            yield Finding(f"starter: it does not define {puzzle.slug}", True)
        for mark in (GAP, END_OF_GAP):
            if mark not in puzzle.starter:
                yield Finding(f"starter: the line '{mark}' is missing", True)

    def _reference(self) -> Iterator[Finding]:
        if not self.own.reference:
            yield Finding("reference: missing; name the file of a solution", True)
            return
        verdict = self._graded(self.own.path(self.own.reference))
        if isinstance(verdict, str):
            yield Finding(f"reference: {verdict}", True)
            return
        if verdict.figures:
            self.targets = TRACKS[self.own.track].words.tightest(verdict.figures)
            lines = ", ".join(f"{name} = {limit:_}" for name, limit in self.targets.items())
            if self.own.has_targets:
                yield Finding(f"targets: the tightest that the reference meets are {lines}")
            else:
                yield Finding(f"targets: missing; add [targets] with {lines}, or use --write", True)
        if verdict.status != "passed":
            yield Finding(f"reference: {verdict.status.replace('_', ' ')}: {verdict.message}", True)
            return
        for note in verdict.notes:
            yield Finding(f"reference: {note}", True)
        yield Finding(f"reference: passed with {verdict.stars} of 3 stars")
        yield from self._reference_rows()

    def _reference_rows(self) -> Iterator[Finding]:
        """Compares what the file says of the reference with what it scores, at every size at which it works."""
        track, puzzle, file = TRACKS[self.own.track], self.own.puzzle, self.own.reference
        if track.references is None:
            return
        games = track.references.games(puzzle)
        verdicts = [(game, self._graded(self.own.path(file), game)) for game in games]
        rows = [
            track.references.row(game, puzzle, file, verdict.figures, verdict.family)
            for game, verdict in verdicts
            if isinstance(verdict, Verdict) and verdict.figures
        ]
        measured = [row for row in rows if row is not None]
        stated = track.references.stated(puzzle, file)
        if len(games) == 1:
            yield Finding("other_sizes: none, so a solution that works only at the shown size gets three stars")
        is_data, by_place = can_be_written(self.own), {row.place: row for row in measured}
        wrong = [row for row in stated if not any(row.agrees_with(one) for one in measured)]
        missing = [row for row in measured if row.place not in {one.place for one in stated}]
        older = [row for row in stated if row not in wrong and len(row.fields) < len(by_place[row.place].fields)]
        self.rows = measured if missing or wrong or older else None
        for row in missing:
            how = "--write adds that" if is_data else f"add {row.python}"
            yield Finding(f"{row.table}: the reference takes {row.words} {row.place}; {how}", True)
        for row in older:
            more = "; --write adds what is missing" if is_data else ""
            yield Finding(f"{row.table}: the reference takes {by_place[row.place].words} {row.place}{more}")
        for row in wrong:
            now = by_place.get(row.place)
            if now is None:
                how = "--write removes that" if is_data else f"remove {row.python}"
                yield Finding(f"{row.table}: the reference does not run {row.place}, which has a row; {how}", True)
            else:
                how = "--write corrects that" if is_data else f"have {now.python}"
                words = f"{row.words} {row.place}, but the reference takes {now.words}"
                yield Finding(f"{row.table}: it states {words}; {how}", True)

    def _wrong(self) -> Iterator[Finding]:
        if self.own.root is not None and not self.own.wrong:
            yield Finding("wrong: none here; the tests have solutions that skip its lesson")
        elif len(self.own.wrong) < MIN_WRONG:
            yield Finding(f"wrong: name at least {MIN_WRONG} wrong solutions, each with what it should get", True)
        for name, wanted in self.own.wrong.items():
            if not self.own.has_targets and wanted == "over_target":
                continue  # everything meets the targets of a draft
            verdict = self._graded(self.own.path(name))
            if isinstance(verdict, str):
                yield Finding(f"wrong: {verdict}", True)
            elif wanted not in (verdict.status, verdict.reason) or wanted in ("passed", "not_attempted"):
                got = verdict.reason or verdict.status
                why = f": {verdict.message}" if verdict.message else "; make it worse or lower the targets"
                yield Finding(f"wrong: {name} should get '{wanted}', but gets '{got}'{why}", True)
            else:
                yield Finding(f"wrong: {name}: {wanted}, as it should")

    def _records(self) -> Iterator[Finding]:
        for record in getattr(getattr(self.own.puzzle, "goal", None), "records", ()):
            file, variant = record.file_and_variant
            is_here = file.endswith(".py") and self.own.path(file).is_file()
            if record.by == self.own.reference or not is_here:
                continue
            verdict = self._graded(self.own.path(file), variant=variant)
            said = record.figures
            if (
                isinstance(verdict, str)
                or (verdict.timesteps, verdict.peak_memory, said[2] and verdict.traffic) != said
            ):
                words = verdict if isinstance(verdict, str) else verdict.message
                if isinstance(verdict, Verdict) and verdict.figures:
                    words = ", ".join(f"{name} {value:,}" for name, value in verdict.figures.items())
                yield Finding(f"records: {record.by} should reach {figures_text(*said)}: {words}", True)

    def _graded(self, path: Path, game: Puzzle | None = None, variant: str = "") -> Verdict | str:
        """The verdict on a file, or on a variant in its VARIANTS, as a solution of another game if one is given; a
        sentence if there is none."""
        if not path.is_file():
            return f"there is no file {shown(path)}"
        submission = Submission.read(path)
        if path.suffix == EDITS:
            reference = self.own.path(self.own.reference)
            if not reference.is_file():
                return f"{shown(path)} has edits of the reference, and there is no file {shown(reference)}"
            submission = Submission(path, edited(reference, path).encode())
        if variant:
            submission.text += f"\n\nglobals().update(VARIANTS[{variant!r}])\n"
        (verdict,) = grade_file(
            str(path), [game or self.own.puzzle], self.limits, submission=submission, client=self.client
        ).verdicts
        if verdict.reason == UNGRADABLE:
            raise OwnPuzzleError(verdict.message)
        if verdict.attempted:
            return verdict
        absent = f"{shown(path)} has no {self.own.slug}, or only the starter"
        return f"{shown(path)}: {verdict.message}" if verdict.message else absent


def require_expectations(own: OwnPuzzle, known: Mapping[str, Any]) -> None:
    """Refuses a wrong solution that should get a status or reason that does not exist."""
    for name, wanted in own.wrong.items():
        if wanted not in known and wanted not in STATUSES:
            near = get_close_matches(wanted, known, n=1)
            advice = f"did you mean '{near[0]}'?" if near else f"there are {', '.join(known)}"
            raise OwnPuzzleError(f"{shown(own.file)}, [wrong]: '{name}' should get '{wanted}'; {advice}")
