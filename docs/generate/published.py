"""The chapter of docs/truth.md on published step times, and the file with what the planner predicts for them."""

from __future__ import annotations

import json
from itertools import groupby
from pathlib import Path
from statistics import median

from lib.planning import gpu
from tests.support.published_runs import RUNS, UNITS, Published, in_unit, job_of, seconds_of, split_of

FILE = Path(__file__).parent / "published.json"

TEXT = """\
## Step times of large runs

What others have measured, and what [the planner](planner.md) predicts for the same split. One number is fitted for each
kind of GPU: the share of the peak that matrix products reach ({efficiencies}), so that the median error of the runs
marked "fit" is least. All other runs are held out. An error of +10 % means that the predicted step takes 10 % longer.
What a source leaves open (microbatches, chunks of a stage) is taken as the planner finds it fastest. Where a source
gives teraFLOP/s, both numbers count flops by its formula; for Llama 3 and Mixtral, which give none, a causal core
counts half.

Half of all errors are below {all:.0f} %, of the runs held out below {held:.0f} %, and without ZeRO-3 of 2021 below
{without:.0f} %; the largest of those is {worst:.0f} %. Predictions of ZeRO-3 are far too good: its weights are gathered
for each microbatch, and here the eight network adapters of a machine work for such a gather, beside computation. The
measured times are as if one did: with `--set gpu.network=3.1e9` these six errors are -12 to -25 %. Large GPT
models with little data parallelism are predicted too slow, because the largest matrices reach more of the peak than the
fitted share. Small models are predicted too fast (Llama 3 8B).
"""


def key(run: Published) -> str:
    return f"{run.source}: {run.row}"


def predicted(run: Published) -> float:
    """What the planner predicts, in the unit of the source, with four digits."""
    return float(f"{in_unit(run, job_of(run), seconds_of(run)):.4g}")


def write() -> None:
    """Predicts all runs."""
    found = {key(run): {"split": str(split_of(run)), "predicted": predicted(run)} for run in RUNS}
    FILE.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")


def chapter() -> str:
    """The chapter, from the file."""
    rows = json.loads(FILE.read_text(encoding="utf-8"))
    errors = {run: error(run, rows[key(run)]["predicted"]) for run in RUNS}
    new = [abs(e) for run, e in errors.items() if run.gpus and "ZeRO-3" not in run.source]
    text = TEXT.format(
        efficiencies=", ".join(f"{name} {gpu(name).efficiency:.2f}" for name in ("a100", "h100")),
        all=100 * median(map(abs, errors.values())),
        held=100 * median(abs(e) for run, e in errors.items() if not run.fitted),
        without=100 * median(new),
        worst=100 * max(new),
    )
    lines = [text]
    for source, runs in groupby(RUNS, lambda run: run.source):
        of_source = list(runs)
        lines += [f"{source}, {UNITS[of_source[0].unit]}:", "", "| run | split | published | predicted | error | |"]
        lines.append("|---|---|---|---|---|---|")
        for run in of_source:
            row = rows[key(run)]
            marks = f"{'fit' if run.fitted else ''}"
            figures = f"{run.figure:g} | {row['predicted']:g} | {100 * errors[run]:+.0f} %"
            lines.append(f"| {run.row} | {row['split']} | {figures} | {marks} |")
        lines.append("")
    return "\n".join(lines)


def error(run: Published, ours: float) -> float:
    """How much longer than published the predicted step is."""
    return ours / run.figure - 1 if run.unit == "s" else run.figure / ours - 1


if __name__ == "__main__":
    write()
