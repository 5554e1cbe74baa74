"""A submission as tests for an autograder, which shows each student their own: points, and what there is to say."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import click

from puzzles.course.points import Scoring
from puzzles.grading.judge import SHOWN_SIZE_ONLY
from puzzles.grading.verdict import Graded, Verdict
from puzzles.tracks import UnknownPuzzleError, find_several, track_of

VISIBILITIES = ("visible", "hidden", "after_due_date", "after_published")
OTHER_SIZES = "other-sizes"
OPTION = re.compile(r"[,;:] [^,;:.]*\B--\w[^;.]*")
"""The part of a sentence that advises an option of the command line."""


@dataclass(frozen=True)
class Visibility:
    """When a student sees results; of some puzzles another time. With `other_sizes`, each puzzle has a second test for
    what works only at the shown size, which is seen then."""

    usual: str = "visible"
    of: Mapping[str, str] = field(default_factory=dict)
    other_sizes: str = ""


def parse_visibility(text: str) -> Visibility:
    """'after_due_date,fsdp=hidden,other-sizes=hidden' as a rule.

    Raises:
        click.UsageError: naming what is unknown.
    """
    usual, of, other_sizes = "visible", dict[str, str](), ""
    for part in text.split(","):
        name, is_pair, when = part.partition("=") if "=" in part else ("", "", part)
        if when not in VISIBILITIES:
            raise click.UsageError(f"--visibility: there is no '{when}'; there are {', '.join(VISIBILITIES)}")
        if not is_pair:
            usual = when
        elif name == OTHER_SIZES:
            other_sizes = when
        else:
            try:
                of |= dict.fromkeys(find_several(name), when)
            except UnknownPuzzleError as why:
                raise click.UsageError(f"--visibility: {why}") from None
    return Visibility(usual, of, other_sizes)


@dataclass(frozen=True)
class StudentTest:
    """A test with its points; `verdict` is what a student may read of it."""

    name: str
    verdict: Verdict
    score: float
    most: float
    visibility: str
    passed: bool


def student_tests(graded: Graded, scoring: Scoring, visibility: Visibility) -> Iterator[StudentTest]:
    """The tests of a submission: one for each puzzle, or two."""
    for given in graded.verdicts:
        verdict, slug = _readable(given), given.puzzle
        name = track_of(slug).listed_as(track_of(slug).puzzle(slug))
        when, passed = visibility.of.get(slug, visibility.usual), verdict.status == "passed"
        score, most = scoring.score(graded, verdict), scoring.most(slug)
        if not visibility.other_sizes:
            yield StudentTest(name, verdict, score, most, when, passed)
            continue
        shown = scoring.shown_size
        full = scoring.score(graded, replace(verdict, shown_size_only=False, stars=min(verdict.stars, 2)))
        yield StudentTest(name, _without_note(verdict), round(full * shown, 4), most * shown, when, passed)
        rest, works = round(score - round(full * shown, 4), 4), verdict.status in ("passed", "over_target")
        hidden = replace(verdict, trace="", notes=tuple(note for note in verdict.notes if _is_note(note)))
        yield StudentTest(
            f"{name}, at other sizes", hidden, rest, most * (1 - shown), visibility.other_sizes,
            works and not verdict.shown_size_only,
        )  # fmt: skip


def _readable(verdict: Verdict) -> Verdict:
    """A verdict without advice on options, which the students of an autograder do not have."""

    def cut(text: str) -> str:
        return OPTION.sub("", text)

    return replace(
        verdict, message=cut(verdict.message), advice=cut(verdict.advice), notes=tuple(map(cut, verdict.notes))
    )


def _without_note(verdict: Verdict) -> Verdict:
    notes = tuple(note for note in verdict.notes if not _is_note(note))
    return replace(verdict, notes=notes, shown_size_only=False)


def _is_note(note: str) -> bool:
    return note.startswith(SHOWN_SIZE_ONLY)
