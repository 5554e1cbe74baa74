"""Trials of the annotation puzzles, and the results of a single device."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from puzzles.catalog.engine import lower_bounds
from puzzles.catalog.engine.lower_bounds import FigureBound, MakeBounds
from puzzles.catalog.engine.models import DEVICES, ROUNDING, numbers, split_rows
from puzzles.catalog.engine.trial import MethodCall, Trial


def annotated_mlp(batch: int = 64, width: int = 16, hidden: int = 64, seed: int = 1) -> Trial:
    params = {"w0": numbers(seed, width, hidden), "w1": numbers(seed + 1, hidden, width)}
    x = numbers(seed + 2, batch, width)
    out = np.maximum(x.astype(np.float64) @ params["w0"], 0) @ params["w1"]
    targets = {
        "sent": 2 * width * (batch + hidden),
        "flops": batch * width * hidden,
        "weights": 2 * width * hidden,
    }
    sizes = {"batch": batch, "model_dim": width, "hidden_dim": hidden}
    calls = (MethodCall("forward", split_rows(x), split_rows(out)),)
    spmd = {"inputs": {"x": x.shape}, "parameters": _shapes(params), "mesh": {"data": 2, "model": 2}}
    return Trial(sizes, params, calls, tolerance=ROUNDING, targets=targets, spmd=spmd)


def _shapes(arrays: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    return {name: array.shape for name, array in arrays.items()}


def routed(tokens: int, experts: int, capacity: int, seed: int) -> tuple[Any, Any]:
    """Masks of top-1 routing, `dispatch` and `combine`, both (groups, tokens, experts, capacity). A token whose expert
    is full has zeros in both."""
    draw = np.random.default_rng(seed)
    dispatch = np.zeros((DEVICES, tokens, experts, capacity), np.float32)
    combine = dispatch.copy()
    for group in range(DEVICES):
        taken = [0] * experts
        for token, expert in enumerate(draw.integers(0, experts, tokens)):
            if taken[expert] < capacity:
                dispatch[group, token, expert, taken[expert]] = 1
                combine[group, token, expert, taken[expert]] = draw.integers(1, 4)
                taken[expert] += 1
    return dispatch, combine


def annotated_moe(
    tokens: int = 8, experts: int = 4, capacity: int = 2, width: int = 16, hidden: int = 32, seed: int = 5
) -> Trial:
    params = {
        "wi": numbers(seed, experts, width, hidden),
        "wo": numbers(seed + 1, experts, hidden, width),
    }
    x = numbers(seed + 2, DEVICES, tokens, width)
    dispatch, combine = routed(tokens, experts, capacity, seed + 3)
    out = np.zeros(x.shape)
    for group, token, expert, slot in zip(*np.nonzero(dispatch)):
        made = np.maximum(x[group, token].astype(np.float64) @ params["wi"][expert], 0) @ params["wo"][expert]
        out[group, token] = combine[group, token, expert, slot] * made
    pieces = [{"x": a, "dispatch": b, "combine": c} for a, b, c in zip(*map(split_rows, (x, dispatch, combine)))]
    slots = experts * capacity
    targets = {
        "sent": 2 * 3 * (slots * width * 4) // 4,
        "flops": 2 * 2 * tokens * slots * width + 2 * 2 * slots * width * hidden,
        "weights": 2 * width * hidden * 4 * experts // DEVICES,
    }
    sizes = {
        "tokens": tokens,
        "experts": experts,
        "capacity": capacity,
        "model_dim": width,
        "hidden_dim": hidden,
    }
    calls = (MethodCall("forward", pieces, split_rows(out)),)
    inputs = {"x": x.shape, "dispatch": dispatch.shape, "combine": combine.shape}
    spmd = {"inputs": inputs, "parameters": _shapes(params), "mesh": {}}
    return Trial(sizes, params, calls, tolerance=ROUNDING, targets=targets, spmd=spmd)


TRIALS: Mapping[str, tuple[Callable[[], Trial], ...]] = {
    "AnnotatedMLP": (annotated_mlp, lambda: annotated_mlp(batch=32, width=8, hidden=48, seed=21)),
    "AnnotatedMoE": (annotated_moe, lambda: annotated_moe(tokens=12, experts=8, capacity=1, width=8, seed=25)),
}


# --- What no class can do with less ---


SHARED = "the results depend on all weights, and a device holds a quarter of them"


def annotated_mlp_bounds(trial: Trial) -> dict[str, FigureBound]:
    x, w0, w1 = lower_bounds.whole(trial, "forward"), trial.params["w0"], trial.params["w1"]
    count = lower_bounds.products(x, w0) + lower_bounds.products(np.maximum(x @ w0, 0), w1)
    return {
        "sent": lower_bounds.something(SHARED, given=("weights",)),
        "flops": lower_bounds.flops(count, trial.devices),
    }


def annotated_moe_bounds(trial: Trial) -> dict[str, FigureBound]:
    """Only the experts' first products: to dispatch is to choose rows, and the second ones follow a relu."""
    given = [given for (given,) in lower_bounds.arguments(trial, "forward")]
    rows = sum(int(part["dispatch"].sum()) for part in given)
    _, width, hidden = trial.params["wi"].shape
    return {
        "sent": lower_bounds.something(SHARED, given=("weights",)),
        "flops": lower_bounds.flops(rows * width * hidden, trial.devices),
    }


LOWER_BOUNDS: Mapping[str, MakeBounds] = {"AnnotatedMLP": annotated_mlp_bounds, "AnnotatedMoE": annotated_moe_bounds}
