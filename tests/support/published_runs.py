"""Step times that papers and vendors publish, beside what the planner predicts for the same split."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from statistics import median
from typing import Any

from lib.planning.job import Job
from lib.planning.presets import gpu, transformer
from lib.planning.split import Split, problems
from lib.planning.split_search import estimated


@dataclass(frozen=True)
class Published:
    """A run that somebody measured: `figure` in its own `unit`. What the source leaves open (`open_fields`: microbatch,
    schedule and chunks) is taken as the planner finds it fastest. `fitted`: its figure was used to fit the
    efficiency."""

    source: str
    row: str
    model: str
    gpu: str
    gpus: int
    batch: int
    split: tuple[tuple[str, Any], ...]
    figure: float
    unit: str
    fitted: bool = False
    open_fields: tuple[str, ...] = ()
    job: tuple[tuple[str, Any], ...] = field(default=())


UNITS = {
    "s": "s a step",
    "TF": "teraFLOP/s of each GPU, recomputation counted",
    "mTF": "model teraFLOP/s of each GPU",
    "tok": "tokens/s of each GPU",
}

MEGATRON = "Narayanan et al. 2021, Table 1"
PTD = "Narayanan et al. 2021, Table 2, PTD parallelism"
ZERO3 = "Narayanan et al. 2021, Table 2, ZeRO-3"
KORTHIKANTI = "Korthikanti et al. 2022, Table 5"
LLAMA = "Grattafiori et al. 2024 (Llama 3), Table 4"
NEMO = "NVIDIA NeMo, performance summary of container 24.07 (8 bits)"
MIXTRAL = "NVIDIA Megatron Core, README of its MoE: 468 TFLOPS; reference mapping"

OLD = (("flash", False), ("overlap", False))
"""How the runs of 2021 and 2022 were: no flash attention, gradients reduced at the end."""

FULL = (("sp", False), ("recompute", "full"), ("zero", 0))
OPEN = ("microbatch", "schedule")


def _megatron() -> Iterator[Published]:
    rows = (
        ("gpt-1.7b", 1, 1, 32, 512, 137), ("gpt-3.6b", 2, 1, 64, 512, 138), ("gpt-7.5b", 4, 1, 128, 512, 142),
        ("gpt-18b", 8, 1, 256, 1024, 135), ("gpt-39b", 8, 2, 512, 1536, 138), ("gpt-76b", 8, 4, 1024, 1792, 140),
        ("gpt-145b", 8, 8, 1536, 2304, 148), ("gpt-310b", 8, 16, 1920, 2160, 155),
        ("gpt-530b", 8, 35, 2520, 2520, 163), ("gpt-1t", 8, 64, 3072, 3072, 163),
    )  # fmt: skip
    for model, tp, pp, gpus, batch, figure in rows:
        split = (("tp", tp), ("pp", pp), *FULL)
        yield Published(MEGATRON, model, model, "a100", gpus, batch, split, figure, "TF", True, OPEN, OLD)
    for model, pp, batch, cases in (
        ("gpt-3", 12, 1536, ((384, 153), (768, 149), (1536, 141))),
        ("gpt-530b", 35, 2240, ((560, 171), (1120, 167), (2240, 159))),
    ):
        for gpus, figure in cases:
            split = (("tp", 8), ("pp", pp), ("microbatch", 1), *FULL)
            yield Published(PTD, f"{model}, {gpus}", model, "a100", gpus, batch, split, figure, "TF", False, OPEN, OLD)
    for model, cases in (
        ("gpt-3", ((384, 1536, 4, 144), (768, 1536, 2, 88), (1536, 1536, 1, 44))),
        ("gpt-530b", ((640, 2560, 4, 138), (1120, 2240, 2, 98), (2240, 2240, 1, 48))),
    ):
        for gpus, batch, microbatch, figure in cases:
            split = (("microbatch", microbatch), *FULL[:2], ("zero", 3))
            job = (("flash", False), ("gradient", 2))
            yield Published(ZERO3, f"{model}, {gpus}", model, "a100", gpus, batch, split, figure, "TF", False, (), job)


def _korthikanti() -> Iterator[Published]:
    for model, pp, chunks, batch, microbatch, full, both in (
        ("gpt-22b", 1, 1, 4, 4, 1.42, 1.10),
        ("gpt-3", 8, 3, 64, 1, 18.13, 13.75),
        ("gpt-530b", 35, 3, 280, 1, 49.05, 37.83),
        ("gpt-1t", 64, 1, 512, 1, 94.42, 71.49),
    ):
        schedule = ("schedule", "interleaved" if chunks > 1 else "1f1b")
        shape = (("tp", 8), ("pp", pp), ("chunks", chunks), schedule, ("microbatch", microbatch), ("zero", 0))
        for name, split, figure in (
            ("full recomputation", (("sp", False), ("recompute", "full")), full),
            ("sequence parallel, selective", (("sp", True), ("recompute", "selective")), both),
        ):
            row = f"{model}, {name}"
            yield Published(
                KORTHIKANTI, row, model, "a100", 8 * pp, batch, (*shape, *split), figure, "s", False, (), OLD
            )


def _llama() -> Iterator[Published]:
    for gpus, cp, sequence, batch, figure, fitted in (
        (8192, 1, 8192, 2048, 430, True),
        (16384, 1, 8192, 2048, 400, True),
        (16384, 16, 131072, 128, 380, False),
    ):
        split = (("tp", 8), ("pp", 16), ("cp", cp), ("zero", 1), ("schedule", "interleaved"))
        job = (("sequence", sequence),)
        row = f"{gpus} GPUs, {sequence:,} tokens"
        yield Published(LLAMA, row, "llama-3-405b", "h100", gpus, batch, split, figure, "mTF", fitted, ("chunks",), job)


def _nemo() -> Iterator[Published]:
    for model, gpus, batch, microbatch, sequence, tp, pp, cp, chunks, figure in (
        ("gpt-3", 128, 256, 1, 2048, 4, 8, 1, 6, 726),
        ("gpt-3", 512, 2048, 2, 2048, 4, 8, 1, 6, 782),
        ("llama-2-70b", 64, 128, 1, 4096, 4, 4, 1, 20, 1707),
        ("llama-3-8b", 8, 128, 1, 8192, 1, 1, 2, 1, 12036),
        ("llama-3-70b", 64, 128, 1, 8192, 4, 4, 2, 5, 1533),
    ):
        order = ("schedule", "interleaved" if chunks > 1 else "1f1b")
        split = (("tp", tp), ("pp", pp), ("cp", cp), ("microbatch", microbatch), ("chunks", chunks), order)
        job = (("sequence", sequence), ("fp8", True))
        row = f"{model}, {gpus}"
        yield Published(NEMO, row, model, "h100", gpus, batch, split, figure, "tok", False, (), job)


def _experts() -> Iterator[Published]:
    split = (("tp", 1), ("pp", 4), ("ep", 8), ("schedule", "interleaved"), ("chunks", 8), ("microbatch", 1))
    yield Published(MIXTRAL, "mixtral-8x7b, 64", "mixtral-8x7b", "h100", 64, 256, split, 468, "mTF")


RUNS = (*_megatron(), *_korthikanti(), *_llama(), *_nemo(), *_experts())


def job_of(run: Published, efficiency: float | None = None) -> Job:
    known = gpu(run.gpu) if efficiency is None else gpu(run.gpu, efficiency=efficiency)
    return Job(transformer(run.model), known, run.gpus, run.batch, **dict(run.job))


@cache
def split_of(run: Published) -> Split:
    """The published split; what it leaves open as the planner estimates it fastest, memory aside."""
    job, given = job_of(run), dict(run.split)
    inner = given.get("tp", 1) * given.get("pp", 1) * given.get("cp", 1)
    base = Split(**{"dp": run.gpus // inner, **given})
    found = []
    for microbatch in (
        (1, 2, 4, 8) if "microbatch" in run.open_fields and "microbatch" not in given else [base.microbatch]
    ):
        orders = [(base.schedule, base.chunks)]
        if "schedule" in run.open_fields:
            orders = [("1f1b", 1), *(("interleaved", v) for v in (2, 3, 4, 5, 6))]
        elif "chunks" in run.open_fields:
            orders = [(base.schedule, v) for v in (2, 4, 8)]
        for schedule, chunks in orders:
            split = replace(base, microbatch=microbatch, schedule=schedule, chunks=chunks)
            if next(problems(job, split), None) is None:
                found.append((estimated(job, split).ticks, repr(split), split))
    return min(found)[2]


def in_unit(run: Published, job: Job, seconds: float) -> float:
    """A step of so many seconds, in the unit of the source."""
    if run.unit == "s":
        return seconds
    if run.unit == "tok":
        return job.tokens / seconds / job.gpus
    if run.unit == "mTF":
        return job.flops / seconds / job.gpus / 1e12
    model, s = job.model, job.sequence
    core = 1 + s / (6 * model.hidden) + model.vocab / (16 * model.layers * model.hidden)
    return 96 * job.batch * s * model.layers * model.hidden**2 * core / seconds / job.gpus / 1e12  # their equation 3


def seconds_of(run: Published, efficiency: float | None = None) -> float:
    """By the estimate, which equals a run."""
    job = job_of(run, efficiency)
    return estimated(job, split_of(run)).ticks / 10**6


def error(run: Published, efficiency: float | None = None) -> float:
    """How much longer than published the predicted step is: 0.1 is 10 % longer."""
    job = job_of(run, efficiency)
    ours = in_unit(run, job, seconds_of(run, efficiency))
    return ours / run.figure - 1 if run.unit == "s" else run.figure / ours - 1


def best_efficiency(name: str) -> float:
    """The share of the peak, in hundredths, with the least median error over the runs that are fitted.

    A prediction falls as the efficiency rises, so between two efficiencies each error is between those at both. Where
    even the least of these errors would have a larger median than the best found, nothing is tried.
    """
    runs = [run for run in RUNS if run.gpu == name and run.fitted]

    @cache
    def errors(hundredths: int) -> list[float]:
        return [error(run, hundredths / 100) for run in runs]

    def off(hundredths: int) -> float:
        return median(map(abs, errors(hundredths)))

    def least_between(low: int, high: int) -> float:
        pairs = zip(errors(low), errors(high))
        return median(0.0 if a * b <= 0 else min(abs(a), abs(b)) for a, b in pairs)

    best, ranges = min((30, 99), key=off), [(30, 99)]
    while ranges:
        low, high = ranges.pop()
        if high - low > 1 and least_between(low, high) <= off(best):
            middle = (low + high) // 2
            best = min(best, middle, key=lambda n: (off(n), n))
            ranges += [(low, middle), (middle, high)]
    return best / 100
