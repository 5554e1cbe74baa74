"""Data exchanged by the judge and a track: run requests, run outcomes, scores."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from puzzles.failure import Failure

Row = Mapping[str, Any]
"""The plain data that a run sends back, by name. It comes from the player's process, and is not trusted."""

SEE_NOTE = "See the note for the third star."
"""What a track says of a record where no known solution is better, and a note is what costs the star."""


class Score(NamedTuple):
    """The score of a correct run: its figures by name, the targets that it misses in words, its stars, and notes."""

    figures: Mapping[str, float]
    missed: tuple[str, ...] = ()
    stars: int = 0
    notes: tuple[str, ...] = ()
    advice: str = ""
    """A sentence on how to meet the missed targets, where the run itself shows one."""
    why: tuple[str, ...] = ()
    """Lines that explain figures: what a schedule's peak consists of, and its calls. Shown on request."""
    why_matters: bool = False
    """True if such a figure misses a target; then they are always shown."""
    family: str = ""
    """The kind of solution in a phrase, where the run shows it: 'a pipeline'."""
    remark: str = ""
    """At a further size: what is much worse there than it should be. It is noted on a pass, and costs a star."""
    second_step: str = ""
    """The higher peak of a second step, and its reason, if there is one."""


@dataclass(frozen=True)
class RunRequest:
    """One run of a player's definition: the size in words, the data that the worker gets, and how the row that comes
    back is scored. Sizes that are `hidden` are in no statement: a failure there becomes a note on a pass."""

    size: str
    data: Mapping[str, Any]
    score: Callable[[Row], Score | Failure | FurtherRun]
    hidden: bool = True
    own: Callable[[], Row] | None = None
    """For a run of the judge's own, which runs no code of the player and takes nothing from the player's time: makes
    it in this process, where there is no sandbox."""

    def score_of(self, outcome: RunOutcome) -> Score | Failure | FurtherRun:
        """The score of this run's outcome, or the reason why it has none; or the run whose score counts instead."""
        if outcome.failure is not None:
            return outcome.failure
        score = self.score(outcome.row or {})
        return outcome.explained(score) if isinstance(score, Failure) else score


FurtherRun = Callable[[str], RunRequest]
"""A run that follows from an earlier one, and from a secret of the grader that no player's code knows."""


class RunOutcome(NamedTuple):
    """Result of a run. With neither row nor failure there was no definition of that name."""

    row: Row | None = None
    failure: Failure | None = None
    forgotten: str = ""
    """Python's remark on a coroutine of the player's that was never awaited, if there is one."""
    printed: str = ""
    took: float = 0.0
    """Seconds."""

    @property
    def is_absent(self) -> bool:
        return self.row is None and self.failure is None

    def explained(self, failure: Failure) -> Failure:
        """The failure with the remark on a forgotten coroutine, which is its likely cause."""
        if not self.forgotten:
            return failure
        return failure._replace(sentence=f"{failure.sentence}; {self.forgotten}, so it did not run")


class LocalRun(NamedTuple):
    """A run in this process: its row, and the exception that ended it, with a prefix such as 'rank 0, t=3'."""

    row: Row | None = None
    error: BaseException | None = None
    prefix: str = ""
    failure: Failure | None = None
    """A failure that the run reports without an exception."""


class Measure(NamedTuple):
    """A figure and its target; None where nothing was measured. The target is met at `target`; if `below` says how
    it is shown, as in '< 34', only below it."""

    words: str
    value: float | None
    target: float
    met: bool = False
    below: str = ""
    figure: str = ""
    """The figure's name, by which a column of a table finds it."""
    for_star: bool = False
    """True if a pass may miss the target, which decides the third star."""

    @classmethod
    def at_most(cls, words: str, value: float | None, target: float, figure: str = "") -> Measure:
        """A figure that meets its target at or below it."""
        return cls(words, value, target, value is not None and value <= target, figure=figure)

    @classmethod
    def below_limit(cls, words: str, value: float | None, limit: float, shown: str, figure: str = "") -> Measure:
        """A figure that meets its target only below the limit, which is shown as in '< 34'."""
        return cls(words, value, limit, value is not None and value < limit, shown, figure)

    @property
    def target_text(self) -> str:
        return (self.below or f"{self.target:,}") + (" for the third star" if self.for_star else "")

    @property
    def value_text(self) -> str:
        return "-" if self.value is None else number_text(self.value)

    @property
    def target_cell(self) -> str:
        """The target beside the figure in a table: '(< 34)', 'of 12,288'."""
        return f"({self.below})" if self.below else f"of {self.target:,}"

    def text(self) -> str:
        """'12,288 of 12,288 bytes moved'; '33.3 timesteps (target < 34)'."""
        if self.below:
            return f"{self.value_text} {self.words} (target {self.target_text})"
        return f"{self.value_text} of {self.target:,} {self.words}"


def number_text(value: float) -> str:
    """12288 as '12,288', 19.9 as '19.9'."""
    return f"{value:,}" if isinstance(value, int) else f"{value:,.9g}"


def amount(value: float, words: str) -> str:
    """'2 timesteps', '1 timestep', '1 element on the host', '1 us'; `words` begin with a plural or an abbreviation."""
    unit, blank, more = words.partition(" ")
    return f"{number_text(value)} {unit.removesuffix('s') if value == 1 and len(unit) > 2 else unit}{blank}{more}"


def listed(words: Sequence[str]) -> str:
    """'a', 'a and b', 'a, b and c'."""
    return " and ".join(filter(None, [", ".join(words[:-1]), words[-1]]))


def stars_text(stars: int, full: str = "★", empty: str = "☆") -> str:
    """Two of three stars as '★★☆'."""
    return full * stars + empty * (3 - stars)


def capitalized(text: str) -> str:
    """A text with its first letter capitalized."""
    return text[:1].upper() + text[1:]
