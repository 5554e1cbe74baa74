"""Updates that are cut down to be sent. Where draws are free (Subsample, Quantize) many seeds are tried and judged by
exact variances; where the statement fixes the draws (Rotate, Compose) there is one right answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ..trial import Call, Performed, Trial, Wrong
from .codes import coins, levels, spiky, unit, walsh_hadamard
from .rebuilt import array_of, require_rows

CLIENTS = 4
DEVIATIONS = 6
"""How many standard deviations an average may be off: seeds are fixed, so what passes once always does."""

Targets = Mapping[str, int] | None


def _calls(rounds: int, updates: list[Any]) -> tuple[tuple[Call, ...], Any]:
    """The same updates in every round, with new seeds; of several rounds the last repeats the first one's. Calls
    and seeds."""
    seeds = np.random.default_rng(rounds).integers(2**31, 2**32, (rounds, CLIENTS))
    if rounds > 1:
        seeds[-1] = seeds[0]
    calls = [Call("forward", [None, *({"update": h, "seed": int(s)} for h, s in zip(updates, row))]) for row in seeds]
    return tuple(calls), seeds


def _rows(performed: Performed, size: int) -> Any:
    """What the server has rebuilt, (rounds, clients, size), once the last round repeats the first."""
    rows = np.stack([array_of(performed, i, (CLIENTS, size)) for i in range(len(performed.results))])
    if not np.array_equal(rows[0], rows[-1]):
        raise Wrong(
            "the same seeds led to other numbers in a later round; draw from np.random.default_rng(seed), made anew "
            "in every call, and from nothing else"
        )
    return rows


def subsample(size: int = 4096, share: int = 16, rounds: int = 1, targets: Targets = None) -> Trial:
    rng = np.random.default_rng(90)
    updates = [(rng.integers(1, 9, size) * coins(rng, size)).astype(np.float32) for _ in range(CLIENTS)]
    calls, _ = _calls(rounds, updates)

    def check(performed: Performed) -> None:
        rows = _rows(performed, size)
        sent, h = rows != 0, np.stack(updates)
        if (wrong := sent & (rows != share * h)).any():
            i, client, place = (int(at[0]) for at in np.nonzero(wrong))
            what = f"[{place}] is {rows[i, client, place]:g} and was {h[client, place]:g}"
            if (rows == h)[sent].all():
                what += (
                    f"; only one in {share} is sent, so scale it by {share}, or the average is {share} times too small"
                )
            raise Wrong(f"the update of client {client + 1}, as rebuilt: {what}; it should be 0 or {share} times that")
        if (counts := sent.sum(axis=-1)).min() < size // share or counts.max() > size // share:
            raise Wrong(
                f"of {size} numbers of a client between {counts.min()} and {counts.max()} arrived; it should be "
                f"{size // share}, chosen without replacement"
            )
        _require_even(sent[1:], 1 / share)

    return Trial({"size": size, "share": share}, {}, calls, devices=5, check=check, targets=targets)


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
    first = rng.integers(-20, 21, size).astype(np.float32)
    # Over many seeds all clients have the same update, so that each of its numbers is tried often.
    others = [first if rounds > 1 else rng.permutation(first) for _ in range(CLIENTS - 1)]
    updates = [np.full(size, -3, np.float32) if flat else first, *others]
    calls, _ = _calls(rounds, updates)
    scales = [levels(h, bits) for h in updates]

    def check(performed: Performed) -> None:
        rows = _rows(performed, size)
        for client, (h, scale) in enumerate(zip(updates, scales)):
            _require_neighbours(rows[:, client], h, scale, bits, f"the update of client {client + 1}, as rebuilt")
        if rounds > 1:
            _require_fair(rows[1:].reshape(-1, size), first, scales[0])

    return Trial({"size": size, "bits": bits}, {}, calls, devices=5, check=check, targets=targets)


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


def rotate(size: int = 4096, seed: int = 92, targets: Targets = None) -> Trial:
    updates = [spiky(seed, size), unit(size, 1, -1), unit(size, 1), spiky(seed + 1, size)]
    calls, seeds = _calls(1, updates)
    answers: dict[str, list[Any]] = {name: [] for name in ("right", "plain", "signs", "back", "unsigned")}
    for h, s in zip(updates, seeds[0]):
        rng = np.random.default_rng(int(s))
        signs, draws = coins(rng, size), rng.random(size)
        decided = {name: _one_bit(v, draws) for name, v in _rotations(h, signs).items()}
        answers["right"].append(signs * walsh_hadamard(decided["both"]))
        answers["plain"].append(decided["none"])
        answers["signs"].append(walsh_hadamard(decided["both"]))
        answers["back"].append(decided["both"])
        answers["unsigned"].append(walsh_hadamard(decided["no signs"]))
    found = {name: np.stack(rows) for name, rows in answers.items()}
    mistakes = {
        "it was quantized as it is; rotate it before, and back on the server": found["plain"],
        "the signs are not undone; after H the server multiplies by the same signs again": found["signs"],
        "it is still rotated; the server has to apply H and then the signs": found["back"],
        "H was applied, but no signs before it": found["unsigned"],
        f"it is {np.sqrt(size):g} times too large; H / sqrt(d) is its own inverse, both divide": np.sqrt(size)
        * found["right"],
        f"it is {size} times too large; H H is d, so divide by sqrt(d) on both sides": size * found["right"],
    }
    return Trial(
        {"size": size},
        {},
        calls,
        devices=5,
        check=lambda performed: require_rows(performed, 0, found["right"], mistakes, 1e-5),
        targets=targets,
    )


def _rotations(h: Any, signs: Any) -> dict[str, Any]:
    return {"both": walsh_hadamard(signs * h), "no signs": walsh_hadamard(h), "none": h}


def _one_bit(v: Any, draws: Any) -> Any:
    scale = levels(v, 1)
    return scale.values(draws < scale.fraction)


def compose(size: int = 4096, share: int = 16, bits: int = 2, seed: int = 94, targets: Targets = None) -> Trial:
    updates = [spiky(seed + i, size) for i in range(CLIENTS)]
    calls, seeds = _calls(1, updates)
    right, unscaled, back, same = [], [], [], []
    for h, s in zip(updates, seeds[0]):
        rng = np.random.default_rng(int(s))
        signs, places = coins(rng, size), rng.choice(size, size // share, replace=False)
        scale = levels(walsh_hadamard(signs * h)[places], bits)
        rotated = np.zeros(size)
        rotated[places] = scale.values(rng.random(len(places)) < scale.fraction)
        right.append(share * signs * walsh_hadamard(rotated))
        unscaled.append(signs * walsh_hadamard(rotated))
        back.append(share * rotated)
        same.append(share * walsh_hadamard(rotated))
    mistakes = {
        f"it is {share} times too small; one in {share} was sent, so scale what arrives": np.stack(unscaled),
        "it is still rotated; the server has to apply H and then the signs": np.stack(back),
        "the signs are not undone; after H the server multiplies by the same signs again": np.stack(same),
    }
    return Trial(
        {"size": size, "share": share, "bits": bits},
        {},
        calls,
        devices=5,
        check=lambda performed: require_rows(performed, 0, np.stack(right), mistakes, 1e-5),
        targets=targets,
    )


def many(make: Callable[..., Trial], rounds: int, sent: int, **sizes: int) -> Callable[[], Trial]:
    """A trial of several rounds in small, in each of which a client may send so many bytes."""
    return lambda: make(rounds=rounds, targets={"sent": rounds * sent}, **sizes)
