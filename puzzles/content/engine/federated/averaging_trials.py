"""Trials of FedSGD and FedAvg: linear regression on examples that stay with their clients."""

from __future__ import annotations

from typing import Any

import numpy as np

from puzzles.catalog.engine.trial import MethodCall, Performed, Trial, WrongResultError
from puzzles.catalog.engine.two_layer_mlp import ROUNDING, fixed_rng, numbers

from .server_result import DEVICES, Targets, server_result

RATE = 0.25
COUNTS = (4, 2, 1, 1), (1, 1, 2, 4)
"""Each client's number of examples, in each round."""

CLOSED = 0.99
"""Required fraction of the way from the first loss to the minimum."""

CLOSED_BY_OTHERS = 0.988
"""The same on the values of a second run, which are as easy for one known class, but not for all: of 300 such draws,
no class that passes the usual ones had less than 0.9888."""

EASY = 0.9915
"""Of the way that EPOCHS in ROUNDS close on the values of a trial."""

EPOCHS, ROUNDS = 6, 9
EXAMPLES = 128, 64, 32, 32


def fed_sgd(
    dim: int = 16, counts: tuple[tuple[int, ...], ...] = COUNTS, seed: int = 60, targets: Targets = None
) -> Trial:
    start = numbers(seed, dim)
    w = start.astype(np.float64)
    calls = []
    for i, each in enumerate(counts):
        seeds = [seed + 100 * i + n for n in range(1, len(each) + 1)]
        examples = [{"x": numbers(s, n, dim), "y": numbers(s + 50, n)} for s, n in zip(seeds, each)]
        grads = [e["x"].T @ (e["x"] @ w - e["y"]) for e in examples]
        steps = {
            "every client's average has the same weight here; weight each by its number of examples": sum(
                grad / n for grad, n in zip(grads, each)
            )
            / len(each),
            "the sum over examples is divided by the number of clients; divide it by the number of examples": sum(grads)
            / len(each),
            "this is the step of a sum over examples; the loss is their average": sum(grads),
            "these are the weights from before the step; the server has to send the new ones to all devices": 0,
        }
        mistakes = {words: [w - RATE * step] * DEVICES for words, step in steps.items()}
        w = w - RATE * sum(grads) / sum(each)
        calls.append(MethodCall("forward", [None, *examples], [w] * DEVICES, mistakes))
    return Trial(
        {"dim": dim, "rate": RATE}, {"weights": start}, calls, devices=DEVICES, tolerance=ROUNDING, targets=targets
    )


def fed_avg(seed: int = 1, dim: int = 64) -> Trial:
    rng = np.random.default_rng(seed)
    while (problem := Regression(regressions(rng, dim), dim)).closed(problem.averaged()) < EASY:
        continue
    examples, first, least = problem.examples, problem.loss(np.zeros(dim)), problem.loss(problem.best)
    required = CLOSED if np.random.default_rng is fixed_rng else CLOSED_BY_OTHERS

    def check(performed: Performed) -> None:
        w = server_result(performed, (dim,))
        closed = problem.closed(w)
        if not closed >= required:
            raise WrongResultError(
                f"the server's weights have a loss of {problem.loss(w):.3f}: {closed:.1%} of the way from {first:.3f} "
                f"to the minimum, {least:.3f}; it should be {required:.1%}. More rounds help, and fewer epochs, "
                "because the clients' own optima pull them apart"
            )

    return Trial(
        {"dim": dim, "rate": RATE},
        {"weights": np.zeros(dim, np.float32)},
        (MethodCall("forward", [None, *examples]),),
        devices=DEVICES,
        check=check,
    )


class Regression:
    """Linear regression on the examples of all clients, in float64."""

    def __init__(self, examples: list[dict[str, Any]], dim: int) -> None:
        self.examples = examples
        self.x, self.y = (np.concatenate([e[name] for e in examples]).astype(np.float64) for name in ("x", "y"))
        self.start = np.zeros(dim)
        self.best = np.linalg.solve(self.x.T @ self.x, self.x.T @ self.y)

    def loss(self, w: Any) -> float:
        return float(np.mean((self.x @ w - self.y) ** 2) / 2)

    def closed(self, w: Any) -> float:
        """The fraction of the way from the first loss to the minimum."""
        first = self.loss(self.start)
        return (first - self.loss(w)) / (first - self.loss(self.best))

    def averaged(self) -> Any:
        """The weights after ROUNDS of federated averaging, with EPOCHS of each client in a round."""
        w, sizes = self.start, [len(e["y"]) for e in self.examples]
        for _ in range(ROUNDS):
            trained = [w.copy() for _ in self.examples]
            for own, e, size in zip(trained, self.examples, sizes):
                for _ in range(EPOCHS):
                    own -= RATE / size * (e["x"].T @ (e["x"] @ own - e["y"]))
            w = np.average(trained, axis=0, weights=sizes)
        return w


def regressions(rng: np.random.Generator, dim: int) -> list[dict[str, Any]]:
    """Four clients' examples. Each client's labels follow its own weights, which vary around common ones."""
    scale = np.geomspace(1, 0.5, dim)
    common = rng.normal(size=dim)
    found = []
    for rows in EXAMPLES:
        x = rng.normal(size=(rows, dim)) * scale
        own = common + 0.5 * rng.normal(size=dim)
        y = x @ own + 0.1 * rng.normal(size=rows)
        found.append({"x": x.astype(np.float32), "y": y.astype(np.float32)})
    return found
