"""Trials of the federated puzzles: a server, device 0, and four clients whose data stays with them.

Some answers are unique and are compared exactly; others are random by design, and their mean and frequency over many
seeds are tested against bounds from the exact variance. Encodings are written differently from the solutions (Kronecker
products instead of butterflies), so the two are unlikely to share a mistake. A draw that is close to the probability
with which it is compared is not used, so that no rounding decides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from typing import Any, NamedTuple

import numpy as np

from puzzles.catalog.engine import lower_bounds
from puzzles.catalog.engine.lower_bounds import BITS, FigureBound, MakeBounds
from puzzles.catalog.engine.models import ROUNDING, fixed_rng, integers, numbers
from puzzles.catalog.engine.trial import MethodCall, Performed, Trial, WrongResultError

# --- Reads the server's result: in this chapter device 0 is a server, and the other devices are its clients.


CLIENTS = 4
DEVICES = 1 + CLIENTS

Targets = Mapping[str, int] | None


def server_result(performed: Performed, shape: tuple[int, ...], call: int = 0) -> Any:
    """The array of this shape that the server returned in a call.

    Raises:
        WrongResultError: it returned something else; the message names its shape or type.
    """
    got = performed.results[call][0]
    if not isinstance(got, np.ndarray) or got.shape != shape:
        given = f"one of shape {got.shape}" if isinstance(got, np.ndarray) else f"of type {type(got).__name__}"
        raise WrongResultError(f"device 0, forward() should return an array of shape {shape}; it is {given}")
    return got


# --- Reference encodings of a vector in float64: levels of a quantizer, the Walsh-Hadamard rotation, and test vectors.
#
# They are written differently from the solutions (Kronecker products instead of butterflies), so the two are unlikely
# to share a mistake.


class QuantizationScale(NamedTuple):
    """A vector on the scale of a quantizer with 2^bits levels, from its minimum to its maximum.

    `below` is the level below each number, `fraction` its distance from that level in steps, `step` the step size.
    """

    least: float
    step: float
    below: Any
    fraction: Any

    def values(self, up: Any) -> Any:
        """The quantized numbers: each at the level below it, or at the level above where `up` is 1."""
        return self.least + self.step * (self.below + up)

    @property
    def variance(self) -> Any:
        """Variance of every number h under stochastic rounding to a neighbor h' or h'': (h'' - h)(h - h')."""
        return self.step**2 * self.fraction * (1 - self.fraction)


def quantization_scale(h: Any, bits: int) -> QuantizationScale:
    h = np.asarray(h, np.float64)
    top, extent = 2**bits - 1, h.max() - h.min()
    exact = (h - h.min()) * top / (extent or 1)
    below = np.floor(exact)
    return QuantizationScale(h.min(), extent / top, below, exact - below)


def walsh_hadamard(v: Any) -> Any:
    """H v / sqrt(d): for d = s^2, H is the Kronecker product of two matrices with s rows."""
    side = int(np.sqrt(v.size))
    h = np.ones((1, 1))
    while len(h) < side:
        h = np.block([[h, h], [h, -h]])
    return (h @ v.reshape(side, side) @ h).ravel() / side


def random_signs(rng: np.random.Generator, size: int | tuple[int, ...]) -> Any:
    """Random signs, -1 or 1."""
    return 2 * rng.integers(0, 2, size) - 1


def spiky_vector(seed: int, size: int) -> Any:
    """Four spikes, and -1, 0 or 1 elsewhere."""
    v = integers(seed, size, most=1)
    v[np.random.default_rng(seed).choice(size, 4, replace=False)] = 32, -32, 32, -32
    return v


def padded_vector(size: int, *signs: int) -> Any:
    """The given numbers, then zeros."""
    v = np.zeros(size, np.float32)
    v[: len(signs)] = signs
    return v


# --- Trials of FedSGD and FedAvg: linear regression on examples that stay with their clients.


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


# --- Trials of Subsample and Quantize: updates that are compressed at random, with draws of the player's choice.
#
# There is no single right answer. Each number that arrives is compared with the values that it may have. Over many
# seeds, its mean and frequency are tested against bounds from the exact variance.


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


# --- Trials of LowRank: a linear layer trained in a few directions that a seed picks.


LINEAR_RATE = 2.0**-10
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
                update = update - LINEAR_RATE * direction(e["x"].T @ (e["x"] @ at - e["y"]))
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
        {"dim": dim, "rank": rank, "rate": LINEAR_RATE, "steps": steps},
        {"weights": given.w},
        (MethodCall("forward", [None, *given.examples], [right], made),),
        devices=DEVICES,
        tolerance=ROUNDING,
        targets=targets,
    )


def _uphill(direction: Direction) -> Direction:
    return lambda grad: -direction(grad)


# --- Trials of Rotate: updates that are rotated before they are compressed.
#
# Its statement fixes all random draws, so there is one right answer for every seed, and it is compared exactly.


RIGHT = "right"
Answers = Mapping[str, Any]
"""One client's update as the server rebuilds it: under RIGHT, and for known mistakes under the message for each."""

MARGIN = 5e-6
"""Of each draw from the probability with which it is compared, so that no rounding decides."""


def rotate(size: int = 4096, seed: int = 92, targets: Targets = None) -> Trial:
    padded = padded_vector(size, 1, -1), padded_vector(size, 1)
    rng = np.random.default_rng(1)
    while not all(map(_is_clear, padded, (seeds := client_seeds(rng))[0, 1:3])):
        continue
    updates = [_clear_vector(seed, size, seeds[0, 0]), *padded, _clear_vector(seed + 1, size, seeds[0, 3])]
    rows = [_rotated(h, client_seed) for h, client_seed in zip(updates, seeds[0])]
    made = {words: [np.stack([row[words] for row in rows])] for words in rows[0]}
    (call,) = calls_with(seeds, updates)
    call = replace(call, wanted=made.pop(RIGHT), mistakes=made)
    return Trial({"size": size}, {}, (call,), devices=DEVICES, tolerance=1e-5, targets=targets, packing=True)


def _clear_vector(seed: int, size: int, client_seed: int) -> Any:
    """A spiky vector; the first of several if a draw is too close in it."""
    for more in count(step=100):
        h = spiky_vector(seed + more, size)
        if _is_clear(h, client_seed):
            return h
    raise AssertionError("count has no end")


def _is_clear(h: Any, client_seed: int) -> bool:
    """True if no draw is close to the probability with which it is compared."""
    signs, draws = _draws(client_seed, h.size)
    return bool(np.abs(draws - _scale(walsh_hadamard(signs * h)).fraction).min() > MARGIN)


def _draws(client_seed: int, size: int) -> tuple[Any, Any]:
    """As the statement says: signs, then a number for each bit."""
    rng = fixed_rng(client_seed)
    return random_signs(rng, size), rng.random(size)


def _scale(v: Any) -> QuantizationScale:
    return quantization_scale(v, bits=1)


def _rotated(h: Any, client_seed: int) -> Answers:
    signs, draws = _draws(client_seed, h.size)

    def bit(v: Any) -> Any:
        scale = _scale(v)
        return scale.values(draws < scale.fraction)

    sent, root = bit(walsh_hadamard(signs * h)), np.sqrt(h.size)
    right = signs * walsh_hadamard(sent)
    return {
        RIGHT: right,
        "it was quantized without rotation; rotate it first, and rotate back on the server": bit(h),
        "the signs are not undone; after H, the server has to multiply by the same signs again": walsh_hadamard(sent),
        "it is still rotated; the server has to apply H and then the signs": sent,
        "H was applied without multiplying by the signs first": walsh_hadamard(bit(walsh_hadamard(h))),
        f"it is {root:g} times too large; H / sqrt(d) is its own inverse, so both sides divide by sqrt(d)": root
        * right,
        f"it is {h.size} times too large; H H is d, so both sides divide by sqrt(d)": h.size * right,
    }


# --- The trials of the chapter


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


# --- What no class can do with less ---


def fed_sgd_bounds(trial: Trial) -> dict[str, FigureBound]:
    """A client's gradient has the information of its examples, or of its numbers, whichever is less."""
    numbers = trial.arguments["dim"] * BITS / 8
    bits = sum(min(lower_bounds.information(given), numbers) for call in trial.calls for given in call.arguments[1:])
    return {"uplink": FigureBound(int(bits / 2), "every client's gradient changes the weights in every round")}


def trained(trial: Trial) -> dict[str, FigureBound]:
    """A client's update, in the numbers that were trained."""
    return {"sent": _update(trial.arguments["rank"] * trial.arguments["dim"] * BITS / 8)}


def compressed(trial: Trial, bits: int = 0) -> dict[str, FigureBound]:
    """The first round's update: numbers that are sent, at `bits` each, or at the bits that the trial says."""
    sizes: Mapping[str, Any] = trial.arguments
    numbers = sizes["size"] // sizes.get("share", 1)
    sent = _update(numbers * (bits or sizes.get("bits", 1)) / 8)
    return {"sent": sent}


def _update(nbytes: float) -> FigureBound:
    return FigureBound(
        int(nbytes / 4), f"an update has about {nbytes:,.0f} B of information; a quarter counts, for any coding"
    )


LOWER_BOUNDS: Mapping[str, MakeBounds] = {
    "FedSGD": fed_sgd_bounds,
    "FedAvg": lambda trial: {"uplink": lower_bounds.something("the server has no examples of its own")},
    "LowRank": trained,
    "Subsample": lambda trial: compressed(trial, bits=BITS),
    "Quantize": compressed,
    "Rotate": compressed,
}
