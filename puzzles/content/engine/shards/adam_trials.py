"""Trials of ShardedAdam: steps in float16 with master weights in float32, and gradients that once overflow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from lib.engine.collectives import bytes_sent
from puzzles.catalog.engine.trial import MethodCall, Performed, Trial, WrongResultError
from puzzles.catalog.engine.two_layer_mlp import DEVICES, ROUNDING, SHOWN, W0, W1, mlp_forward_backward, numbers

RATE, EPSILON, SCALE = 2.0**-13, 2.0**-24, 2.0**24
"""A step is smaller than the spacing of float16 near 1. Gradients are below the range of float16 until they are
scaled."""

BETA1, BETA2 = 0.9, 0.999
NAMES = (W0, W1)
HALF = 2.0**-8
"""Tolerance of outputs: a few roundings of float16, 2^-11 each."""

Tensors = dict[str, Any]
Batch = tuple[Any, Any]


def sharded_adam() -> Trial:
    """The second of four steps overflows."""
    return adam_trial(SHOWN.batch, SHOWN.model_dim, SHOWN.hidden_dim, DEVICES, steps=4, overflows=1)


def sharded_adam_small() -> Trial:
    """2 devices, other sizes; the third step overflows."""
    return adam_trial(6, 8, 12, 2, steps=4, overflows=2, seed=9)


def adam_trial(batch: int, dim: int, hidden: int, n: int, steps: int, overflows: int, seed: int = 70) -> Trial:
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
            require_step(results, masters[step], scale, made, where)

    calls: list[MethodCall] = []
    for x, g in batches:
        calls += [MethodCall("forward", np.split(x, n)), MethodCall("backward", np.split(g, n))]
        calls.append(MethodCall("step", [None] * n))
    sizes = {"model_dim": dim, "hidden_dim": hidden, "rate": RATE, "epsilon": EPSILON, "scale": SCALE}
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
                master[name] = master[name] - RATE * (m[name] / fix[0]) / (np.sqrt(v[name] / fix[1]) + EPSILON)
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
        if not isinstance(out, np.ndarray) or out.shape != rows.shape or out.dtype != np.float16:
            raise WrongResultError(f"{where}, device {device}: forward should return float16 of shape {rows.shape}")
        with np.errstate(all="ignore"):
            if not (np.abs(out - rows) <= HALF * np.abs(rows).max()).all():
                raise WrongResultError(f"{where}, device {device}: the output of forward differs")
        if none is not None:
            raise WrongResultError(f"{where}, device {device}: backward should return None; the shards stay with you")


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
