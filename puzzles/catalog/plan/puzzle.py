"""A plan puzzle: the texts that every puzzle has, a job, the seconds that a step may take, and what is known of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from lib.planning.job import GIB, Job
from lib.planning.split import Split
from puzzles.catalog.paper import Paper
from puzzles.catalog.puzzle import Puzzle

NEAR, EQUAL = 1.05, 1.01
"""A plan has two stars within 5 % of the best known, three within 1 %: the model knows no better."""


@dataclass(frozen=True)
class PublishedRun:
    """What the people did who trained this model: a sentence; and if they state the time of a step of this job on these
    GPUs, their `split`, their `seconds`, and the seconds that are `predicted` for `job`, which is the puzzle's unless
    their software differed."""

    source: Paper
    text: str
    split: Split | None = None
    seconds: float = 0.0
    predicted: float = 0.0
    job: Job | None = None


@dataclass(frozen=True, kw_only=True)
class PlanPuzzle(Puzzle):
    """A function to write, which takes the job and returns a Split."""

    job: Job
    best: float
    """Seconds of a step of the best known plan."""
    target: float = 0.0
    """Seconds for two stars: 0 for 5 % more than the best, and 1 % more than every tied kind of split."""
    tied: Mapping[str, float] = field(default_factory=dict)
    """Seconds of the best of every other kind of split (see `lib.planning.plans`) that is within 10 % of the best
    known: the model cannot tell these apart."""
    published: PublishedRun | None = None
    fixed: Mapping[str, Any] = field(default_factory=lambda: {"offload": "none"})
    """Fields of the split that are given. The memory of a host is no cheap answer unless a puzzle says so."""

    @property
    def seconds(self) -> float:
        """The target in seconds."""
        return self.target or round(max([self.best * NEAR, *(seconds * EQUAL for seconds in self.tied.values())]), 3)

    @property
    def gib(self) -> float:
        """GiB of a GPU that are for training."""
        return round(self.job.gpu.usable / GIB, 1)

    def third_star(self, seconds: float, family: str) -> bool:
        """Whether nothing better is known than a plan of this kind with so long a step."""
        return seconds <= max(self.best, self.tied.get(family, 0)) * EQUAL
