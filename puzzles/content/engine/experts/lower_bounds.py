"""The least figures of the mixture-of-experts puzzles."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from puzzles.catalog.engine import lower_bounds
from puzzles.catalog.engine.lower_bounds import BITS, FigureBound, MakeBounds
from puzzles.catalog.engine.trial import Trial

from .trials import token_counts


def routed(trial: Trial, capacity: float = np.inf) -> dict[str, FigureBound]:
    """By the first choices that fit. Flops: the products of a row with its expert's first weight; the second follows a
    relu. Bytes: with one expert's weights on each device, at most about one in four rows stays, and what comes back for
    the others is counted at a quarter."""
    calls = [[_tokens(given) for given in call.arguments] for call in trial.calls]
    rows = sum(int(np.minimum(token_counts(trial.params, xs), capacity).sum()) for xs in calls)
    model_dim, hidden_dim = trial.params["expert_0/w0"].shape
    used = min(int((x != 0).sum(axis=1).min()) for xs in calls for x in xs)
    away = sum(_away(trial, xs, capacity) for xs in calls)
    sent = int(away * model_dim * BITS / 8 / 4 / trial.devices)
    return {
        **lower_bounds.calls(),
        "sent": FigureBound(sent, f"the results of {away} rows depend on experts of other devices", given=("weights",)),
        "flops": lower_bounds.flops(rows * used * hidden_dim, trial.devices),
        "weights": lower_bounds.weights(trial),
    }


def _tokens(given: Any) -> Any:
    return given["x"] if isinstance(given, dict) else given


def _away(trial: Trial, xs: list[Any], capacity: float) -> int:
    """Rows whose expert is elsewhere, if every device holds the expert that most of its rows choose."""
    counts = np.minimum(token_counts(trial.params, xs), capacity)
    return int((counts.sum(axis=1) - counts.max(axis=1)).sum())


def switch(trial: Trial) -> dict[str, FigureBound]:
    tokens = _tokens(trial.calls[0].arguments[0]).shape[0]
    return routed(trial, np.ceil(tokens / trial.devices * trial.arguments["factor"]))


def top2(trial: Trial) -> dict[str, FigureBound]:
    return routed(trial, trial.arguments["capacity"])


def balance_loss(trial: Trial) -> dict[str, FigureBound]:
    return {**lower_bounds.calls(), "sent": lower_bounds.something("the loss depends on the logits of all devices")}


LOWER_BOUNDS: Mapping[str, MakeBounds] = {
    "SwitchDispatch": switch,
    "BalanceLoss": balance_loss,
    "GShardTop2": top2,
    "ExactDispatch": routed,
    "FindTheRace": routed,
}
