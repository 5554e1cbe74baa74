"""Trials of the federated puzzles: a server, device 0, and four clients whose data stays with them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from puzzles.catalog.engine.trial import Trial

from .averaging_trials import fed_avg, fed_sgd
from .rotated_trials import rotate
from .sketched_trials import quantize, repeated_rounds, subsample
from .structured_trials import low_rank

TRIALS: Mapping[str, tuple[Callable[[], Trial], ...]] = {
    "FedSGD": (fed_sgd, partial(fed_sgd, dim=8, counts=((2, 2, 8, 4),), seed=40, targets={"uplink": 160})),
    "FedAvg": (fed_avg, partial(fed_avg, seed=2), partial(fed_avg, seed=3)),
    "LowRank": (low_rank, partial(low_rank, dim=32, rank=2, steps=1, targets={"sent": 272}, seed=20)),
    "Subsample": (subsample, repeated_rounds(subsample, rounds=161, sent=24, size=64)),
    "Quantize": (
        quantize,
        partial(quantize, bits=2, flat=True, targets={"sent": 1_040}),
        repeated_rounds(quantize, rounds=61, sent=24, size=64),
        repeated_rounds(quantize, rounds=61, sent=32, size=64, bits=2),
    ),
    "Rotate": (rotate, partial(rotate, size=64, seed=10, targets={"sent": 32})),
}
