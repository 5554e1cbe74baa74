"""What is said of a plan puzzle: its targets and figures, the job's numbers, the calls, and what others did."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from puzzles.tracks import base
from puzzles.tracks.base import Section
from puzzles.tracks.outcomes import Measure

if TYPE_CHECKING:
    from lib.planning import Job
    from puzzles.catalog.plan import PlanPuzzle

SHOWN_TIED = 2
"""Kinds of splits that a sentence names."""

CALLS = (
    (
        "Split(dp=1, tp=1, pp=1, cp=1, ep=1)",
        "The number of ranks along each axis. dp x tp x pp x cp is the number of GPUs, and ep divides dp x cp x tp.",
    ),
    ("zero=1, shards=0", "The stage of ZeRO, 0 to 3 (FSDP). With shards=8, eight replicas share shards (HSDP)."),
    (
        "schedule='1f1b', chunks=1, microbatch=1",
        "The schedule may also be gpipe, interleaved or breadth_first (with chunks), zb_h1 or zb_v. A microbatch is a "
        "number of sequences.",
    ),
    (
        "recompute='none', every=1, offload='none'",
        "Recompute may also be selective, ops or full; offload states or activations to the host.",
    ),
    (
        "sp=True, layers=(), warmup=0",
        "Sequence parallelism with tp; the layers of each stage; the forwards that an interleaved rank runs first.",
    ),
    ("job.model, job.gpu, job.gpus, job.batch", "The job as data, such as job.model.layers and job.gpu.machine."),
)

PREDICT = (
    (
        "return Split(...), Prediction(gib=60, dominates='bubble')",
        "Before you grade, predict two things and return them after the split. How many GiB does the fullest GPU "
        "hold? What takes the most time, apart from computing everything once: recomputation, tp, cp, ep (all that "
        "experts cost besides their matrix products), replicas, host or bubble? The verdict compares.",
    ),
)

COUNTED = (
    ("seconds", "The time of a step, played as a schedule with the costs of 'puzzles plan'."),
    (
        "GiB",
        "The memory of the fullest GPU, in fused and in eager code. A plan fits if it fits in fused code. CUDA and "
        "NCCL take 2 GiB more.",
    ),
    (
        "stars",
        "One: the plan fits. Two: its step takes at most the target. Three: it is within 1 % of the best known, or of "
        "the best of a kind that ties with it, or it is the published run's split.",
    ),
)


class Words(base.Words["PlanPuzzle"]):
    form = "one function that splits a training job over its GPUs"
    definition = "def {}(job)"
    imports = "from lib.planning import Job, Prediction, Split\n"
    why_title = "where time and memory go"
    columns = (("s/step", "seconds"), ("GiB", "gib"))
    overview_columns = ("GPUs", "s/step", "GiB")

    def tightest(self, figures: Mapping[str, float]) -> dict[str, float]:
        return {"seconds": figures["seconds"]}

    def measures(self, puzzle: PlanPuzzle, figures: Mapping[str, float]) -> Sequence[Measure]:
        return [
            Measure.at_most("seconds a step", figures.get("seconds"), puzzle.seconds, "seconds"),
            Measure.at_most("GiB of the fullest GPU", figures.get("gib"), puzzle.gib, "gib"),
        ]

    def figures_text(self, puzzle: PlanPuzzle, figures: Mapping[str, float]) -> str:
        more = f"up to {figures['gib_high']:g} GiB in eager code, MFU {figures['mfu']:g} %" if figures else ""
        return ", ".join(filter(None, [super().figures_text(puzzle, figures), more]))

    def limits(self, puzzle: PlanPuzzle) -> str:
        job = puzzle.job
        return (
            f"{job.model.name} on {job.gpus:,} {job.gpu.name}, {job.batch:,} sequences of {job.sequence:,} tokens a "
            f"step: at most {puzzle.seconds:,} s, and {puzzle.gib:g} GiB of each GPU"
        )

    def record(self, puzzle: PlanPuzzle, figures: Mapping[str, float], stars: int, family: str = "") -> str:
        known = f"The best known step takes {puzzle.best:,} s"
        if stars < 3:
            said = f"{known}; three stars are for 1 %."
        elif figures["seconds"] <= puzzle.best:
            said = f"Three stars: nothing better is known, {puzzle.best:,} s."
        else:
            said = f"Three stars. {known}, which the model cannot tell from yours."
        tied = ", ".join(f"{one} {seconds:,} s" for one, seconds in list(puzzle.tied.items())[:SHOWN_TIED])
        cannot = f"Other kinds of split are within the model's error: {tied}." if tied else ""
        return " ".join(filter(None, [said, cannot, published_text(puzzle)]))

    def built(self, puzzle: PlanPuzzle, kept: str) -> str:
        from lib.planning.plans import family_of  # here, since lists need no planner

        plan = self.track.judge.restored(puzzle, kept)
        return "" if plan is None else f"a plan: {family_of(plan.split)} ({plan.split})"

    def sections(self, puzzle: PlanPuzzle) -> Sequence[Section]:
        return [
            Section("The job", job_lines(puzzle)),
            Section("First predict", PREDICT),
            Section("Counted", COUNTED),
            Section("A split", CALLS),
        ]

    def overview_cells(self, puzzle: PlanPuzzle) -> Sequence[str]:
        return f"{puzzle.job.gpus:,} {puzzle.job.gpu.name}", f"{puzzle.seconds:,}", f"{puzzle.gib:g}"

    def overview_note(self, puzzles: Sequence[PlanPuzzle]) -> str:
        return "Limits: seconds of a step, for two stars; GiB of the fullest GPU."

    def devices(self, puzzle: PlanPuzzle) -> int:
        return puzzle.job.gpus


def published_text(puzzle: PlanPuzzle) -> str:
    """What the people did who trained the model, and how far the prediction is off; empty if nobody published it."""
    run = puzzle.published
    if run is None:
        return ""
    said = f"{run.text} ({run.source.short})."
    if not run.seconds:
        return said
    error = run.predicted / run.seconds - 1
    return (
        f"{said} Measured: {run.seconds:,.3g} s a step; predicted for that run: {run.predicted:,.3g} s, "
        f"{abs(error):.0%} {'more' if error > 0 else 'less'}."
    )


def job_lines(puzzle: PlanPuzzle) -> list[tuple[str, str]]:
    """The numbers that the arithmetic needs."""
    job, model, gpu = puzzle.job, puzzle.job.model, puzzle.job.gpu
    gib, tera, giga = 2**30, 10**12, 10**9
    experts = f", {model.experts} experts of which a token has {model.top_k}" if model.experts else ""
    rate = gpu.flops8 if job.fp8 else gpu.flops
    return [
        (
            f"model: {model.name}, {model.weights / giga:,.1f}B parameters, {model.layers} layers, hidden "
            f"{model.hidden:,}, {model.heads} heads ({model.kv_heads} of keys and values){experts}",
            "",
        ),
        (
            f"GPUs: {job.gpus:,} {gpu.name}, {gpu.machine} in a machine; {gpu.memory / gib:g} GiB, "
            f"{rate / tera:,.0f} teraFLOP/s in {8 if job.fp8 else 16} bits",
            "",
        ),
        (
            f"links: NVLink {gpu.nvlink / giga:g} GB/s, network {gpu.network / giga:g} GB/s for each GPU and direction",
            "",
        ),
        (f"step: {job.batch:,} sequences of {job.sequence:,} tokens, {job.flops:.3g} flops", ""),
        (
            f"bytes of a parameter: weight {job.weight}, gradient {job.gradient}, optimizer state {job.state}; "
            f"{job.kernels} kernels",
            "",
        ),
        *([(f"experts: {_routing(job)}", "")] if model.experts else []),
    ]


def _routing(job: Job) -> str:
    """How tokens get to their experts."""
    sent = "to each machine that has some of its experts" if job.dispatch == "dedup" else "for each of its experts"
    overlap = ", and sending overlaps with computation" if job.ep_overlap else ""
    uneven = "is even" if job.balanced else f"gives the fullest rank {job.imbalance:g} times the mean number of tokens"
    return f"a token is sent once {sent}{overlap}; routing {uneven}; CUDA graphs: {job.graphs}"
