"""Step times and memory that papers and vendors publish (published_runs.json; of models with experts
published_moe.json), beside what the planner predicts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from lib.planning.estimate import estimate
from lib.planning.job import Job, Transformer
from lib.planning.presets import gpu, table, transformer
from lib.planning.split import Split


@dataclass(frozen=True, eq=False)
class Source:
    """A table: whose kernels its runs used, the `unit` of its figures, and whether the planner is to predict them."""

    source: str
    kernels: str
    unit: str
    timed: bool
    remark: str = ""


@dataclass(frozen=True, eq=False)
class Published:
    """A run that somebody measured: `figure` in its source's unit, and if it is known `memory_gib`, the peak that
    PyTorch's allocator had `reserved` or allocated. What the source leaves `open` was chosen by an earlier planner as
    it found it fastest."""

    source: Source
    row: str
    job: Job
    split: Split
    figure: float
    open: tuple[str, ...] = ()
    memory_gib: float = 0.0
    reserved: bool = False
    before: float | None = None
    """The error of the planner that knew no costs of experts; None: it refused the split."""

    @property
    def key(self) -> str:
        return f"{self.source.source}: {self.row}"


UNITS = {
    "s": "s a step",
    "TF": "teraFLOP/s of each GPU, recomputation counted",
    "mTF": "model teraFLOP/s of each GPU",
    "tok": "tokens/s of each GPU",
}

HERE = Path(__file__).parent
DATA, OF_EXPERTS = (
    json.loads((HERE / f"{name}.json").read_text(encoding="utf-8")) for name in ("published_runs", "published_moe")
)


def _published(source: Source, row: Mapping[str, Any]) -> Published:
    name, sequence = row["model"], row["sequence"]
    known, of_job = name in table("models"), row.get("job", {})
    model = transformer(name) if known else Transformer(name, sequence=sequence, **DATA["models"][name])
    model = replace(model, layers=model.layers + of_job.get("mtp", 0), **row.get("of_model", {}))
    on = gpu(row["gpu"], **row.get("changed", {}))
    job = Job(model, on, row["gpus"], row["batch"], sequence, source.kernels, **of_job)
    split = Split(**{**row["split"], "layers": tuple(row["split"].get("layers", ()))})
    more = {name: row[name] for name in ("memory_gib", "reserved", "before") if name in row}
    return Published(source, row["row"], job, split, row["figure"], tuple(row.get("open", ())), **more)


def _runs(data: Mapping[str, Any]) -> tuple[Published, ...]:
    return tuple(
        _published(source, row)
        for given in data["sources"]
        for source in [Source(**{name: value for name, value in given.items() if name != "rows"})]
        for row in given["rows"]
    )


ALL = _runs(DATA)
"""Every published run of a dense model, and one of Mixtral."""

EXPERTS = _runs(OF_EXPERTS)
"""Published runs of models with experts, to which the constants of `lib.planning.prices` were fitted."""

RUNS = tuple(run for run in ALL if run.source.timed)
"""Those whose step time the planner is to predict."""


def in_unit(run: Published, seconds: float) -> float:
    """A step of so many seconds, in the unit of the source."""
    job, unit = run.job, run.source.unit
    if unit == "s":
        return seconds
    if unit == "tok":
        return job.tokens / seconds / job.gpus
    if unit == "mTF":
        return job.flops / seconds / job.gpus / 1e12
    model, s = job.model, job.sequence
    core = 1 + s / (6 * model.hidden) + model.vocab / (16 * model.layers * model.hidden)
    return 96 * job.batch * s * model.layers * model.hidden**2 * core / seconds / job.gpus / 1e12  # their equation 3


@cache
def seconds_of(run: Published) -> float:
    """By the estimate, which equals a run."""
    return estimate(run.job, run.split).ticks / 10**6


def error(run: Published, ours: float) -> float:
    """How much longer than published a step is that is predicted in the source's unit: 0.1 is 10 % longer."""
    return ours / run.figure - 1 if run.source.unit == "s" else run.figure / ours - 1


def percentile(values: list[float], share: float) -> float:
    """Of some values, linear between the two nearest."""
    ordered, place = sorted(values), (len(values) - 1) * share
    low = int(place)
    return ordered[low] + (ordered[min(low + 1, len(ordered) - 1)] - ordered[low]) * (place - low)
