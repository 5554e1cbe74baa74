"""Trials of LowRank: a linear layer trained in a few directions that a seed picks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from puzzles.catalog.engine.trial import MethodCall, Trial
from puzzles.catalog.engine.two_layer_mlp import ROUNDING, fixed_rng, numbers

from .encodings import random_signs
from .server_result import CLIENTS, DEVICES, Targets

RATE = 2.0**-10
ROWS = 8
Direction = Callable[[Any], Any]
"""Turns a gradient into the change to subtract."""


@dataclass(frozen=True)
class LinearClients:
    """Weights that all clients share, and each client's examples and seed."""

    w: Any
    examples: Sequence[Mapping[str, Any]]

    @property
    def seeds(self) -> list[int]:
        return [e["seed"] for e in self.examples]

    def trained(self, steps: int, directions: Iterable[Direction], moving: bool = True) -> Any:
        """The clients' updates after some steps; each client's function turns a gradient into its step.

        Deliberate mistake: without `moving`, every gradient is taken at the first weights.
        """
        updates = []
        for e, direction in zip(self.examples, directions):
            update = np.zeros(self.w.shape)
            for _ in range(steps):
                at = self.w + update if moving else self.w
                update = update - RATE * direction(e["x"].T @ (e["x"] @ at - e["y"]))
            updates.append(update)
        return np.stack(updates)

    def unrestricted(self, steps: int) -> Any:
        """The updates of unrestricted gradient descent."""
        return self.trained(steps, [lambda grad: grad] * CLIENTS)


def linear_clients(dim: int, seed: int) -> LinearClients:
    # Seeds are large, so that sending one takes four bytes.
    seeds = np.random.default_rng(seed).integers(2**31, 2**32, CLIENTS)
    examples = [
        {
            "x": numbers(seed + n, ROWS, dim),
            "y": numbers(seed + 100 + n, ROWS, dim),
            "seed": int(s),
        }
        for n, s in enumerate(seeds, 1)
    ]
    return LinearClients(numbers(seed, dim, dim), examples)


def low_rank(dim: int = 64, rank: int = 4, steps: int = 2, seed: int = 70, targets: Targets = None) -> Trial:
    given = linear_clients(dim, seed)
    bases = [random_signs(fixed_rng(s), (dim, rank)).astype(np.float32) for s in given.seeds]
    # Training only B moves the update along A A^T: the gradient by B is A^T grad, and A dB = -rate A A^T grad.
    within = [lambda grad, a=a: a @ (a.T @ grad) for a in bases]
    right, free = given.trained(steps, within), given.unrestricted(steps)
    mistakes = {
        f"the whole layer was trained, without restriction; the update should be A B, of rank {rank} at most": free,
        "the whole layer was trained, and the result multiplied by A A^T; train B itself, so that each step's "
        "gradient is taken at w + A B": np.stack([a @ (a.T @ update) for a, update in zip(bases, free)]),
        "every step took the gradient at the first weights; take it at w + A B": given.trained(
            steps, within, moving=False
        ),
        "the steps went uphill; subtract rate times the gradient": given.trained(steps, map(_uphill, within)),
    }
    made = {words: [updates] for words, updates in mistakes.items()}  # of the server; the clients may return anything
    return Trial(
        {"dim": dim, "rank": rank, "rate": RATE, "steps": steps},
        {"weights": given.w},
        (MethodCall("forward", [None, *given.examples], [right], made),),
        devices=DEVICES,
        tolerance=ROUNDING,
        targets=targets,
    )


def _uphill(direction: Direction) -> Direction:
    return lambda grad: -direction(grad)
