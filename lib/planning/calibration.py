"""Rates of a GPU from one measured step or layer, or from the stages of a profiled step. One factor scales the rates
of matrix products and attention."""

import json
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from statistics import median
from typing import Any, NamedTuple

from lib.errors import RuleError

from .estimate import estimate, memory_range
from .job import GIB, SHARES, Gpu, Job
from .plans import usual_error
from .presets import gpu, transformer
from .prices import TICKS, layer_times, prices, shared
from .split import Split, require_fit

STEPS = 40
"""Halvings of the factor's range; after these, a step is exact to a tick."""

MEASURED = ("tokens_per_second", "stages", "layer")


class Calibration(NamedTuple):
    """A GPU whose rates give the measured time, and the factor between its rates and the preset's. `low` and `high` are
    the factors for a step that is longer or shorter by the model's usual error, or the extremes of the stages. `memory`
    is the predicted range in bytes, `peak` the measured bytes (0: not measured)."""

    gpu: Gpu
    factor: float
    low: float
    high: float
    memory: tuple[int, int]
    peak: int
    by_stage: bool = False


def calibrate(
    job: Job, split: Split, tokens_per_second: float, peak_gib: float = 0.0, eager: bool = False
) -> Calibration:
    """The rates of `job.gpu` with which a split trains `tokens_per_second` on all GPUs.

    One step is one equation, so one factor changes all rates; links stay as they are. `eager`: its code was not
    compiled.
    """
    require_fit(job, split)
    _require_more("tokens_per_second", tokens_per_second, 0)

    def step(scaled: Job) -> float:
        return estimate(scaled, split, eager).ticks / TICKS

    return _of_one(job, split, f"a step with {split}", step, job.tokens / tokens_per_second, peak_gib)


def calibrate_layer(job: Job, split: Split, seconds: float, peak_gib: float = 0.0) -> Calibration:
    """The rates of `job.gpu` with which the forward and backward of an average layer take the measured seconds for a
    microbatch. Errors are as in `calibrate`."""
    require_fit(job, split)
    _require_more("layer", seconds, 0)

    def layer(scaled: Job) -> float:
        return sum(layer_times(scaled, shared(split))[:3])

    return _of_one(job, split, f"a layer with {split}", layer, seconds, peak_gib)


def _of_one(
    job: Job, split: Split, what: str, predicted: Callable[[Job], float], seconds: float, peak_gib: float
) -> Calibration:
    """From one measured time: the factor, and those for times that are longer or shorter by the usual error."""
    error = usual_error(job)
    factor = _factor(job, what, predicted, seconds)
    low, high = (_factor(job, "", predicted, seconds * share) for share in (1 + error, 1 - error))
    return _calibration(job, split, (low, factor, high), peak_gib)


def calibrate_stages(job: Job, split: Split, seconds: Sequence[float], peak_gib: float = 0.0) -> Calibration:
    """The rates of `job.gpu` with which the forward and backward of a microbatch take the measured seconds on each
    stage: the median of the stages. Errors are as in `calibrate`. Stages without layers and head are left out."""
    require_fit(job, split)
    if len(seconds) != split.stages:
        raise RuleError(f"{len(seconds)} stages were measured, and {split} has {split.stages}")
    factors = []
    for stage, measured in enumerate(seconds):
        _require_more(f"the time of stage {stage}", measured, 0)

        def computed(scaled: Job, stage: int = stage) -> float:
            priced = prices(scaled, split)
            again = priced.forward if split.recompute == "full" and split.every == 1 else 0
            head = priced.loss if stage == split.stages - 1 else 0
            of_unit = priced.forward + priced.back_input + priced.back_weight + again
            return (priced.units[stage] * of_unit + head) / TICKS

        if computed(job):
            factors.append(_factor(job, f"a microbatch in stage {stage}", computed, measured))
    return _calibration(job, split, (min(factors), median(factors), max(factors)), peak_gib)._replace(by_stage=True)


def _calibration(job: Job, split: Split, factors: tuple[float, float, float], peak_gib: float) -> Calibration:
    _require_more("peak_gib", peak_gib, -1e-9)
    low, factor, high = factors
    return Calibration(_scaled(job.gpu, factor), factor, low, high, memory_range(job, split), round(peak_gib * GIB))


def _require_more(name: str, number: float, least: float) -> None:
    if type(number) not in (int, float) or not least < number < 1e18:
        raise RuleError(f"{name} must be a number more than 0; got {number!r:.40}")


def _factor(job: Job, what: str, predicted: Callable[[Job], float], seconds: float) -> float:
    """The factor of the rates at which a prediction equals `seconds`. If `what` is empty, returns the nearest possible
    factor instead of refusing."""
    most: float = 1 / max(getattr(job.gpu, name) for name in SHARES)
    low, high = most / 100, most

    def takes(factor: float) -> float:
        return predicted(replace(job, gpu=_scaled(job.gpu, factor)))

    fastest, slowest = takes(high), takes(low)
    if not fastest <= seconds <= slowest:
        if not what:
            return high if seconds < fastest else low
        raise RuleError(
            f"{seconds:.3g} s cannot be explained by the rates of {job.gpu.name}: {what} takes {fastest:.3g} s at the "
            "data sheet's rate. Check the split, the batch, the kernels and the links"
        )
    for _ in range(STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if takes(middle) > seconds else (low, middle)
    return high


def _scaled(unscaled: Gpu, factor: float) -> Gpu:
    return replace(unscaled, **{name: getattr(unscaled, name) * factor for name in SHARES})


def preset_text(calibration: Calibration, name: str) -> str:
    """A preset file: the GPU as a table of TOML, with the uncertainty of its rates."""
    why = "of the stages" if calibration.by_stage else "within the usual error of the model"
    lines = [f"# Rates x {calibration.factor:.3f} ({calibration.low:.3f} to {calibration.high:.3f} {why})."]
    if calibration.peak:
        low, high = (count / GIB for count in calibration.memory)
        lines.append(f"# Measured peak {calibration.peak / GIB:.1f} GiB; predicted {low:.1f} to {high:.1f} GiB.")
    lines.append(f"[{name}]")
    for field in fields(Gpu):
        value = getattr(calibration.gpu, field.name)
        if field.name == "source":
            value = f"calibrated from {'measured stages' if calibration.by_stage else 'one measured time'}; {value}"
        if field.name != "name":
            lines.append(f"{field.name} = {json.dumps(value)}")
    return "\n".join(lines) + "\n"


def read_run(text: str) -> Calibration:
    """The calibration of a measured run, given as JSON. It has `model`, `gpu`, `gpus`, `batch` and `split` as in Job
    and Split; `tokens_per_second`, or the `stages` that `puzzles profile -o run.json` writes, or as `layer` the seconds
    of a layer's forward and backward for a microbatch; and optionally `peak_gib` and the other fields of Job."""
    try:
        given = json.loads(text)
    except ValueError as why:
        raise RuleError(f"a measured run is JSON: {why}") from None
    needed = ("model", "gpu", "gpus", "batch", "split")
    of_job = [field.name for field in fields(Job) if field.name not in needed]
    optional = ("peak_gib", *of_job)
    names = set(given) if isinstance(given, dict) else set()
    if len(names & {*MEASURED}) != 1 or not set(needed) <= names <= {*needed, *MEASURED, *optional}:
        raise RuleError(
            f"a measured run has {', '.join(needed)}, and {' or '.join(MEASURED)}; it may have {', '.join(optional)}"
        )
    if not isinstance(given["split"], dict) or not set(given["split"]) <= set(Split.__dataclass_fields__):
        raise RuleError(f"split has fields of a split: {', '.join(Split.__dataclass_fields__)}")
    how: dict[str, Any] = {name: given[name] for name in of_job if name in given}
    job = Job(transformer(given["model"]), gpu(given["gpu"]), given["gpus"], given["batch"], **how)
    split: dict[str, Any] = dict(given["split"])
    if isinstance(split.get("layers"), list):
        split["layers"] = tuple(split["layers"])
    if "layer" in given:
        return calibrate_layer(job, Split(**split), given["layer"], given.get("peak_gib", 0.0))
    if "stages" in given:
        return calibrate_stages(job, Split(**split), _stage_seconds(given["stages"]), given.get("peak_gib", 0.0))
    return calibrate(job, Split(**split), given["tokens_per_second"], given.get("peak_gib", 0.0))


def _stage_seconds(stages: Any) -> list[float]:
    """For each stage, the sum of the medians of its operations, which a profile has in ms."""
    try:
        return [sum(time["median"] for time in row["times"].values()) / 1000 for row in stages]
    except (TypeError, KeyError, AttributeError):
        raise RuleError(
            "stages is the list that puzzles profile -o run.json writes: times with medians in ms"
        ) from None
