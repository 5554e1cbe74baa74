"""A plan puzzle: the texts that every puzzle has, a job, the seconds that a step may take, and what is known of it.

It is read from its file, whose job has names of presets and numbers that replace theirs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from lib import PuzzleError
from lib.planning import gpu, transformer
from lib.planning.job import DISPATCHERS, GIB, KERNELS, Job
from lib.planning.split import Split
from puzzles.catalog.fields import NO_LIMIT, Fields
from puzzles.catalog.puzzle import Paper, Puzzle, publication, texts_of

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


def read_puzzle(slug: str, fields: Fields) -> PlanPuzzle:
    targets = fields.table("targets", {"seconds": NO_LIMIT})
    best = targets.decimal("best", 0.0)
    seconds = targets.decimal("seconds", 0.0) if best else targets.decimal("seconds")
    job, tied = _job(fields.table("job")), targets.table("tied", {})
    puzzle = PlanPuzzle(
        slug=slug,
        job=job,
        best=best or seconds,
        target=seconds,
        tied={kind: tied.decimal(kind) for kind in tied.names},
        published=_published(fields.table("published"), job) if "published" in fields else None,
        fixed={"offload": "none"} | ({"recompute": "none"} if fields.flag("no_recomputation") else {}),
        **texts_of(fields),
    )
    targets.done()
    return puzzle


def _job(fields: Fields) -> Job:
    """The job: names of presets, with numbers that are replaced in the tables [job.changed_model] and
    [job.changed_gpu]."""
    changed = [fields.table(f"changed_{kind}", {}).rest() for kind in ("model", "gpu")]
    try:
        model = transformer(fields.text("model"), **changed[0])
        job = Job(
            model,
            gpu(fields.text("gpu"), **changed[1]),
            fields.number("gpus"),
            fields.number("batch"),
            fields.number("sequence", model.sequence),
            fields.one_of("kernels", KERNELS, KERNELS[0]),
            flash=fields.flag("flash", True),
            fp8=fields.flag("fp8"),
            overlap=fields.flag("overlap", True),
            dispatch=fields.one_of("dispatch", DISPATCHERS, DISPATCHERS[0]),
            ep_overlap=fields.flag("ep_overlap"),
            balanced=fields.flag("balanced"),
        )
    except PuzzleError as why:
        raise fields.refusal(str(why)) from None
    fields.done()
    return job


def _published(fields: Fields, job: Job) -> PublishedRun:
    """A run that was published; in its table [published.job] is what was different there."""
    differs = fields.table("job", {})
    changes: dict[str, Any] = {name: differs.flag(name) for name in ("flash", "overlap", "fp8") if name in differs}
    differs.done()
    run = PublishedRun(
        publication(fields, "source"),
        fields.text("text").strip(),
        _split(fields.table("split")) if "split" in fields else None,
        fields.decimal("seconds", 0.0),
        fields.decimal("predicted", 0.0),
        replace(job, **changes) if changes else None,
    )
    fields.done()
    return run


def _split(fields: Fields) -> Split:
    given = {name: fields.take(name, "", lambda content: True) for name in Split.__dataclass_fields__ if name in fields}
    fields.done()
    try:
        return Split(**{**given, "layers": tuple(given.get("layers", ()))})
    except (PuzzleError, TypeError) as why:
        raise fields.refusal(str(why)) from None
