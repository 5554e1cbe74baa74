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

from lib.planning.job import GIB
from lib.planning.plans import VERDICTS, verdict_of
from lib.planning.timing import memory_range
from tests.support.published_runs import ALL, RUNS, UNITS, Published, error, in_unit, percentile, seconds_of

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

The planner states a range for the fullest GPU: from fused code without holes in the allocator's memory to eager code
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


def predicted(run: Published) -> float:
    """What the planner predicts, in the unit of the source, with four digits."""
    return float(f"{in_unit(run, seconds_of(run)):.4g}")


def write() -> None:
    """Predicts all runs."""
    found = {"step": {run.key: predicted(run) for run in RUNS}, "GiB": {run.key: gib_range(run) for run in ALL}}
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
    return "\n".join([*lines, memory_chapter()])


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
