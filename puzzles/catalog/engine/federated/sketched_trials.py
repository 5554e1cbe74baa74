"""Updates that are cut down by chance: Subsample and Quantize, in which draws are free.

So there is no one right answer. What arrives is judged number by number by what it may be, and over many seeds by how
often it is that, with bounds from the exact variance.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from puzzles.catalog.engine.trial import Call, Performed, Trial, Wrong

from .codes import coins, levels
from .server import CLIENTS, DEVICES, Targets, returned

DEVIATIONS = 6
"""How many standard deviations an average may be off: seeds are fixed, so what passes once always does."""


def calls_with(rounds: int, updates: list[Any]) -> tuple[tuple[Call, ...], Any]:
    """The same updates in every round, with new seeds; of several rounds the last repeats the first one's. Calls
    and seeds."""
    seeds = np.random.default_rng(rounds).integers(2**31, 2**32, (rounds, CLIENTS))
    if rounds > 1:
        seeds[-1] = seeds[0]
    calls = [Call("forward", [None, *({"update": h, "seed": int(s)} for h, s in zip(updates, row))]) for row in seeds]
    return tuple(calls), seeds


def _rows(performed: Performed, size: int) -> Any:
    """What the server has rebuilt, (rounds, clients, size), once the last round repeats the first."""
    rows = np.stack([returned(performed, (CLIENTS, size), i) for i in range(len(performed.results))])
    if not np.array_equal(rows[0], rows[-1], equal_nan=True):
        raise Wrong(
            "the same seeds led to other numbers in a later round; draw from np.random.default_rng(seed), made anew "
            "in every call, and from nothing else"
        )
    return rows


def subsample(size: int = 4096, share: int = 16, rounds: int = 1, targets: Targets = None) -> Trial:
    rng = np.random.default_rng(90)
    updates = [(rng.integers(1, 9, size) * coins(rng, size)).astype(np.float32) for _ in range(CLIENTS)]
    calls, _ = calls_with(rounds, updates)

    def check(performed: Performed) -> None:
        rows = _rows(performed, size)
        sent, h = rows != 0, np.stack(updates)
        if (wrong := sent & (rows != share * h)).any():
            i, client, place = (int(at[0]) for at in np.nonzero(wrong))
            raise Wrong(
                f"the update of client {client + 1}, as rebuilt: [{place}] was {h[client, place]:g} and is "
                f"{rows[i, client, place]:g}; it should be 0 or {share} times what it was: as one in {share} is sent, "
                "that makes it right on average"
            )
        if (counts := sent.sum(axis=-1)).min() < size // share or counts.max() > size // share:
            raise Wrong(
                f"of {size} numbers of a client between {counts.min()} and {counts.max()} arrived; it should be "
                f"{size // share}, chosen without replacement"
            )
        _require_even(sent[1:], 1 / share)

    return Trial({"size": size, "share": share}, {}, calls, devices=DEVICES, check=check, targets=targets)


def _require_even(sent: Any, p: float) -> None:
    """Nothing, if over all seeds every place was sent about equally often."""
    seeds = sent.shape[0] * sent.shape[1]
    allowed = DEVIATIONS * np.sqrt(seeds * p * (1 - p))
    times = sent.sum(axis=(0, 1))
    if (off := np.abs(times - seeds * p) > allowed).any():
        place = int(np.nonzero(off)[0][0])
        raise Wrong(
            f"over {seeds} seeds the number at [{place}] arrived {times[place]} times; it should be about "
            f"{seeds * p:.0f}, and at most {allowed:.0f} off ({DEVIATIONS} standard deviations): every place has to "
            "be as likely as any other, whatever stands there"
        )


def quantize(size: int = 4096, bits: int = 1, rounds: int = 1, targets: Targets = None, flat: bool = False) -> Trial:
    rng = np.random.default_rng(91)
    first = rng.integers(-12, 21, size).astype(np.float32)
    # Over many seeds all clients have the same update, so that each of its numbers is tried often.
    others = [first if rounds > 1 else rng.permutation(first) for _ in range(CLIENTS - 1)]
    updates = [np.full(size, -3, np.float32) if flat else first, *others]
    calls, _ = calls_with(rounds, updates)
    scales = [levels(h, bits) for h in updates]

    def check(performed: Performed) -> None:
        rows = _rows(performed, size)
        for client, (h, scale) in enumerate(zip(updates, scales)):
            _require_neighbours(rows[:, client], h, scale, bits, f"the update of client {client + 1}, as rebuilt")
        if rounds > 1:
            _require_fair(rows[1:].reshape(-1, size), first, scales[0])

    return Trial({"size": size, "bits": bits}, {}, calls, devices=DEVICES, check=check, targets=targets)


def _require_neighbours(rows: Any, h: Any, scale: Any, bits: int, where: str) -> None:
    """Nothing, if every number became a level next to it."""
    if not scale.step:
        if not (rows == h).all():
            raise Wrong(f"{where}: all its numbers were {h[0]:g}, so there is one level only; mind the division by 0")
        return
    level = (rows - scale.least) / scale.step
    up = np.rint(level) - scale.below
    wrong = (np.abs(level - np.rint(level)) > 1e-3) | (up < 0) | (up > np.ceil(scale.fraction)) | ~np.isfinite(rows)
    if wrong.any():
        i, place = (int(at[0]) for at in np.nonzero(wrong))
        below, above = (scale.values(up)[place] for up in (0, np.ceil(scale.fraction)))
        choice = f"{below:g} or {above:g}" if above > below else f"{below:g}"
        raise Wrong(
            f"{where}: [{place}] was {h[place]:g} and is {rows[i, place]:g}; of {2**bits} levels from the least to "
            f"the largest number its neighbours are {choice}"
        )


def _require_fair(rows: Any, h: Any, scale: Any) -> None:
    """Nothing, if over all seeds every number is right on average, and the numbers' errors have nothing to do with
    each other. `rows` is (seeds, size)."""
    seeds, mean = len(rows), rows.mean(axis=0)
    allowed = DEVIATIONS * np.sqrt(scale.variance / seeds) + 1e-5 * np.abs(h).max()
    if (off := np.abs(mean - h) > allowed).any():
        place = int(np.nonzero(off)[0][0])
        raise Wrong(
            f"over {seeds} seeds the number {h[place]:g} at [{place}] became {mean[place]:.2f} on average, and it may "
            f"be {allowed[place]:.2f} off ({DEVIATIONS} standard deviations); it has to go up with probability "
            "(h - h') / (h'' - h')"
        )
    # Independent errors add up to a variance that is the sum of theirs; equal draws to far more.
    if np.mean((rows - h).sum(axis=1) ** 2) > 3 * scale.variance.sum():
        raise Wrong("the errors of an update's numbers go up and down together; draw for every number of its own")


def many(make: Callable[..., Trial], rounds: int, sent: int, **sizes: int) -> Callable[[], Trial]:
    """A trial of several rounds in small, in each of which a client may send so many bytes."""
    return lambda: make(rounds=rounds, targets={"sent": rounds * sent}, **sizes)
