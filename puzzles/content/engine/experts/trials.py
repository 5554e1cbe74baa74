"""Trials of the mixture-of-experts puzzles: tokens of four devices, and the results of the reference layers.

The reference layers go token by token, as the papers do, instead of in the vectorized form of the solutions, so the two
are unlikely to share a mistake. Routes are the same on all draws of values: a class branches on them, and its recording
repeats them. Tokens whose route differs, or is close to another one, are drawn again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from math import ceil
from typing import Any

import numpy as np

from lib.engine.collectives import WORD
from puzzles.catalog.engine import lower_bounds
from puzzles.catalog.engine.lower_bounds import BITS, FigureBound, MakeBounds
from puzzles.catalog.engine.models import DEVICES, HIDDEN, MODEL, fixed_rng, integers, numbers, softmax
from puzzles.catalog.engine.trial import MethodCall, Trial

# --- Mixture-of-experts layers on one device, token by token: the expected results of devices that share the work.
#
# The loops follow the papers' own order, instead of the vectorized form of the solutions, so the two are unlikely to
# share a mistake. The router and the tokens are such that its logits are exact: experts are chosen alike everywhere.


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


# --- The trials of the chapter


TOKENS = 8
SEED = 121
TOLERANCE = 1e-5
"""Softmax is rounded, and players may sum it in any order."""

ALPHA = 0.5


def sizes(model_dim: int, hidden_dim: int, **others: Any) -> dict[str, Any]:
    return {"model_dim": model_dim, "hidden_dim": hidden_dim, **others}


def flops(rows: int, tokens: int, model_dim: int, hidden_dim: int, choices: int = 1) -> int:
    """Flops of an expert for that many rows; of the router for a device's tokens; of its softmax, which divides; and of
    each choice's gate times the expert's output."""
    scaled = tokens * (DEVICES + choices * model_dim)
    return 4 * rows * model_dim * hidden_dim + 2 * tokens * model_dim * DEVICES + 2 * scaled


# --- SwitchDispatch, GShardTop2: equal buffers -----------------------------------------------------------


def padded_targets(capacity: int, tokens: int, model_dim: int, hidden_dim: int, choices: int = 1) -> dict[str, int]:
    """Targets if every device sends every expert `capacity` rows, twice, and keeps a quarter of them."""
    return {
        "sent": 2 * (DEVICES - 1) * capacity * model_dim * 4,
        "flops": flops(DEVICES * capacity, tokens, model_dim, hidden_dim, choices),
        "weights": 4 * model_dim * (DEVICES + 2 * hidden_dim),
    }


def switch_dispatch(
    factor: float = 1.0, seed: int = SEED, tokens: int = TOKENS, model: int = MODEL, hidden: int = HIDDEN
) -> Trial:
    params = expert_parameters(seed, model, hidden)
    xs = token_groups(seed + 50, tokens, params)
    exactly = tokens / DEVICES * factor
    capacity = ceil(exactly)
    mistakes = {
        "this is the result if an expert's output is not multiplied by p(x)": [
            switch_layer(params, x, capacity, scaled=False) for x in xs
        ],
        "this is the result if a token that does not fit is lost, instead of skipping the expert": [
            switch_layer(params, x, capacity, overflow=0.0) for x in xs
        ],
        "this is the result if an expert takes all tokens; its capacity is tokens / experts x factor": [
            switch_layer(params, x, tokens) for x in xs
        ],
    }
    fewer = "the capacity is rounded down; round it up" if int(exactly) < exactly else "places are counted from 1"
    mistakes[f"this is the result if {fewer}"] = [switch_layer(params, x, capacity - 1) for x in xs]
    call = MethodCall("forward", xs, [switch_layer(params, x, capacity) for x in xs], mistakes)
    targets = padded_targets(capacity, tokens, model, hidden)
    return Trial(sizes(model, hidden, factor=factor), params, (call,), tolerance=TOLERANCE, targets=targets)


TOP2_MISTAKES = {
    "unequal": "this is the result if the two gates do not add up to 1",
    "alone": "this is the result if second choices are counted from 0; they come after all first choices",
    "mixed": "this is the result if a token makes both choices before the next token; all first choices come first",
    "holes": "this is the result if a second choice that rnd refuses takes no place; here it takes one",
    "always": "this is the result if rnd is ignored",
    "half": "this is the result if g2, not 2 g2, is compared with rnd",
}


def gshard_top2(
    capacity: int = 4, seed: int = SEED, tokens: int = TOKENS, model: int = MODEL, hidden: int = HIDDEN
) -> Trial:
    params = expert_parameters(seed, model, hidden)
    gated = gated_groups(seed + 50, seed, tokens, params)
    xs, rnds = [rows[:, :-1].copy() for rows in gated], [rows[:, -1].copy() for rows in gated]

    def made(mistake: str = "") -> list[Any]:
        return [top2_layer(params, x, rnd, capacity, mistake) for x, rnd in zip(xs, rnds)]

    given = [{"x": x, "rnd": rnd} for x, rnd in zip(xs, rnds)]
    call = MethodCall("forward", given, made(), {words: made(mistake) for mistake, words in TOP2_MISTAKES.items()})
    targets = padded_targets(capacity, tokens, model, hidden, choices=2)
    targets["flops"] += 2 * (2 * tokens + DEVICES)  # both gates by their sum; counts times means
    return Trial(sizes(model, hidden, capacity=capacity), params, (call,), tolerance=TOLERANCE, targets=targets)


# --- BalanceLoss -----------------------------------------------------------------------------------------


def balance_loss(logits: Sequence[Any], alpha: float = ALPHA, gradient: bool = True, about: str = "") -> Trial:
    """A trial of the loss, and of its gradient when the incoming gradient is 3."""
    experts = logits[0].shape[1]
    loss, grads = balance_loss_and_gradients(logits, alpha)
    local = [balance_loss_and_gradients([z], alpha) for z in logits]
    forward = MethodCall(
        "forward",
        logits,
        [loss] * DEVICES,
        {
            "this is the result if the devices' own losses are averaged: a product of averages is not the "
            "average of products": [np.mean([own for own, _ in local], axis=0)] * DEVICES,
            "this is the loss of this device's tokens alone": [own for own, _ in local],
            "this is the result without the factor N, the number of experts": [loss / experts] * DEVICES,
        },
    )
    backward = MethodCall(
        "backward",
        [np.full(1, 3, np.float32)] * DEVICES,
        [{"logits": 3 * grad} for grad in grads],
        {
            "the incoming gradient is missing: the loss may be scaled": [{"logits": grad} for grad in grads],
            "this is the gradient of the loss of this device's tokens alone": [
                {"logits": 3 * own} for _, (own,) in local
            ],
        },
    )
    targets = {"sent": 2 * (DEVICES - 1) * 2 * experts * 4 // DEVICES, "collectives": 1}
    calls = (forward, backward) if gradient else (forward,)
    return Trial({"alpha": alpha}, {}, calls, tolerance=TOLERANCE, targets=targets, about=about)


def some_logits(seed: int, tokens: Sequence[int], experts: int = DEVICES) -> list[Any]:
    return [integers(seed + i, count, experts, most=16) / np.float32(8) for i, count in enumerate(tokens)]


def balanced_routing() -> Trial:
    """Every expert is chosen equally often, with any probability: the loss is alpha. The gradient is 0 up to rounding,
    so it is not compared."""
    liked = np.eye(DEVICES, dtype=np.float32)[np.arange(TOKENS) % DEVICES]
    return balance_loss(
        [liked * np.float32(device + 1) for device in range(DEVICES)],
        gradient=False,
        about="here all experts are chosen equally often",
    )


def collapsed_routing() -> Trial:
    """All tokens choose one expert, and are sure of it: the loss is alpha N."""
    sure = np.zeros((TOKENS, DEVICES), np.float32)
    sure[:, 2] = 1000
    return balance_loss([sure] * DEVICES, about="here all tokens choose one expert")


# --- ExactDispatch, FindTheRace: exact buffers -----------------------------------------------------------


def exact_targets(params: Params, xs: Sequence[Any]) -> dict[str, int]:
    """Targets of one call in which every row is sent once in each direction, unless its expert is on its own device."""
    routed, (tokens, model_dim) = token_counts(params, xs), xs[0].shape
    hidden_dim = params["expert_0/w0"].shape[1]
    away = routed * (1 - np.eye(DEVICES, dtype=int))
    rows = away.sum(axis=0) + away.sum(axis=1)
    table = DEVICES * (DEVICES - 1) * WORD
    messages = (away > 0).sum(axis=0) + (away > 0).sum(axis=1)
    return {
        "sent": int((rows * model_dim * 4 + messages * 2 * WORD).max()) + table,
        "messages": int(messages.max()),
        "receives": 0,
        "collectives": 1,
        "barriers": 2,
        "flops": flops(int(routed.sum(axis=0).max()), tokens, model_dim, hidden_dim),
        "weights": 4 * model_dim * (DEVICES + 2 * hidden_dim + (DEVICES + 1) * tokens),
    }


def outputs_before_landing(params: Params, xs: Sequence[Any]) -> list[Any]:
    """Outputs if rows land after the experts have read their inboxes: only a device's own expert has seen its rows."""
    return [dropless_layer(params, x, skipped={*range(DEVICES)} - {device}) for device, x in enumerate(xs)]


def exact_dispatch(
    seed: int = SEED,
    calls: int = 1,
    tokens: int = TOKENS,
    model: int = MODEL,
    hidden: int = HIDDEN,
    late: Sequence[int] | None = None,
    favourite: int | None = None,
) -> Trial:
    """A trial of several calls with new tokens each. With a `favourite`, the router sends all tokens to one expert."""
    params = expert_parameters(seed, model, hidden)
    if favourite is not None:
        params["router/weights"] *= 0
        params["router/weights"][0, favourite] = 1
    batches = [token_groups(seed + 50 + 10 * i, tokens, params) for i in range(calls)]
    if favourite is not None:
        for x in batches[0]:
            x[:, 0] = 2
    made = [_exact_call(params, xs) for xs in batches]
    targets = exact_targets(params, batches[0]) if calls == 1 else {"receives": 0}
    shape = sizes(model, hidden, tokens=tokens)
    return Trial(shape, params, made, tolerance=TOLERANCE, targets=targets, **_landing(late))


def _landing(late: Sequence[int] | None) -> dict[str, Any]:
    """Arguments of a trial that delay the puts of some devices until the barrier."""
    if late is None:
        return {}
    about = f"here what {_devices(late)} puts lands at the barrier, and everything else immediately"
    return {
        "options": {"late_puts": tuple(late)},
        "about": about if late else "here what is put lands immediately, before a barrier and after",
    }


def _devices(numbers: Sequence[int]) -> str:
    return " and ".join(f"device {number}" for number in numbers)


def _exact_call(params: Params, xs: Sequence[Any]) -> MethodCall:
    sorted_only = []
    for x in xs:
        order = np.argsort(chosen_experts(params, x), kind="stable")
        gained = dropless_layer(params, x) - x
        sorted_only.append(x + gained[order])
    return MethodCall(
        "forward",
        xs,
        [dropless_layer(params, x) for x in xs],
        {
            "this is the result if an expert's output is not multiplied by p(x)": [
                dropless_layer(params, x, scaled=False) for x in xs
            ],
            "the rows came back sorted by expert, and have to go back to their tokens' places": sorted_only,
            "the rows had not landed when they were read; there has to be a barrier in between": outputs_before_landing(
                params, xs
            ),
        },
    )


def find_the_race(
    late: Sequence[int], seed: int = SEED, tokens: int = TOKENS, model: int = MODEL, hidden: int = HIDDEN
) -> Trial:
    """A trial in which the rows of some devices land late."""
    params = expert_parameters(seed, model, hidden)
    xs = token_groups(seed + 50, tokens, params)
    share = np.concatenate([router_probabilities(params, x) for x in xs]).mean(axis=0)

    def with_share(outs: Sequence[Any]) -> list[Any]:
        return [{"out": out, "share": share} for out in outs]

    missing = "the experts read this device's rows before they had landed; what makes them wait for rows?"
    right = with_share([dropless_layer(params, x) for x in xs])
    call = MethodCall("forward", xs, right, {missing: with_share(outputs_before_landing(params, xs))})
    targets = exact_targets(params, xs)
    targets["sent"] += 2 * (DEVICES - 1) * 4
    targets["collectives"] += 1
    targets["flops"] += 2 * DEVICES  # the mean
    shape = sizes(model, hidden, tokens=tokens)
    return Trial(shape, params, (call,), tolerance=TOLERANCE, targets=targets, **_landing(late))


TRIALS: Mapping[str, tuple[Callable[[], Trial], ...]] = {
    "SwitchDispatch": (
        switch_dispatch,
        partial(switch_dispatch, 1.25),
        partial(switch_dispatch, 0.75, seed=300, tokens=12, model=8, hidden=32),
    ),
    "BalanceLoss": (
        lambda: balance_loss(some_logits(70, [TOKENS] * DEVICES)),
        balanced_routing,
        collapsed_routing,
        lambda: balance_loss(some_logits(80, (8, 1, 3, 5)), 2.0, about="here devices have 8, 1, 3 and 5 tokens"),
        lambda: balance_loss(some_logits(90, [TOKENS] * DEVICES, 6), about="here there are 6 experts on 4 devices"),
    ),
    "GShardTop2": (
        gshard_top2,
        partial(gshard_top2, 2, seed=302),
        partial(gshard_top2, 5, seed=300, tokens=12, model=8, hidden=32),
    ),
    "ExactDispatch": (
        exact_dispatch,
        partial(exact_dispatch, 400, calls=3, late=()),
        partial(exact_dispatch, 304, favourite=1, late=(1, 3)),
        partial(exact_dispatch, 305, tokens=5, model=8, hidden=32),
    ),
    "FindTheRace": (
        partial(find_the_race, ()),
        partial(find_the_race, (2,)),
        partial(find_the_race, (0, 3), seed=306, tokens=5, model=8, hidden=32),
    ),
}


# --- What no class can do with less ---


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
        "sent": FigureBound(sent, f"the results of {away} rows depend on experts of other devices", given=("weights",)),
        "flops": lower_bounds.flops(rows * used * hidden_dim, trial.devices),
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


LOWER_BOUNDS: Mapping[str, MakeBounds] = {
    "SwitchDispatch": switch,
    "BalanceLoss": lambda trial: {"sent": lower_bounds.something("the loss depends on the logits of all devices")},
    "GShardTop2": lambda trial: routed(trial, trial.arguments["capacity"]),
    "ExactDispatch": routed,
    "FindTheRace": routed,
}
