"""Checks puzzles of teachers: texts, starter, reference, wrong solutions, records; finds targets by the reference."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from puzzles.catalog.fields import OwnPuzzleError
from puzzles.catalog.puzzle import END_OF_GAP, GAP
from puzzles.own.drafts import PLACEHOLDER
from puzzles.own.puzzle_file import OwnPuzzle
from puzzles.sandbox.client import Client
from puzzles.sandbox.limits import Limits
from puzzles.sandbox.tiers import Tier
from puzzles.tracks import TRACKS

from .grader import grade_file
from .verdict import STATUSES, Verdict

TEXTS = ("title", "statement", "starter", "concept", "in_practice")
MIN_HINTS, MIN_WRONG = 2, 2


class Finding(NamedTuple):
    """What was found out about a puzzle: a fact, or something that is wrong or missing."""

    text: str
    is_problem: bool = False


@dataclass
class Check:
    """The checks of one puzzle. `targets` are the tightest that its reference meets, once that has been run."""

    own: OwnPuzzle
    limits: Limits
    client: Client
    tier: Tier
    targets: Mapping[str, int] | None = None

    def findings(self) -> Iterator[Finding]:
        """Everything that can be said, the texts first."""
        yield from self._texts()
        yield from self._starter()
        yield from self._reference()
        yield from self._wrong()
        yield from self._records()

    def _texts(self) -> Iterator[Finding]:
        puzzle = self.own.puzzle
        for name in TEXTS:
            text = getattr(puzzle, name).strip()
            if not text or PLACEHOLDER in text:
                yield Finding(f"{name}: {'still to be replaced' if text else 'missing'}", True)
        if len(puzzle.hints) < MIN_HINTS or any(PLACEHOLDER in hint for hint in puzzle.hints):
            yield Finding(f"hints: write at least {MIN_HINTS}, from a nudge to the full idea", True)

    def _starter(self) -> Iterator[Finding]:
        puzzle = self.own.puzzle
        try:
            defined = [getattr(node, "name", "") for node in ast.parse(puzzle.starter).body]
        except SyntaxError as why:
            yield Finding(f"starter: line {why.lineno}: {why.msg}", True)
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
            self.targets = TRACKS[self.own.track].tightest(verdict.figures)
            yield self._target_finding()
        if verdict.status != "passed":
            yield Finding(f"reference: {verdict.status.replace('_', ' ')}: {verdict.message}", True)
            return
        for note in verdict.notes:
            yield Finding(f"reference: {note}", True)
        yield Finding(f"reference: passed with {verdict.stars} of 3 stars")

    def _target_finding(self) -> Finding:
        lines = ", ".join(f"{name} = {limit:_}" for name, limit in (self.targets or {}).items())
        if self.own.has_targets:
            return Finding(f"targets: the tightest that the reference meets are {lines}")
        return Finding(f"targets: missing; add [targets] with {lines}, or say --write", True)

    def _wrong(self) -> Iterator[Finding]:
        if len(self.own.wrong) < MIN_WRONG:
            yield Finding(f"wrong: name at least {MIN_WRONG} wrong solutions, each with what it should get", True)
        for name, wanted in self.own.wrong.items():
            if not self.own.has_targets and wanted == "over_target":
                continue  # everything meets the targets of a draft
            verdict = self._graded(self.own.path(name))
            if isinstance(verdict, str):
                yield Finding(f"wrong: {verdict}", True)
            elif wanted not in (verdict.status, verdict.reason) or wanted in ("passed", "not_attempted"):
                got = verdict.reason or verdict.status
                yield Finding(f"wrong: {name} should get '{wanted}', and gets '{got}': {verdict.message}", True)
            else:
                yield Finding(f"wrong: {name}: {wanted}, as it should")

    def _records(self) -> Iterator[Finding]:
        for record in getattr(getattr(self.own.puzzle, "goal", None), "records", ()):
            if not record.by.endswith(".py") or not self.own.path(record.by).is_file():
                continue
            verdict = self._graded(self.own.path(record.by))
            said = (record.timesteps, record.peak_memory)
            if isinstance(verdict, str) or (verdict.timesteps, verdict.peak_memory) != said:
                words = verdict if isinstance(verdict, str) else _figures(verdict.figures) or verdict.message
                yield Finding(f"records: {record.by} should reach {said[0]:g} and {said[1]:,}: {words}", True)

    def _graded(self, path: Path) -> Verdict | str:
        """The verdict on a file; a sentence if there is none."""
        if not path.is_file():
            return f"there is no file {path}"
        (verdict,) = grade_file(str(path), [self.own.puzzle], self.limits, self.tier, client=self.client).verdicts
        return verdict if verdict.attempted else f"{path} has no {self.own.slug}, or only the starter"


def write_targets(own: OwnPuzzle, targets: Mapping[str, int]) -> None:
    """Adds targets to the file of a puzzle that has none.

    Raises:
        OwnPuzzleError: the file cannot be written, or is no TOML file.
    """
    if own.has_targets or own.file.suffix != ".toml":
        raise OwnPuzzleError(f"{own.file}: it has targets already")
    text = "".join(f"{name} = {limit:_}\n" for name, limit in targets.items())
    try:
        with open(own.file, "a", encoding="utf-8", newline="\n") as file:
            file.write(f"\n[targets]\n{text}")
    except OSError as why:
        raise OwnPuzzleError(f"{own.file}: {why.strerror}") from None


def _figures(figures: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value:,}" for name, value in figures.items())


def require_expectations(own: OwnPuzzle, known: Mapping[str, Any]) -> None:
    """Refuses a wrong solution that is to get something that no verdict says.

    Raises:
        OwnPuzzleError: naming it.
    """
    for name, wanted in own.wrong.items():
        if wanted not in known and wanted not in STATUSES:
            raise OwnPuzzleError(f"{own.file}, [wrong]: '{name}' is to get '{wanted}'; there are {', '.join(known)}")
