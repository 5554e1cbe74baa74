"""A track whose runs are written down: rules of judging, points, progress and reports are tested without a sandbox.

`judged` gives the verdict on such runs. `Fakes` is the track; the fixture `fakes` registers it for a test.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from puzzles.catalog.puzzle import Puzzle
from puzzles.failure import Failure
from puzzles.judge.judge import Definition, judge, run_judge
from puzzles.judge.verdict import Verdict
from puzzles.tracks import PuzzleGroup, Track
from puzzles.tracks.base import Judge, Show, Words
from puzzles.tracks.outcomes import Measure, Row, RunOutcome, RunRequest, Score

TIME = 10
"""The target of every fake puzzle: at most this time."""

RIGHT = Score({"time": 8}, stars=3)
"""A run that nothing can beat."""

SLOW = Score({"time": 12}, missed=("it takes 12",), stars=1)
"""A correct run over the target."""

WRONG = Failure("rule", "a gradient is missing", 3)


@dataclass(frozen=True)
class FakeRun:
    """A run that the judge asks for, by the words of its size, and what comes of it."""

    size: str
    score: Score | Failure = RIGHT
    hidden: bool = True
    outcome: RunOutcome = RunOutcome(row={"kept": "the run"})  # noqa: RUF009  # immutable


def fake_puzzle(slug: str) -> Puzzle:
    return Puzzle(
        slug=slug,
        title=f"Title of {slug}",
        statement="Return 8.",
        starter=f"def {slug}():\n    assert False, 'TODO'\n",
        hints=("It is even.",),
        concept=f"Concept of {slug}.",
        in_practice="First practice. Second practice. Third practice.",
        sources=(),
        credit="",
    )


class FakeJudge(Judge[Puzzle]):
    stage = "answer_stage"
    track: Fakes

    def requests(self, puzzle: Puzzle) -> Iterator[RunRequest]:
        if self.track.breaks is not None:
            raise self.track.breaks
        for run in self.track.runs:
            yield RunRequest(run.size, {}, lambda row, run=run: run.score, run.hidden)  # type: ignore[misc]

    def kept(self, row: Row) -> str:
        return str(row.get("kept", ""))

    def row_of(self, text: str) -> Row:
        if text == "broken":
            raise ValueError("it is broken")
        return {"kept": text}


class FakeWords(Words[Puzzle]):
    columns = (("time", "time"),)
    third = ""
    """What the track says of the third star."""

    def targets(self, puzzle: Puzzle) -> Mapping[str, float]:
        return {"time": TIME}

    def measures(self, puzzle: Puzzle, figures: Mapping[str, float]) -> Sequence[Measure]:
        return [Measure.at_most("steps", figures.get("time"), TIME, "time")]

    def limits(self, puzzle: Puzzle) -> str:
        return f"At most {TIME}"

    def starter_head(self, puzzles: Sequence[Puzzle]) -> str:
        return ""

    def signature(self, slug: str) -> str:
        return f"def {slug}()"

    def record(self, puzzle: Puzzle, figures: Mapping[str, float], stars: int, family: str = "") -> str:
        return self.third


class Fakes(Track[Puzzle]):
    """Two chapters of two puzzles each; `runs` are those of every puzzle, `asked` the sizes that the judge ran."""

    name = "fakes"
    title = "Fakes"
    idea = "outcomes that are written down"
    words: FakeWords

    def __init__(self) -> None:
        self.judge, self.words, self.show = FakeJudge(self), FakeWords(self), Show(self)
        self.runs: Sequence[FakeRun] = ()
        self.breaks: Exception | None = None
        """What asking for a run raises."""
        self.asked: list[str] = []

    @property
    def groups(self) -> Sequence[PuzzleGroup]:
        return [
            PuzzleGroup("fakes-1", "First fakes", "", ("fake_a", "fake_b")),
            PuzzleGroup("fakes-2", "Second fakes", "", ("fake_c", "fake_d")),
        ]

    def puzzle(self, slug: str) -> Puzzle:
        return fake_puzzle(slug)

    def run(self, request: RunRequest) -> RunOutcome:
        self.asked.append(request.size)
        (outcome,) = (run.outcome for run in self.runs if run.size == request.size)
        return outcome


def judged(
    track: Fakes,
    *runs: FakeRun,
    definition: Definition = Definition(),  # noqa: B008  # immutable
    **options: bool,
) -> Verdict:
    """The verdict on a definition of `fake_a` with these runs, the shown size first; `options` are the judge's."""
    track.runs, track.asked = runs, []
    return run_judge(judge(track.puzzle("fake_a"), definition, **options), track.run)


def a_verdict(slug: str = "fake_a", status: str = "passed", stars: int = 2, **fields: Any) -> Verdict:
    """A verdict that nobody had to run for."""
    return Verdict(slug, "fakes", status, {"time": TIME}, stars=stars, **fields)
