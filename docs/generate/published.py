"""The chapter of docs/truth.md on published step times, and the file with what the planner predicts for them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import groupby
from pathlib import Path
from statistics import median
from textwrap import fill
from typing import Any

from lib.planning.estimate import estimate, memory_range
from lib.planning.job import GIB
from lib.planning.plans import VERDICTS, verdict_of
from tests.oracles.measured_runs import ROWS as MEASURED_ROWS
from tests.oracles.published_runs import (
    ALL,
    EXPERTS,
    RUNS,
    UNITS,
    Published,
    error,
    in_unit,
    percentile,
    seconds_of,
)

FILE = Path(__file__).parent / "published.json"

FIRST = """\
Of {count} published step times of large runs the [planner](planner.md) predicts half within {median:.1f} %; the worst \
error is {worst:.0f} %. With Megatron's kernels ({megatron_count} runs) half are within {megatron_median:.1f} %, \
the worst is off by {megatron_worst:.0f} %; with PyTorch's ({pytorch_count} runs) {pytorch_median:.1f} % and \
{pytorch_worst:.0f} %."""

TEXT = """\
## Step times of large runs

What others have measured, and what [the planner](planner.md) predicts for the same split. Every row is from a table of
its source; none is written from memory. The constants of the planner (rates of matrix products and of attention,
contention of collectives with computation) were fitted to these rows and then rounded, so no row is held out.

| kernels | runs | median error | nine of ten below | worst | within 10 % |
|---|---|---|---|---|---|
{table}

An error of +10 % means that the predicted step takes 10 % longer. *Open* is what the source does not state: there we
show the fastest choice of an earlier version of the planner. Where a source gives teraFLOP/s, both numbers count flops
by its formula; for Llama 3 and Mixtral, which give none, a causal core counts half.

The largest errors: Llama 3 405B on a pipeline of torchtitan is predicted too fast, since the planner does not model
FSDP's gathers of weights inside a pipeline. MPT with full recomputation is predicted too slow, perhaps because one rate
of matrix products stands for all A100. NeMo's Llama 3 8B with context parallelism is predicted too fast; we do not know
why.
"""


MEMORY = """\
## Memory of large runs

The planner states a range for the fullest GPU: from fused code without allocator fragmentation to eager code
with them. {known} of the runs have a published peak, as PyTorch's allocator counts it; {inside} of these peaks lie in
the range, and the others above it. All {ran} runs ran: the planner says *fits* of {fits}, *depends on the code* of
{depends}, and *does not fit* of {refused}.

Llama 3 405B on 8,192 GPUs would need 88.4 GiB of 78 with full gradients and Megatron's warm-up of 142 forwards. Its
authors shard gradients, and tune how many forwards come first (Grattafiori et al. 2024, section 3.3.2): with 135 it
needs 76.7 GiB, and a step takes 2 % longer.

| run | split | published | low | high | |
|---|---|---|---|---|---|
{table}
"""


MEASURED = """\
## Measured by us

Steps on one H100 (80 GB HBM3) with PyTorch 2.11: Llama and GPT-2 as transformers 5.17 builds them, under FSDP2 on one
rank (16-bit computation, 32-bit weights, states and reduced gradients, gathered weights kept after forward), AdamW
fused, 3 warm-up steps, the median of 7. *Compiled* means that each layer is compiled; the last norm and the loss are
not. Predictions are those of `--kernels pytorch --gpus 1 --zero 0`. Half of the predicted times are within
{median:.1f} %, the worst is off by {worst:.1f} %.

| model | layers | tokens | recompute | code | measured ms | predicted ms | error | reserved GiB | low | high |
|---|---|---|---|---|---|---|---|---|---|---|
{table}

No constant was fitted to these times. The rates of matrix products (78 % of the data sheet), of cuDNN's attention
(56 %) and of the memory (76 %) are from a profile of two layers on the same GPU. The bytes of kernels are counted:

- **The optimizer** reads and writes 28 bytes a parameter: {optimizer} ms per 10^9 parameters were measured, and 11.0
  are predicted.
- **Copies** of weights and gradients between 16 and 32 bits take 24 bytes a parameter. PyTorch's cross entropy takes 44
  bytes a logit. Both are counted on one GPU only: with several, the fitted rates contain them.
- **Eager code** runs each element-wise operation by itself: 471 bytes a token and hidden element in Llama 3 8B, forward
  and backward. torchtitan's 8B runs were published compiled and eager: eager took 15.7 % longer on 8 GPUs and 16.2 % on
  128. The planner says {eager:.1f} % for 8. The tables above compare its compiled time with both.
- **Memory**: the allocator reserved 1.2 to 1.4 times what was allocated. *High* is 1.3 times the bytes that eager code
  keeps, and covers {covered} of {count} rows.

To repeat such rows on your GPU, run `python -m lib.planning.measure`
([planner](planner.md#your-own-measurements-and-a-whole-training)).
"""


def measured_chapter() -> str:
    """The steps that were measured on one GPU, beside the planner's."""
    rows = []
    for row in MEASURED_ROWS:
        tokens, code = f"{row.sequence:,} x {row.microbatch}", "eager" if row.eager else "compiled"
        times = f"{1e3 * row.seconds:.1f} | {1e3 * row.predicted:.1f} | {100 * row.error:+.1f} %"
        sizes = " | ".join(f"{size / GIB:.1f}" for size in (row.reserved_bytes, row.plan.peak, row.plan.high))
        rows.append(f"| {row.preset} | {row.layers} | {tokens} | {row.recompute} | {code} | {times} | {sizes} |")
    off = [100 * abs(row.error) for row in MEASURED_ROWS]
    of_optimizer = [1e12 * row.optimizer_seconds / row.parameters for row in MEASURED_ROWS]
    (torchtitan,) = [run for run in RUNS if run.row == "8B FSDP8 compile, op SAC"]
    compiled, eager = (estimate(torchtitan.job, torchtitan.split, way).ticks for way in (False, True))
    return MEASURED.format(
        median=median(off),
        worst=max(off),
        table="\n".join(rows),
        optimizer=f"{min(of_optimizer):.1f} to {max(of_optimizer):.1f}",
        eager=100 * (eager / compiled - 1),
        covered=sum(row.plan.high >= row.reserved_bytes for row in MEASURED_ROWS),
        count=len(rows),
    )


EXPERT_TEXT = """\
## Step times of models with experts

43 published runs, each with its container (25.11 is of November 2025) or commit; the constants of the planner's terms
for experts were fitted to them. Another half of the rows that were collected is kept apart: with constants that were
fitted to these rows, a prototype predicted those with a median error of 12.5 % (nine of ten below 27 %). *Before* is
the error of the planner that priced experts as one large product and an all-to-all; it refused some splits.

| | runs | median error | nine of ten below | worst | within 10 % |
|---|---|---|---|---|---|
{table}

What the runs have in common: routing was forced to be even, except where *natural* is said. Benchmarks force it; real
training does not (whole steps take 1.1 to 1.25 times as long). The same inputs in two NeMo containers that follow each
other differ by 1 to 11 %, and once by 77 %, so no model of these inputs can be below about 5 %.

What stays wrong:

- **Natural routing** is one factor, 1.5, for the fullest rank. How uneven a router is depends on its training, on the
  data and on the batch, and the few runs with natural routing here do not say more.
- **B200 and GB200 with small experts** (Qwen3 30B, GPT-OSS) are predicted up to 23 % too fast. GPT-OSS is predicted
  with full attention in every layer, as the constants were fitted; with its windows of 128 tokens these five
  predictions are 1.4 to 3.2 points lower.
- **FSDP beside a pipeline** (pith-train) is predicted at half of its time. Its code gathers and reduces once a step, as
  the planner assumes, and the reason of the rest is open.
- **A balanced gate that is fake**: NeMo Automodel's benchmark sends each token to neighboring experts
  (`arange % experts`), so a token leaves its machine once at most. Its figures understate the traffic of a trained
  router up to eight times. The planner has this traffic as `Job(consecutive=True)`; do not compare such figures with
  yours.
- **Memory**: of {known} published peaks {inside} are in the range. All {ran} runs ran; the planner says *does not fit*
  of {refused}. What the recomputation of `mla_up_proj` saves is not counted.
"""


def options_text(run: Published) -> str:
    """What of a job decides the time of its experts."""
    job = run.job
    said = ["8 bits"] if job.fp8 else []
    said += [job.dispatch] + (["overlap"] if job.ep_overlap else [])
    said += [f"{job.graphs} graphs"] if job.graphs != "none" else []
    said += [f"again: {' '.join(job.modules)}"] if job.modules else []
    said += ["neighboring experts"] if job.consecutive else [] if job.balanced else ["natural"]
    return ", ".join(said + (["MTP"] if job.mtp else []))


def experts_chapter() -> str:
    """The runs of models with experts, from the file."""
    now = [error(run, stored()[run.key]) for run in EXPERTS]
    before = [run.before for run in EXPERTS if run.before is not None]
    peaks = [(run.memory_gib, *stored_memory()[run.key]) for run in EXPERTS if run.memory_gib]
    memory = {
        "known": len(peaks),
        "inside": sum(low <= peak <= high for peak, low, high in peaks),
        "ran": len(EXPERTS),
        "refused": sum(verdict(run) == VERDICTS[2] for run in EXPERTS),
    }
    rows = [summary("now", now), summary("before", before)]
    lines = [EXPERT_TEXT.format(table="\n".join(rows), **memory)]
    for source, runs in groupby(EXPERTS, lambda run: run.source):
        lines += [f"{source.source}; {UNITS[source.unit]}.", ""]
        lines += ["| run | split | options | published | predicted | error | before |", "|---|---|---|---|---|---|---|"]
        for run in runs:
            ours = stored()[run.key]
            was = "refused" if run.before is None else f"{100 * run.before:+.0f} %"
            figures = f"{run.figure:g} | {ours:g} | {100 * error(run, ours):+.0f} % | {was}"
            lines.append(f"| {run.row} | {split_text(run)} | {options_text(run)} | {figures} |")
        lines.append("")
    return "\n".join(lines)


def predicted(run: Published) -> float:
    """What the planner predicts, in the unit of the source, with four digits."""
    return float(f"{in_unit(run, seconds_of(run)):.4g}")


def write() -> None:
    """Predicts all runs."""
    found = {
        "step": {run.key: predicted(run) for run in (*RUNS, *EXPERTS)},
        "GiB": {run.key: gib_range(run) for run in (*ALL, *EXPERTS)},
    }
    lines = json.dumps(found, indent=1).replace("[\n   ", "[").replace(",\n   ", ", ").replace("\n  ]", "]")
    FILE.write_text(lines + "\n", encoding="utf-8")
    _stored.cache_clear()


def gib_range(run: Published) -> list[float]:
    """The least and the most GiB of the fullest GPU, with four digits."""
    return [float(f"{count / GIB:.4g}") for count in memory_range(run.job, run.split)]


@cache
def _stored() -> Mapping[str, Any]:
    found: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
    return found


def stored() -> Mapping[str, float]:
    """The figures that were predicted when the page was written, in the units of their sources."""
    steps: Mapping[str, float] = _stored()["step"]
    return steps


def stored_memory() -> Mapping[str, list[float]]:
    """The ranges of memory that were predicted when the page was written, in GiB."""
    ranges: Mapping[str, list[float]] = _stored()["GiB"]
    return ranges


def verdict(run: Published) -> str:
    """What the planner says of a run that fitted."""
    low, high = stored_memory()[run.key]
    return verdict_of(round(low * GIB), round(high * GIB), run.job.gpu.usable)


def errors(kernels: str = "") -> list[float]:
    """The errors of all runs, or of those with some kernels."""
    return [error(run, stored()[run.key]) for run in RUNS if run.source.kernels.startswith(kernels)]


def first_line() -> str:
    """How far predictions are off, by kind of kernels."""
    facts: dict[str, float] = {}
    for name in ("", "megatron", "pytorch"):
        off = [100 * abs(one) for one in errors(name)]
        prefix = f"{name}_" if name else ""
        facts |= {f"{prefix}count": len(off), f"{prefix}median": median(off), f"{prefix}worst": max(off)}
    return fill(FIRST.format(**facts).replace(" %", "~%"), 120).replace("~", " ")


def chapter() -> str:
    """The chapter, from the file."""
    kinds = (("all", ""), ("Megatron", "megatron"), ("PyTorch", "pytorch"))
    rows = [summary(label, errors(name)) for label, name in kinds]
    lines = [TEXT.format(table="\n".join(rows))]
    for source, runs in groupby(RUNS, lambda run: run.source):
        remark = f" {source.remark[0].upper()}{source.remark[1:]}." if source.remark else ""
        lines += [f"{source.source}; {UNITS[source.unit]}.{remark}", ""]
        lines += ["| run | split | published | predicted | error | open |", "|---|---|---|---|---|---|"]
        for run in runs:
            ours = stored()[run.key]
            figures = f"{run.figure:g} | {ours:g} | {100 * error(run, ours):+.0f} %"
            lines.append(f"| {run.row} | {split_text(run)} | {figures} | {', '.join(run.open)} |")
        lines.append("")
    return "\n".join([*lines, experts_chapter(), memory_chapter(), measured_chapter()])


def memory_chapter() -> str:
    """Published peaks beside the range, and verdicts on runs that ran."""
    said = [verdict(run) for run in ALL]
    known = [run for run in ALL if run.memory_gib]
    rows = []
    for run in known:
        low, high = stored_memory()[run.key]
        place = "" if low <= run.memory_gib <= high else f"{run.memory_gib / high - 1:+.0%}".replace("%", " %")
        figures = f"{run.memory_gib:.1f} | {low:.1f} | {high:.1f} | {place}"
        rows.append(f"| {run.row} | {split_text(run)} | {figures} |")
    return MEMORY.format(
        known=len(known),
        inside=sum(row.endswith("|  |") for row in rows),
        ran=len(ALL),
        fits=said.count(VERDICTS[0]),
        depends=said.count(VERDICTS[1]),
        refused=said.count(VERDICTS[2]),
        table="\n".join(rows),
    )


def summary(label: str, found: Sequence[float]) -> str:
    """A row of the table of errors."""
    off = [100 * abs(one) for one in found]
    near = sum(one <= 10 for one in off) / len(off)
    shown = " | ".join(f"{number:.1f} %" for number in (median(off), percentile(off, 0.9), max(off)))
    return f"| {label} | {len(off)} | {shown} | {100 * near:.0f} % |"


def split_text(run: Published) -> str:
    """The split, with what is computed again."""
    again = run.split.recompute
    return str(run.split) + (f", recompute {again}" if again != "none" else "")


if __name__ == "__main__":
    write()
