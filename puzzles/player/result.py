"""The result of a puzzle in a notebook: the verdict, its picture, the place in the player's code, the next step."""

import linecache
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from puzzles.catalog.puzzle import Puzzle
from puzzles.judge.verdict import Verdict
from puzzles.screens.feedback import HEADLINES, details, story, what_next
from puzzles.tracks import Track, as_lines, differing_lines, reference_file, track_of
from puzzles.tracks.outcomes import Measure, stars_text

from .display import Shown, SourceLine, displayed, rendered

PUPPY = r"""
   / \__
  (    @\___
  /         O     woof, woof, woof!
 /   (_____/
/_____/   U
"""


@dataclass(frozen=True, repr=False)
class Result(Shown):
    """One play of one puzzle: `status` is passed, over_target, failed or not_attempted, as in the grader."""

    puzzle: Puzzle
    verdict: Verdict
    file: str = ""
    """The file or cell of the definition."""
    explains: bool = False
    """True if the player asks for the explanation of the peak."""
    colour: str = "layer"
    """What the colours of operations show in its picture."""

    @property
    def track(self) -> Track[Any]:
        return track_of(self.puzzle.slug)

    @property
    def status(self) -> str:
        return self.verdict.status

    @property
    def stars(self) -> int:
        return self.verdict.stars

    @property
    def reason(self) -> str:
        """The reason of a failure, in one word."""
        return self.verdict.reason or ""

    @property
    def message(self) -> str:
        return self.verdict.message

    @property
    def notes(self) -> tuple[str, ...]:
        return self.verdict.notes

    @property
    def shown_notes(self) -> tuple[str, ...]:
        """The notes, which are explanations on a pass: there only where they are asked for."""
        return self.notes if self.explains or self.status != "passed" else ()

    @property
    def why(self) -> tuple[str, ...]:
        """What the peak of a correct schedule consists of, as lines."""
        return self.verdict.why

    @property
    def shown_why(self) -> tuple[str, ...]:
        """The same where it is asked for, or where the peak is over target."""
        return self.why if self.explains or self.verdict.why_matters else ()

    @property
    def values(self) -> Mapping[str, float]:
        """The figures by name, if the solution is correct."""
        return self.verdict.figures

    @property
    def measures(self) -> Sequence[Measure]:
        """The figures with their targets, if the solution is correct."""
        return self.track.words.measures(self.puzzle, self.values) if self.values else ()

    @property
    def place(self) -> SourceLine:
        """The line that the message is about."""
        return SourceLine(self.verdict.file or self.file, self.verdict.line)

    @cached_property
    def trace(self) -> Any:
        """The run at the shown size: a schedule's Trace, as far as it got; a layout's plan; else None."""
        return self.track.judge.restored(self.puzzle, self.verdict.trace) if self.verdict.trace else None

    @cached_property
    def report(self) -> Any:
        """The referee's Report on a correct schedule; else None."""
        return self.track.judge.report(self.puzzle, self.trace) if self.values and self.trace is not None else None

    @property
    def picture(self) -> str:
        """The run, as far as it got, as SVG; empty if nothing happened or nothing can be drawn here."""
        trace = self.verdict.trace
        return self.track.show.picture(self.puzzle, trace, judged=False, colour=self.colour) if trace else ""

    @property
    def beside_reference(self) -> tuple[str, ...]:
        """The lines in which the player's source and the reference differ; none where one of them is not known."""
        reference = reference_file(self.puzzle.slug)
        if reference is None or not self.file:
            return ()
        mine, theirs = "".join(linecache.getlines(self.file)), reference.read_text(encoding="utf-8")
        found = differing_lines(mine, theirs, self.puzzle.slug)
        return () if found is None else tuple(as_lines(found))

    @property
    def headline(self) -> str:
        return HEADLINES[self.status]

    @property
    def stars_text(self) -> str:
        return stars_text(self.stars)

    @property
    def figures(self) -> str:
        """The figures with their targets, if the solution is correct."""
        return self.track.words.figures_text(self.puzzle, self.values) if self.values else ""

    @property
    def next_step(self) -> str:
        """A sentence on what to do next."""
        slug = self.puzzle.slug
        match self.status:
            case "not_attempted":
                return f"Write your lines between the two marks in {slug}, run that cell, then this one again."
            case "failed":
                return f"Fix it, and play again. Hints are below the puzzle; `puzzles hint {slug}` shows them too."
            case "over_target":
                more = f"`puzzles hint {slug}` gives a hint, `puzzles show {slug} --about` explains the idea."
                return " ".join(filter(None, [self.verdict.advice, more]))
        return " ".join(
            [*story(self.verdict), *(details(self.verdict) if self.explains else ()), what_next(slug, [slug])]
        )

    def __repr__(self) -> str:
        return f"<{self.puzzle.slug}: {self.status.replace('_', ' ')}, {self.stars_text}>"

    def text(self) -> str:
        """The result in plain text."""
        lines = [f"{self.stars_text} {self.puzzle.slug}: {self.headline} {self.figures}"]
        lines += [self.message] if self.message else []
        lines += [f"{'->' if n == self.place.line else '  '} {n:>4} {code}" for n, code in self.place.excerpt()]
        lines += [f"Note: {note}" for note in self.shown_notes]
        lines += self.shown_why
        return "\n".join(line.rstrip() for line in [*lines, self.next_step])

    def as_dict(self) -> dict[str, Any]:
        """The fields of `puzzles grade --json`, for programs."""
        return self.verdict.as_json()

    def page(self) -> str:
        return rendered("page", self, self.picture)

    @property
    def reward(self) -> str:  # type: ignore[override]
        """For three stars."""
        return f"\n{PUPPY}\n{self.puzzle.praise}" if self.stars == 3 else ""

    def compare(self) -> None:
        """Shows the reference's run beside this one, and the lines that differ."""
        track, trace = self.track, self.verdict.trace
        text = "\n".join(self.beside_reference) or f"there is no reference of {self.puzzle.slug} here"

        def page() -> str:
            picture = track.show.beside_reference(self.puzzle, trace, self.colour)
            return rendered("compared", text.splitlines(), picture)

        displayed(text, page)
