"""Reads a plan puzzle from the fields of a file."""

from lib import PuzzleError
from lib.planning import Job, gpu, transformer
from lib.planning.job import KERNELS
from puzzles.catalog.fields import NO_LIMIT, Fields, OwnPuzzleError, texts_of
from puzzles.catalog.plan.puzzle import PlanPuzzle


def read_puzzle(slug: str, fields: Fields) -> PlanPuzzle:
    targets = fields.table("targets", {"seconds": NO_LIMIT})
    seconds = targets.decimal("seconds")
    puzzle = PlanPuzzle(
        slug=slug,
        job=_job(fields.table("job")),
        best=targets.decimal("best", seconds),
        target=seconds,
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
            fp8=fields.flag("fp8"),
        )
    except PuzzleError as why:
        raise OwnPuzzleError(f"{fields.where}: {why}") from None
    fields.done()
    return job
