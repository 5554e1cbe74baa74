"""The trials of the sharded puzzles: batches and networks of the data parallel ones, with states to shard.

ShardedAdam's gradients are below the range of float16 until they are scaled, and overflow once. UnevenFSDP's sizes are
not divisible by the devices, so `check` compares shards with their padding. ZeROMemory asks for plans, and its messages
say which other plan is better. Mistakes that are common have results of their own, by which a message names them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import prod
from typing import Any, NamedTuple

import numpy as np

from lib.engine.collectives import bytes_sent
from puzzles.catalog.engine.lower_bounds import FigureBound, MakeBounds
from puzzles.catalog.engine.models import (
    BATCH,
    DEVICES,
    HIDDEN,
    OTHER,
    ROUNDING,
    SHOWN,
    W0,
    W1,
    TwoLayerMLP,
    exact,
    mlp_forward_backward,
    numbers,
)
from puzzles.catalog.engine.trial import MethodCall, Performed, Trial, WrongResultError, results_of
from puzzles.content.engine.data.trials import any_of, trained_bounds

# --- Trials of ShardedAdam: steps in float16 with master weights in float32, and gradients that once overflow.


ADAM_RATE, EPSILON, SCALE = 2.0**-13, 2.0**-24, 2.0**24
"""A step is smaller than the spacing of float16 near 1. Gradients are below the range of float16 until they are
scaled."""

BETA1, BETA2 = 0.9, 0.999
NAMES = (W0, W1)
HALF = 2.0**-8
"""Tolerance of outputs: a few roundings of float16, 2^-11 each."""

Tensors = dict[str, Any]
Batch = tuple[Any, Any]


def sharded_adam(
    batch: int = BATCH, dim: int = SHOWN.model_dim, hidden: int = HIDDEN, n: int = DEVICES, overflows: int = 1,
    seed: int = 70,
) -> Trial:  # fmt: skip
    """Four steps, of which one overflows: by default the second."""
    steps = 4
    column = dim // 2
    params = {W0: numbers(seed, dim, hidden), W1: numbers(seed + 1, hidden, dim)}
    params[W0][column] = 0  # so that the large input below shows in one row of one gradient, on one device
    batches: list[Batch] = []
    for step in range(steps):
        x = numbers(seed + 10 + step, batch, dim).astype(np.float16)
        if step == overflows:
            x[0, column] = 2.0**15
        batches.append((x, numbers(seed + 20 + step, batch, dim) * np.float32(2.0**-22)))
    outputs, masters = trained(params, batches)
    mistakes = {
        "are the master weights in float16? A step is smaller than its spacing": {"narrow": True},
        "is the gradient still multiplied by the scale?": {"unscaled": False},
        "are both moments divided by 1 - beta^t?": {"corrected": False},
        "does t count the skipped step?": {"counts_skipped": True},
        "was the step made although a summed gradient was not finite?": {"skips": False},
    }
    other = {words: trained(params, batches, **change)[1] for words, change in mistakes.items()}

    def check(performed: Performed) -> None:
        for step in range(steps):
            where, scale = f"step {step + 1} of {steps}", SCALE / 2 ** (step >= overflows)
            outs, nothing, results = performed.results[3 * step : 3 * step + 3]
            require_outputs(outs, nothing, np.split(outputs[step], n), where)
            made = {words: after[step] for words, after in other.items()}
            with results_of("step"):
                require_step(results, masters[step], scale, made, where)

    calls: list[MethodCall] = []
    for x, g in batches:
        calls += [MethodCall("forward", np.split(x, n)), MethodCall("backward", np.split(g, n))]
        calls.append(MethodCall("step", [None] * n))
    sizes = {"model_dim": dim, "hidden_dim": hidden, "rate": ADAM_RATE, "epsilon": EPSILON, "scale": SCALE}
    targets = adam_targets(dim, hidden, n, steps, 1)
    return Trial(sizes, params, tuple(calls), devices=n, tolerance=ROUNDING, check=check, targets=targets)


def trained(
    params: Tensors,
    batches: Sequence[Batch],
    narrow: bool = False,
    unscaled: bool = True,
    corrected: bool = True,
    counts_skipped: bool = False,
    skips: bool = True,
) -> tuple[list[Any], list[Tensors]]:
    """Outputs and master weights of every step, on one device in float64. The other arguments are mistakes."""
    master = {name: np.asarray(params[name], np.float64) for name in NAMES}
    m = {name: np.zeros_like(master[name]) for name in NAMES}
    v, taken, scale = {name: np.zeros_like(master[name]) for name in NAMES}, 0, SCALE
    outputs, after = [], []
    for x, g in batches:
        weights = {name: master[name].astype(np.float16) for name in NAMES}
        out, grads = mlp_forward_backward(weights, x, g)
        outputs.append(out)
        finite = all(np.abs(grads[name] * scale).max() <= np.finfo(np.float16).max for name in NAMES)
        taken += finite or counts_skipped or not skips
        if finite or not skips:
            fix = (1 - BETA1**taken, 1 - BETA2**taken) if corrected else (1, 1)
            for name in NAMES:
                grad = grads[name] * (1 if unscaled else scale)
                m[name] = BETA1 * m[name] + (1 - BETA1) * grad
                v[name] = BETA2 * v[name] + (1 - BETA2) * grad**2
                master[name] = master[name] - ADAM_RATE * (m[name] / fix[0]) / (np.sqrt(v[name] / fix[1]) + EPSILON)
                master[name] = master[name].astype(np.float16).astype(np.float64) if narrow else master[name]
        scale = scale if finite else scale / 2
        after.append(dict(master))
    return outputs, after


def require_outputs(outs: Sequence[Any], nothing: Sequence[Any], right: Sequence[Any], where: str) -> None:
    """Compares what forward and backward returned with a single device's.

    Raises:
        WrongResultError: an output differs, or backward returned something.
    """
    for device, (out, rows, none) in enumerate(zip(outs, right, nothing)):
        at = f"{where}, device {device}"
        if not isinstance(out, np.ndarray) or out.shape != rows.shape or out.dtype != np.float16:
            raise WrongResultError(f"{at}: forward should return float16 of shape {rows.shape}", "forward")
        with np.errstate(all="ignore"):
            if not (np.abs(out - rows) <= HALF * np.abs(rows).max()).all():
                raise WrongResultError(f"{at}: the output of forward differs", "forward")
        if none is not None:
            raise WrongResultError(f"{at}: backward should return None; the shards stay with you", "backward")


def require_step(
    results: Sequence[Any], right: Tensors, scale: float, mistakes: dict[str, Tensors], where: str
) -> None:
    """Compares what a step returned with the master weights and the scale of a single device.

    Raises:
        WrongResultError: naming the first difference, or the mistake that it comes from.
    """
    n = len(results)
    for device, result in enumerate(results):
        if not isinstance(result, dict) or set(result) != {"weights", "master", "scale"}:
            raise WrongResultError(
                f"{where}, device {device}: step should return a dictionary of weights, master, scale"
            )
        for name in NAMES:
            rows = np.split(right[name], n)[device]
            for part, dtype, shape in (("weights", "float16", right[name].shape), ("master", "float32", rows.shape)):
                got = result[part].get(name) if isinstance(result[part], dict) else None
                if not isinstance(got, np.ndarray) or got.shape != shape or got.dtype != dtype:
                    raise WrongResultError(
                        f"{where}, device {device}: '{part}' should have '{name}' as {dtype} of shape {shape}"
                    )
            if not _near(result["master"][name], rows, right[name]):
                known = [
                    words
                    for words, made in mistakes.items()
                    if _near(result["master"][name], np.split(made[name], n)[device], right[name])
                ]
                raise WrongResultError(
                    "; ".join([f"{where}, device {device}: the master rows of '{name}' differ", *known])
                )
        if result["scale"] != scale:
            raise WrongResultError(
                f"{where}, device {device}: the scale is {result['scale']!r:.20}, and should be {scale:,.0f}: it is "
                "halved where a summed gradient of any device is not finite"
            )
    for name in NAMES:
        gathered = np.concatenate([result["master"][name] for result in results]).astype(np.float16)
        for device, result in enumerate(results):
            if not np.array_equal(result["weights"][name], gathered):
                raise WrongResultError(
                    f"{where}, device {device}: '{name}' in float16 is not what the devices' master rows are rounded to"
                )


def _near(got: Any, right: Any, whole: Any) -> bool:
    """True if these rows are right, within the tolerance of the array that they are of."""
    with np.errstate(all="ignore"):
        return bool((np.abs(got - right) <= ROUNDING * np.abs(whole).max()).all())


def adam_targets(dim: int, hidden: int, n: int, steps: int, skipped: int) -> dict[str, int]:
    """Limits from the puzzle's arithmetic. The peak is in the step: four float32 arrays of a shard's size."""
    one, taken = dim * hidden, steps - skipped
    held = 2 * (2 * one + 3 * 4 * one // n)
    scattered, flag = 2 * bytes_sent("reduce_scatter", 4 * one, n), bytes_sent("all_reduce", 4, n)
    return {
        "sent": steps * (scattered + flag) + taken * 2 * bytes_sent("all_gather", 4 * one // n, n),
        "collectives": 3 * steps + 2 * taken,
        "weights": held,
        "kept": held,
        "peak": held + 2 * 2 * one // n + 4 * 4 * one // n,
    }


# --- Trials of ZeROMemory: models, clusters and budgets, and the messages for a plan that is not the best.


ZeROPlan = tuple[int, int]
"""Stage (0 to 3) and degree (the number of devices that share)."""


class Case(NamedTuple):
    """The number of parameters and devices, and each device's budget in bytes; tried at a size `scale` times
    smaller."""

    parameters: int
    devices: int
    budget: int
    scale: int

    def __str__(self) -> str:
        return f"{self.parameters / 1e9:g}e9 parameters on {self.devices} devices of {gigabytes(self.budget)}"

    def plans(self) -> list[ZeROPlan]:
        """All plans that fit, best first: fewest bytes sent, then the smallest degree, then the lowest stage."""
        degrees = [degree for degree in range(1, self.devices + 1) if self.devices % degree == 0]
        every = [(0, 1)] + [(stage, degree) for stage in (1, 2, 3) for degree in degrees]
        return sorted((plan for plan in every if bytes_per_device(self.parameters, *plan) <= self.budget), key=cost)


def cost(plan: ZeROPlan) -> tuple[int, int, int]:
    """Sort key of plans: volume sent, in numbers per parameter; then degree; then stage."""
    stage, degree = plan
    return (3 if stage == 3 else 2, degree, stage)


def bytes_per_device(parameters: int, stage: int, degree: int) -> float:
    """Bytes per device (Rajbhandari et al. 2020): 16P; 4P + 12P/N; 2P + 14P/N; 16P/N."""
    whole, shared = ((16, 0), (4, 12), (2, 14), (0, 16))[stage]
    return parameters * (whole + shared / degree)


def gigabytes(count: float) -> str:
    return f"{count / 1e9:.10g} GB"


PAPER_CASES = [
    Case(7_500_000_000, 64, budget, 312_500)
    for budget in (
        128_000_000_000,
        80_000_000_000,
        60_000_000_000,
        48_000_000_000,
        24_000_000_000,
        16_640_625_000,
        16_600_000_000,
        1_900_000_000,
        1_800_000_000,
    )
]
OTHER_CASES = [  # a cluster whose size is not a power of two, and larger models
    *(Case(1_500_000_000, 48, budget * 10_000_000, 31_250) for budget in (1600, 800, 500, 340, 50, 49)),
    Case(175_000_000_000, 512, 80_000_000_000, 13_671_875),
    Case(1_000_000_000_000, 1024, 32_000_000_000, 39_062_500),
    Case(1_000_000_000_000, 1024, 16_000_000_000, 39_062_500),
]


def zero_memory(cases: Sequence[Case] = PAPER_CASES) -> Trial:
    def check(performed: Performed) -> None:
        for i, case in enumerate(cases):
            for device, result in enumerate(performed.results[i]):
                where = f"device {device}, case {i + 1} ({case})"
                require_best(case, result, where)
                require_held(case, result, performed.readings[i + 1][device].live, where)

    peak = max(
        round(bytes_per_device(case.parameters, *case.plans()[0])) // case.scale for case in cases if case.plans()
    )
    calls = tuple(MethodCall("forward", [case._asdict()] * DEVICES) for case in cases)
    return Trial(calls=calls, check=check, targets={"collectives": 0, "peak": peak})


def require_best(case: Case, result: Any, where: str) -> None:
    """Compares a plan with the best one.

    Raises:
        WrongResultError: the plan is not the best; the message says which other plan is better, and why.
    """
    fits = case.plans()
    if result is None:
        if fits:
            raise WrongResultError(f"{where}: forward returned None, but a plan fits")
        return
    if not isinstance(result, (tuple, list)) or len(result) != 2 or not all(isinstance(n, int) for n in result):
        raise WrongResultError(
            f"{where}: forward should return (stage, degree), two whole numbers, or None; got {result!r}"
        )
    stage, degree = result
    if stage not in range(4) or degree < 1 or case.devices % degree:
        raise WrongResultError(
            f"{where}: there is no plan (stage {stage}, degree {degree}); stages are 0 to 3, and the degree must "
            "divide the number of devices"
        )
    needed = bytes_per_device(case.parameters, stage, degree)
    named = f"{where}: stage {stage} with degree {degree}"
    if needed > case.budget:
        raise WrongResultError(f"{named} needs {gigabytes(needed)} per device")
    best, mine = cost(fits[0]), cost((stage, degree))
    if mine[0] > best[0]:
        raise WrongResultError(f"{named} fits, but sends 3 numbers per parameter; another stage fits that sends only 2")
    if mine[1] > best[1]:
        raise WrongResultError(f"{named} fits, but so does a smaller degree that sends no more")
    if mine[2] > best[2]:
        raise WrongResultError(f"{named} fits, but so does a lower stage with the same degree")


def require_held(case: Case, result: Any, live: int, where: str) -> None:
    """Compares the live bytes on the meter with the formula.

    Raises:
        WrongResultError: they differ.
    """
    if result is None:
        if live:
            raise WrongResultError(f"{where}: without a plan, keep no arrays; the meter reads {live:,} B")
        return
    needed = round(bytes_per_device(case.parameters, *result)) // case.scale
    if live != needed:
        raise WrongResultError(
            f"{where}: stage {result[0]} with degree {result[1]} takes {needed:,} B at a scale of 1 to {case.scale:,}, "
            f"but the meter reads {live:,} B"
        )


# --- Trials of UnevenFSDP: layers with a bias, whose sizes are not divisible by the devices, trained for two steps.


MODEL, STEPS = 18, 2
LAYERS = ("layer_0", "layer_1")


def uneven_tiny() -> Trial:
    """8 devices, 9 numbers in the second layer: three devices hold only padding. There is no limit on the peak,
    because arrays of a few bytes peak elsewhere."""
    trial = uneven_fsdp(8, 3, 2, 8)
    return replace(trial, targets={name: limit for name, limit in (trial.targets or {}).items() if name != "peak"})


def uneven_fsdp(batch: int = BATCH, model_dim: int = MODEL, hidden_dim: int = HIDDEN, n: int = DEVICES) -> Trial:
    """By default the second layer ends with two numbers of padding."""
    shapes = {"layer_0": (model_dim, hidden_dim), "layer_1": (hidden_dim, model_dim)}
    params: Tensors = {}
    for i, (layer, shape) in enumerate(shapes.items()):
        params |= {
            f"{layer}/weights": numbers(40 + i, *shape),
            f"{layer}/bias": numbers(50 + i, shape[1]),
        }
    start, x, g = params, numbers(60, batch, model_dim), numbers(61, batch, model_dim)
    calls: list[MethodCall] = []
    states = []
    for _ in range(STEPS):
        out, grads = mlp_forward_backward(params, x, g)
        params = {name: value - RATE * grads[name] for name, value in exact(params).items()}
        states.append({layer: flat_shards(params, layer, n) for layer in LAYERS})
        # `check` compares the result of backward, because it knows where the padding is.
        calls += [MethodCall("forward", np.split(x, n), np.split(out, n)), MethodCall("backward", np.split(g, n))]
    calls.append(MethodCall("save", [list(LAYERS)] * n, [params] * n))

    def check(performed: Performed) -> None:
        for i, state in enumerate(states):
            for device, result in enumerate(performed.results[2 * i + 1]):
                for layer in LAYERS:
                    rows, columns = shapes[layer]
                    real = (rows + 1) * columns - device * state[layer][0].size
                    with results_of("backward"):
                        require_shard(result, layer, state[layer][device], max(real, 0), f"device {device}, backward()")

    sizes = {"model_dim": model_dim, "hidden_dim": hidden_dim, "rate": RATE}
    targets = uneven_targets(batch, model_dim, hidden_dim, n)
    return Trial(sizes, start, tuple(calls), devices=n, tolerance=ROUNDING, check=check, targets=targets)


def flat_shards(params: Mapping[str, Any], layer: str, n: int) -> list[Any]:
    """The expected shards of a layer: weights, bias and zeros in one row, cut into n parts."""
    row = np.concatenate([params[f"{layer}/weights"].ravel(), params[f"{layer}/bias"]])
    shards = np.zeros((n, -(-row.size // n)), row.dtype)
    shards.reshape(-1)[: row.size] = row
    return list(shards)


def require_shard(result: Any, layer: str, right: Any, real: int, where: str) -> None:
    """Compares a shard in which the first `real` numbers are weights or bias and the rest is padding.

    Raises:
        WrongResultError: it differs.
    """
    shard = result.get(layer) if isinstance(result, dict) else None
    if not isinstance(shard, np.ndarray) or shard.shape != right.shape:
        raise WrongResultError(f"{where} should return your flat shards; the one of '{layer}' has {right.size} numbers")
    off = ~(np.abs(shard[:real] - right[:real]) <= ROUNDING * np.abs(right).max())
    if off.any():
        at = int(np.nonzero(off)[0][0])
        raise WrongResultError(
            f"{where}: the shard of {layer} differs from its part of the flat layer: number {at} is {shard[at]:g} "
            f"but should be {right[at]:g}"
        )
    if shard[real:].any():
        raise WrongResultError(
            f"{where}: the shard of {layer} ends with padding, which belongs to no weight and should be 0; "
            f"it is {shard[real:].tolist()}"
        )


def uneven_targets(batch: int, model_dim: int, hidden_dim: int, n: int) -> dict[str, int]:
    """Limits from the puzzle's arithmetic; the peak is at the first layer's gradient, plus a shard."""
    first, second = (4 * -(-(prod(sizes)) // n) for sizes in ((model_dim + 1, hidden_dim), (hidden_dim + 1, model_dim)))
    weights, rows = 4 * model_dim * hidden_dim, batch // n
    activations = 4 * rows * (3 * model_dim + 2 * hidden_dim)
    peak = first + second + weights + 4 * hidden_dim + n * first + 2 * first + activations
    return {
        "sent": (n - 1) * (STEPS * (2 * first + 3 * second) + first + second),
        "flops": STEPS * 5 * 2 * batch // n * model_dim * hidden_dim,
        "collectives": STEPS * 5 + 2,
        "weights": first + second,
        "peak": peak,
    }


# --- The trials of the chapter


RATE, MOMENTUM = 0.5, 0.5


def stepped(params: Tensors, state: Tensors, grads: Tensors, rate: float) -> tuple[Tensors, Tensors]:
    """Parameters and momentum after a step of SGD with momentum."""
    state = {name: MOMENTUM * state[name] + grads[name] for name in params}
    return {name: params[name] - rate * state[name] for name in params}, state


def zero1(at: TwoLayerMLP = SHOWN) -> Trial:
    start, x, g = at.tensors()
    params, state = exact(start), {name: np.zeros(value.shape) for name, value in start.items()}
    calls: list[MethodCall] = []
    for _ in range(2):
        out, grads = mlp_forward_backward(params, x, g)
        params, state = stepped(params, state, grads, RATE)
        calls += at.calls_by_rows(x, out, g, [params] * at.devices)
    return at.trial(start, calls, rate=RATE, momentum=MOMENTUM)


def zero2(at: TwoLayerMLP = SHOWN, rates: Sequence[float] = (RATE,), seed: int = 1) -> Trial:
    """Different rates: the state and its order matter."""
    start, x, g = at.tensors(seed)
    n = at.devices
    params, state = exact(start), {name: np.zeros(value.shape) for name, value in start.items()}
    calls: list[MethodCall] = []
    for rate in rates:
        out, grads = mlp_forward_backward(params, x, g)
        cut = {name: np.split(grads[name], n) for name in params}
        params, state = stepped(params, state, grads, rate)
        shards = [{name: cut[name][i] for name in params} for i in range(n)]
        calls += [
            MethodCall("forward", np.split(x, n), np.split(out, n)),
            MethodCall("backward", np.split(g, n), shards),
        ]
        calls.append(MethodCall("step", [rate] * n, [params] * n))
    sizes = {**at.sizes, "momentum": MOMENTUM}
    targets = zero2_targets(at.batch, at.model_dim, at.hidden_dim, n, len(rates))
    return Trial(sizes, start, tuple(calls), devices=n, tolerance=ROUNDING, targets=targets)


def zero2_targets(batch: int, model_dim: int, hidden_dim: int, n: int, steps: int) -> dict[str, int]:
    """Limits from the puzzle's arithmetic, for any sizes."""
    weights = 2 * 4 * model_dim * hidden_dim
    activations = 4 * batch // n * (3 * model_dim + 2 * hidden_dim)
    return {
        "sent": steps * 2 * (n - 1) * weights // n,
        "flops": steps * 5 * 2 * batch // n * model_dim * hidden_dim,
        "collectives": 4 * steps,
        "peak": weights + weights // n + weights // 2 + weights // n + activations,
        "kept": weights + weights // n,
    }


def fsdp(at: TwoLayerMLP = SHOWN) -> Trial:
    return at.trained_by_rows({W0: at.split_rows, W1: at.split_rows, "x": at.split_rows})


TRIALS: Mapping[str, tuple[Callable[[], Trial], ...]] = {
    "ZeRO1": (zero1, partial(zero1, OTHER)),
    "ZeRO2": (zero2, partial(zero2, OTHER, (0.5, 0.25, 0.5), seed=11)),
    "FSDP": (fsdp, partial(fsdp, OTHER)),
    "UnevenFSDP": (uneven_fsdp, partial(uneven_fsdp, 6, 5, 7, 3), uneven_tiny),
    "ShardedAdam": (sharded_adam, partial(sharded_adam, 6, 8, 12, 2, overflows=2, seed=9)),
    "ZeROMemory": (zero_memory, partial(zero_memory, OTHER_CASES)),
}


# --- What no class can do with less ---


def zero_memory_bounds(trial: Trial) -> dict[str, FigureBound]:
    assert trial.targets is not None
    held = FigureBound(trial.targets["peak"], "the arrays of the case with the largest plan are held at once")
    return {"peak": held}


def sharded_adam_bounds(trial: Trial) -> dict[str, FigureBound]:
    """At the end a device holds the weights in float16, and its rows of the master weights."""
    numbers = sum(weight.size for weight in trial.params.values())
    returned = 2 * numbers + 4 * numbers // trial.devices
    return {**any_of(trial), "kept": FigureBound(returned, "a device holds what its last step returned")}


LOWER_BOUNDS: Mapping[str, MakeBounds] = {
    "ZeRO1": any_of,
    "ZeRO2": any_of,
    "FSDP": partial(any_of, flops=partial(trained_bounds, with_dx=True)),
    "UnevenFSDP": any_of,
    "ShardedAdam": sharded_adam_bounds,
    "ZeROMemory": zero_memory_bounds,
}
