"""Mixture-of-experts layers on one device, token by token: the expected results of devices that share the work.

The loops follow the papers' own order, instead of the vectorized form of the solutions, so the two are unlikely to
share a mistake. The router and the tokens are such that its logits are exact: experts are chosen alike everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from puzzles.catalog.engine.transformer import softmax
from puzzles.catalog.engine.two_layer_mlp import DEVICES, fixed_rng, integers, numbers

Params = Mapping[str, Any]
MakeRng = Callable[[int], np.random.Generator]


def expert_parameters(seed: int, model_dim: int, hidden_dim: int) -> dict[str, Any]:
    """A router, (model_dim, DEVICES), and two weights for each of DEVICES experts."""
    params = {"router/weights": integers(seed, model_dim, DEVICES, most=16, is_fixed=True) / np.float32(64)}
    for e in range(DEVICES):
        params[f"expert_{e}/w0"] = numbers(seed + 10 + e, model_dim, hidden_dim)
        params[f"expert_{e}/w1"] = numbers(seed + 20 + e, hidden_dim, model_dim)
    return params


MARGIN = 1e-3
"""Of what decides a route, in tokens that are drawn anew, so that no rounding decides."""


def token_groups(seed: int, tokens: int, params: Params) -> list[Any]:
    """Each device's tokens, (tokens, model_dim): multiples of 2^-14, which float16 does not have.

    On other draws, each token chooses the same expert: a class branches on routes, and its recording repeats them.
    """
    return [
        _with_same_routes(_token_draws(seed + i, tokens, params), partial(_first_choice, params))
        for i in range(DEVICES)
    ]


def gated_groups(seed: int, rnd_seed: int, tokens: int, params: Params) -> list[Any]:
    """Each device's tokens as in `token_groups`, and behind them a column of draws, (tokens, model_dim + 1): by each, a
    token's second choice is used or not, which other draws keep, too."""

    def draws(device: int, make: MakeRng) -> Iterator[Any]:
        rnd = make(rnd_seed)
        rnd.random((device, tokens), np.float32)  # of the devices before
        for x in _token_draws(seed + device, tokens, params)(make):
            yield np.column_stack([x, rnd.random(tokens, np.float32)])

    return [_with_same_routes(partial(draws, device), partial(_both_choices, params)) for device in range(DEVICES)]


def _token_draws(seed: int, tokens: int, params: Params) -> Callable[[MakeRng], Iterator[Any]]:
    shape = tokens, len(params["router/weights"])

    def draws(make: MakeRng) -> Iterator[Any]:
        whole, parts = make(seed), make(seed + 7)
        while True:
            x = whole.integers(-2, 3, shape).astype(np.float32)
            yield x + parts.integers(-127, 128, shape).astype(np.float32) / np.float32(1 << 14)

    return draws


def _with_same_routes(draws: Callable[[MakeRng], Iterator[Any]], route_of: Callable[[Any], tuple[Any, Any]]) -> Any:
    """Rows whose routes are those of the fixed draws. Those that are not are drawn again. `route_of` gives the routes,
    (rows, numbers), and each row's distance from another route."""
    route, distance = route_of(next(draws(fixed_rng)))
    others = draws(np.random.default_rng)
    rows = next(others)
    while True:
        found, far = route_of(rows)
        wrong = (found != route).any(axis=1) | (far < np.minimum(distance, MARGIN))
        if not wrong.any():
            return rows
        rows[wrong] = next(others)[wrong]


def _first_choice(params: Params, x: Any) -> tuple[Any, Any]:
    p = np.sort(router_probabilities(params, x), axis=1)
    return chosen_experts(params, x)[:, None], p[:, -1] - p[:, -2]


def _both_choices(params: Params, rows: Any) -> tuple[Any, Any]:
    x, rnd = rows[:, :-1], rows[:, -1]
    p = router_probabilities(params, x)
    best = np.argsort(-p, axis=1, kind="stable")
    first, second, third = np.take_along_axis(p, best, axis=1)[:, :3].T
    gate = 2 * second / (first + second)
    far = np.min([first - second, second - third, np.abs(gate - rnd)], axis=0)
    return np.column_stack([best[:, :2], gate > rnd]), far


def router_probabilities(params: Params, x: Any) -> Any:
    """p(x) of each token, (tokens, experts)."""
    return softmax(x @ params["router/weights"])


def expert_output(params: Params, e: int, token: Any) -> Any:
    """Output of expert `e` for one token."""
    return np.maximum(token @ params[f"expert_{e}/w0"], 0) @ params[f"expert_{e}/w1"]


def chosen_experts(params: Params, x: Any) -> Any:
    """The likeliest expert of each token, (tokens,)."""
    return router_probabilities(params, x).argmax(axis=1)


def token_counts(params: Params, xs: Sequence[Any]) -> Any:
    """Number of tokens that each device sends to each expert, (devices, experts)."""
    return np.array([np.bincount(chosen_experts(params, x), minlength=DEVICES) for x in xs])


def switch_layer(params: Params, x: Any, capacity: int, scaled: bool = True, overflow: float = 1.0) -> dict[str, Any]:
    """A Switch layer and its residual connection on one group of tokens: 'out', and the indices of 'dropped' tokens.

    Deliberate mistakes: not `scaled` by p; an `overflow` of 0, which loses dropped tokens instead of passing them on.
    """
    p, out, dropped = router_probabilities(params, x), x.copy(), []
    taken = [0] * DEVICES
    for i, token in enumerate(x):
        e = int(p[i].argmax())
        if taken[e] == capacity:
            out[i] *= overflow
            dropped.append(i)
        else:
            taken[e] += 1
            out[i] += (p[i, e] if scaled else 1) * expert_output(params, e, token)
    return {"out": out, "dropped": np.array(dropped, int)}


def dropless_layer(params: Params, x: Any, scaled: bool = True, skipped: Collection[int] = ()) -> Any:
    """A Switch layer without a capacity. Deliberate mistake: `skipped` experts, as if their inputs were 0."""
    out = switch_layer(params, x, len(x), scaled)["out"]
    for i, e in enumerate(chosen_experts(params, x)):
        if e in skipped:
            out[i] = x[i]
    return out


def top2_layer(params: Params, x: Any, rnd: Any, capacity: int, mistake: str = "") -> dict[str, Any]:
    """A layer with the gate of GShard's Algorithm 1 on one group of tokens, and its residual connection: 'out', and the
    auxiliary loss 'aux', (1,).

    Deliberate mistakes: 'unequal', gates that do not add up to 1; 'alone', second choices counted from 0; 'mixed', both
    choices of a token before the next token; 'holes', a second choice that is not counted when the draw refuses it;
    'half', g2 as the probability; 'always', no draw.
    """
    g, out = router_probabilities(params, x), x.copy()
    best = np.argsort(-g, axis=1, kind="stable")
    firsts = np.bincount(best[:, 0], minlength=DEVICES)
    turns = [(i, turn) for turn in (0, 1) for i in range(len(x))]
    if mistake == "mixed":
        turns.sort()
    count = np.zeros(DEVICES, int)
    stands: dict[tuple[int, int], Any] = {}  # the token at each place of each expert
    kept = []
    for i, turn in turns:
        if mistake == "alone" and (i, turn) == (0, 1):
            count[:] = 0
        e = int(best[i, turn])
        gate = g[i, e] / (1 if mistake == "unequal" else g[i, best[i, :2]].sum())
        wanted = turn == 0 or mistake == "always" or (1 if mistake == "half" else 2) * gate > rnd[i]
        place = e, int(count[e])
        if place[1] < capacity and wanted:
            stands[place] = x[i]
            kept.append((i, gate, place))
        count[e] += wanted or mistake != "holes"
    for i, gate, place in kept:
        out[i] += gate * expert_output(params, place[0], stands[place])
    return {"out": out, "aux": (firsts / len(x) * g.mean(axis=0)).mean(keepdims=True)}


def balance_loss_and_gradients(logits: Sequence[Any], alpha: float) -> tuple[Any, list[Any]]:
    """alpha N sum f P over all tokens of all devices, and its gradient for each device's logits, with f constant."""
    p = [softmax(z.astype(np.float64)) for z in logits]
    every = np.concatenate(p)
    tokens, experts = every.shape
    f = np.bincount(every.argmax(axis=1), minlength=experts) / tokens
    weight = alpha * experts * f
    grads = [q * (weight - (q * weight).sum(axis=1, keepdims=True)) / tokens for q in p]
    return np.array([(weight * every.mean(axis=0)).sum()]), grads
