"""Rates of a GPU from one measured step: its matrix products and its attention are faster or slower by one factor."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any, NamedTuple

from lib.errors import RuleError

from .families import ERRORS
from .gpus import Gpu
from .job import GIB, Job
from .presets import gpu, transformer
from .split import Split, require_fit
from .steady import estimated, memory_range

RATES = ("efficiency", "core_megatron", "core_pytorch")
"""Shares of the peak that a measured step changes."""

STEPS = 40
"""Halvings of the range of the factor: a step is then exact to a tick."""

MEASURED = ("tokens_per_second", "peak_gib")


class Calibration(NamedTuple):
    """A GPU whose rates give the measured step, and the factor between its rates and the preset's; `low` and `high` are
    the factors for steps that are longer and shorter by the model's usual error. `memory` is the predicted range in
    bytes, `peak` the measured bytes (0: not measured)."""

    gpu: Gpu
    factor: float
    low: float
    high: float
    memory: tuple[int, int]
    peak: int


def calibrate(job: Job, split: Split, tokens_per_second: float, peak_gib: float = 0.0) -> Calibration:
    """The rates of `job.gpu` with which a split trains so many tokens per second (of all GPUs).

    One step is one equation, so all rates change by one factor; links stay as they are.

    Raises:
        RuleError: the job cannot be split so, or no rate up to the data sheet's gives this step: then something else
            (links, kernels, what is recomputed) differs from what is said here.
    """
    require_fit(job, split)
    for name, number, least in (("tokens_per_second", tokens_per_second, 0), ("peak_gib", peak_gib, -1e-9)):
        if type(number) not in (int, float) or not least < number < 1e18:
            raise RuleError(f"{name} must be a number more than 0; got {number!r:.40}")
    seconds = job.tokens / tokens_per_second
    error = ERRORS[job.kernels]
    factor = _factor(job, split, seconds)
    low, high = (_factor(job, split, seconds * share, strict=False) for share in (1 + error, 1 - error))
    return Calibration(_scaled(job.gpu, factor), factor, low, high, memory_range(job, split), round(peak_gib * GIB))


def _factor(job: Job, split: Split, seconds: float, strict: bool = True) -> float:
    """The factor of the rates at which a step takes so many seconds; if not `strict`, the nearest possible."""
    most: float = 1 / max(job.gpu.efficiency, job.gpu.core_megatron, job.gpu.core_pytorch)
    low, high = most / 100, most

    def steps(factor: float) -> float:
        return estimated(replace(job, gpu=_scaled(job.gpu, factor)), split).ticks / 10**6

    fastest, slowest = steps(high), steps(low)
    if not fastest <= seconds <= slowest:
        if not strict:
            return high if seconds < fastest else low
        raise RuleError(
            f"a step of {seconds:.3g} s cannot be explained by the rates of {job.gpu.name}: with {split} it takes "
            f"{fastest:.3g} s at the data sheet's rate. Check the split, the batch, the kernels and the links"
        )
    for _ in range(STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if steps(middle) > seconds else (low, middle)
    return high


def _scaled(one: Gpu, factor: float) -> Gpu:
    return replace(one, **{name: getattr(one, name) * factor for name in RATES})


def preset_text(found: Calibration, name: str) -> str:
    """A preset file: the GPU as a table of TOML, with the uncertainty of its rates."""
    lines = [f"# Rates x {found.factor:.3f} ({found.low:.3f} to {found.high:.3f} within the usual error of the model)."]
    if found.peak:
        low, high = (count / GIB for count in found.memory)
        lines.append(f"# Measured peak {found.peak / GIB:.1f} GiB; predicted {low:.1f} to {high:.1f} GiB.")
    lines.append(f"[{name}]")
    for field in fields(Gpu):
        value = getattr(found.gpu, field.name)
        if field.name == "source":
            value = f"calibrated from one measured step; {value}"
        if field.name != "name":
            lines.append(f"{field.name} = {json.dumps(value)}")
    return "\n".join(lines) + "\n"


def read_run(text: str) -> Calibration:
    """The calibration of a measured run as JSON: `model`, `gpu`, `gpus`, `batch` and `split` as in Job and Split,
    `tokens_per_second`, and if they are known `peak_gib`, `sequence`, `kernels`, `fp8` and `flash`.

    Raises:
        RuleError: it is no such JSON; the text says what is missing or unknown.
    """
    try:
        given = json.loads(text)
    except ValueError as why:
        raise RuleError(f"a measured run is JSON: {why}") from None
    needed = ("model", "gpu", "gpus", "batch", "split", "tokens_per_second")
    optional = ("peak_gib", "sequence", "kernels", "fp8", "flash")
    if not isinstance(given, dict) or not set(needed) <= set(given) <= {*needed, *optional}:
        raise RuleError(f"a measured run has {', '.join(needed)}, and may have {', '.join(optional)}")
    if not isinstance(given["split"], dict) or not set(given["split"]) <= set(Split.__dataclass_fields__):
        raise RuleError(f"split has fields of a split: {', '.join(Split.__dataclass_fields__)}")
    how: Mapping[str, Any] = {name: given[name] for name in ("sequence", "kernels", "fp8", "flash") if name in given}
    job = Job(transformer(given["model"]), gpu(given["gpu"]), given["gpus"], given["batch"], **how)
    return calibrate(job, Split(**given["split"]), *(given[name] for name in MEASURED if name in given))
