"""Trials of Subsample and Quantize: updates that are compressed at random, with draws of the player's choice.

There is no single right answer. Each number that arrives is compared with the values that it may have. Over many seeds,
its mean and frequency are tested against bounds from the exact variance.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from puzzles.catalog.engine.trial import MethodCall, Performed, Trial, WrongResultError
from puzzles.catalog.engine.two_layer_mlp import numbers

from .encodings import quantization_scale
from .server_result import CLIENTS, DEVICES, Targets, server_result

DEVIATIONS = 6
"""Allowed deviation of an average, in standard deviations: one right class in 10^5 or fewer is refused by chance."""


def client_seeds(rng: np.random.Generator, rounds: int = 1) -> Any:
    """Seeds, (rounds, clients): new ones in each round, except that the last of several rounds repeats the first."""
    seeds = rng.integers(2**31, 2**32, (rounds, CLIENTS))
    if rounds > 1:
        seeds[-1] = seeds[0]
    return seeds


def calls_with(seeds: Any, updates: Sequence[Any]) -> tuple[MethodCall, ...]:
    """Calls with the same updates in every round, and the seeds of the round."""
    return tuple(
        MethodCall("forward", [None, *({"update": h, "seed": int(s)} for h, s in zip(updates, row))]) for row in seeds
    )


def _rows(performed: Performed, size: int) -> Any:
    """The updates that the server has rebuilt, (rounds, clients, size).

    Raises:
        WrongResultError: the last round differs from the first, although it has the same seeds.
    """
    rows = np.stack([server_result(performed, (CLIENTS, size), i) for i in range(len(performed.results))])
    if not np.array_equal(rows[0], rows[-1], equal_nan=True):
        raise WrongResultError(
            "the same seeds gave different numbers in a later round; draw only from np.random.default_rng(seed), "
            "created again in every call"
        )
    return rows


def subsample(size: int = 4096, share: int = 16, rounds: int = 1, targets: Targets = None) -> Trial:
    updates = [numbers(90 + i, size) for i in range(CLIENTS)]
    calls = calls_with(client_seeds(np.random.default_rng(rounds), rounds), updates)

    def check(performed: Performed) -> None:
        rows = _rows(performed, size)
        sent, h = rows != 0, np.stack(updates)
        if (wrong := sent & (rows != share * h)).any():
            i, client, place = (int(at[0]) for at in np.nonzero(wrong))
            raise WrongResultError(
                f"the update of client {client + 1}, as rebuilt: [{place}] was {h[client, place]:g} and is "
                f"{rows[i, client, place]:g}; it should be 0, or {share} times what it was: only one in {share} is "
                "sent, so that makes it right on average"
            )
        if (counts := sent.sum(axis=-1)).min() < size // share or counts.max() > size // share:
            raise WrongResultError(
                f"of {size} numbers of a client, between {counts.min()} and {counts.max()} arrived; it should be "
                f"{size // share}, chosen without replacement"
            )
        _require_even(sent[1:], 1 / share)

    return Trial({"size": size, "share": share}, {}, calls, devices=DEVICES, check=check, targets=targets)


def _require_even(sent: Any, p: float) -> None:
    """Tests that over all seeds every place was sent about equally often."""
    seeds = sent.shape[0] * sent.shape[1]
    allowed = DEVIATIONS * np.sqrt(seeds * p * (1 - p))
    times = sent.sum(axis=(0, 1))
    if (off := np.abs(times - seeds * p) > allowed).any():
        place = int(np.nonzero(off)[0][0])
        raise WrongResultError(
            f"over {seeds} seeds the number at [{place}] arrived {times[place]} times; it should be about "
            f"{seeds * p:.0f}, and at most {allowed:.0f} off ({DEVIATIONS} standard deviations): every place has to "
            "be equally likely, whatever its value"
        )


def quantize(size: int = 4096, bits: int = 1, rounds: int = 1, targets: Targets = None, flat: bool = False) -> Trial:
    rng = np.random.default_rng(91)
    first = rng.integers(-12, 21, size).astype(np.float32)
    # Over many seeds, all clients have the same update, so that each of its numbers is tried often.
    others = [first if rounds > 1 else rng.permutation(first) for _ in range(CLIENTS - 1)]
    updates = [np.full(size, -3, np.float32) if flat else first, *others]
    calls = calls_with(client_seeds(np.random.default_rng(rounds), rounds), updates)
    scales = [quantization_scale(h, bits) for h in updates]

    def check(performed: Performed) -> None:
        rows = _rows(performed, size)
        for client, (h, scale) in enumerate(zip(updates, scales)):
            _require_neighbours(rows[:, client], h, scale, bits, f"the update of client {client + 1}, as rebuilt")
        if rounds > 1:
            _require_fair(rows[1:].reshape(-1, size), first, scales[0])

    return Trial({"size": size, "bits": bits}, {}, calls, devices=DEVICES, check=check, targets=targets, packing=True)


def _require_neighbours(rows: Any, h: Any, scale: Any, bits: int, where: str) -> None:
    """Tests that every number became a level next to it."""
    if not scale.step:
        if not (rows == h).all():
            raise WrongResultError(
                f"{where}: all its numbers were {h[0]:g}, so there is only one level; avoid dividing by 0"
            )
        return
    level = (rows - scale.least) / scale.step
    up = np.rint(level) - scale.below
    wrong = (np.abs(level - np.rint(level)) > 1e-3) | (up < 0) | (up > np.ceil(scale.fraction)) | ~np.isfinite(rows)
    if wrong.any():
        i, place = (int(at[0]) for at in np.nonzero(wrong))
        below, above = (scale.values(up)[place] for up in (0, np.ceil(scale.fraction)))
        choice = f"{below:g} or {above:g}" if above > below else f"{below:g}"
        raise WrongResultError(
            f"{where}: [{place}] was {h[place]:g} and is {rows[i, place]:g}; of {2**bits} levels from the minimum to "
            f"the maximum, its neighbors are {choice}"
        )


def _require_fair(rows: Any, h: Any, scale: Any) -> None:
    """Tests that over all seeds every number is right on average, and that the numbers' errors are independent.

    `rows` is (seeds, size).
    """
    seeds, mean = len(rows), rows.mean(axis=0)
    allowed = DEVIATIONS * np.sqrt(scale.variance / seeds) + 1e-5 * np.abs(h).max()
    if (off := np.abs(mean - h) > allowed).any():
        place = int(np.nonzero(off)[0][0])
        raise WrongResultError(
            f"over {seeds} seeds the number {h[place]:g} at [{place}] became {mean[place]:.2f} on average, and it may "
            f"be {allowed[place]:.2f} off ({DEVIATIONS} standard deviations); it has to go up with probability "
            "(h - h') / (h'' - h')"
        )
    # Independent errors have a variance that is the sum of theirs; with shared draws it is far larger.
    if np.mean((rows - h).sum(axis=1) ** 2) > 3 * scale.variance.sum():
        raise WrongResultError("the errors of an update's numbers are correlated; draw separately for every number")


def repeated_rounds(make: Callable[..., Trial], rounds: int, sent: int, **sizes: int) -> Callable[[], Trial]:
    """A maker of a small trial of several rounds; in each, a client may send that many bytes."""
    return lambda: make(rounds=rounds, targets={"sent": rounds * sent}, **sizes)
