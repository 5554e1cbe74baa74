"""Reads a plan puzzle from the fields of its file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from lib import PuzzleError
from lib.planning import Job, Split, gpu, transformer
from lib.planning.job import DISPATCHERS, KERNELS
from puzzles.catalog.fields import NO_LIMIT, Fields
from puzzles.catalog.reading import publication, texts_of

from .puzzle import PlanPuzzle, PublishedRun


def read_puzzle(slug: str, fields: Fields) -> PlanPuzzle:
    targets = fields.table("targets", {"seconds": NO_LIMIT})
    best = targets.decimal("best", 0.0)
    seconds = targets.decimal("seconds", 0.0) if best else targets.decimal("seconds")
    job = _job(fields.table("job"))
    puzzle = PlanPuzzle(
        slug=slug,
        job=job,
        best=best or seconds,
        target=seconds,
        tied=_tied(targets.table("tied", {})),
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


def _tied(fields: Fields) -> Mapping[str, float]:
    return {kind: fields.decimal(kind) for kind in fields.names}


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
