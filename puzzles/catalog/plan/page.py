"""What the page of a plan puzzle shows beside its texts: the job's numbers, the calls, and what others did."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .puzzle import PlanPuzzle

CALLS = (
    (
        "Split(dp=1, tp=1, pp=1, cp=1, ep=1)",
        "Ranks of each axis; dp x tp x pp x cp is the number of GPUs, ep divides dp.",
    ),
    ("zero=1, shards=0", "The stage of ZeRO, 0 to 3 (FSDP). With shards=8, eight replicas share shards (HSDP)."),
    (
        "schedule='1f1b', chunks=1, microbatch=1",
        "Also gpipe, interleaved or breadth_first (with chunks), zb_h1, zb_v; sequences of a microbatch.",
    ),
    ("recompute='none', every=1, offload='none'", "Also selective, ops or full; states or activations on the host."),
    (
        "sp=True, layers=(), warmup=0",
        "Sequence parallelism with tp; the layers of each stage; what an interleaved rank warms up with.",
    ),
    ("job.model, job.gpu, job.gpus, job.batch", "The job as data, such as job.model.layers and job.gpu.machine."),
)

PREDICT = (
    (
        "return Split(...), Prediction(gib=60, dominates='bubble')",
        "Predict before you grade, and return it behind the split: how many GiB does the fullest GPU hold, so does it "
        "fit? Besides computing everything once, what costs most time: recomputation, tp, cp, ep, replicas or bubble? "
        "The verdict answers.",
    ),
)

COUNTED = (
    ("seconds", "A step, played in the ledger with the prices of 'puzzles plan'."),
    (
        "GiB",
        "The fullest GPU, in fused and in eager code. It fits if fused code does. CUDA and NCCL have 2 GiB besides.",
    ),
    ("stars", "One: it fits. Two: within 5 % of the best known. Three: within 1 %, or the published run's split."),
)


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
    ]
