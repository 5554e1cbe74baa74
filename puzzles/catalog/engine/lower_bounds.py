"""The least figures of a trial: what no class can do with less, each with its reason. A lower figure was not counted.

Every least follows from the trial's own numbers, in one of these ways.

Flops: each product of two nonzero numbers that a result contains is made on some device, 2 flops, so the device with
the most makes at least the mean. Zeros behind a relu need not be multiplied. A product is rows times columns: a scheme
that trades products for sums, such as Strassen's, makes sums that no meter counts.

Bytes sent: what only one device knows and others' results depend on has to leave it (the data processing inequality;
Cover and Thomas 2006, section 2.8). It counts with the bits that tell one value from the next within the tolerance.

Memory: an argument is on its device when a call begins, a result when it ends, and the parameters are on some device
between the calls.

Calls have no least: messages can do what collectives do, and the other way round.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from math import log2
from typing import Any, NamedTuple

import numpy as np

from .trial import Trial

BITS = 11
"""Of a number that has to be right within 1e-5 of the largest: a float16 with its 11 bits is not near enough."""

NARROW = (np.bool_, np.int8, np.uint8, np.int16, np.uint16, np.float16, np.int32, np.float32)
"""Types of an array by size; any number is right in the next ones."""


class FigureBound(NamedTuple):
    """The least of a figure, and why. If it holds only for classes that meet some targets, `given` names them."""

    value: int
    reason: str
    given: tuple[str, ...] = ()


FigureBounds = Mapping[str, FigureBound]
MakeBounds = Callable[[Trial], FigureBounds]


# --- Flops ---


def products(a: Any, b: Any, needed: Any = True) -> int:
    """Products of two nonzero numbers in `a @ b`, where the result is `needed`."""
    pairs = (np.asarray(a) != 0).astype(np.int64) @ (np.asarray(b) != 0).astype(np.int64)
    return int((pairs * (np.asarray(needed) != 0)).sum())


def flops(count: int, devices: int) -> FigureBound:
    """For so many products on all devices together."""
    return FigureBound(
        -(-2 * count // devices),
        f"the results contain {count:,} products of two nonzero numbers, 2 flops each, on {devices} devices",
    )


# --- Bytes sent ---


def bits_of(array: Any) -> float:
    """Bits that tell a number of this array from others: whole numbers by their range, others by the tolerance."""
    array = np.asarray(array)
    if array.dtype.kind in "biu" or (array == np.rint(array)).all():
        return log2(float(array.max(initial=0) - array.min(initial=0)) + 1)
    return BITS


def arrays_in(tree: Any) -> Iterator[Any]:
    """The arrays in nested dictionaries, lists and tuples."""
    if isinstance(tree, np.ndarray):
        yield tree
    elif isinstance(tree, dict | list | tuple):
        for part in tree.values() if isinstance(tree, dict) else tree:
            yield from arrays_in(part)


def information(tree: Any) -> float:
    """Bytes of information in the arrays of a tree."""
    return float(sum(array.size * bits_of(array) / 8 for array in arrays_in(tree)))


def leaves_device(of: Sequence[Any], what: str) -> FigureBound:
    """For what each device alone knows: half of its information, because results may not determine all of it."""
    most = max(map(information, of))
    return FigureBound(int(most / 2), f"{what} have {most:,.0f} B of information, and others' results depend on them")


# --- Memory ---


def nbytes(tree: Any) -> int:
    """Bytes of the arrays in a tree."""
    return sum(array.nbytes for array in arrays_in(tree))


def narrowest(tree: Any, tolerance: float) -> int:
    """Bytes of the arrays in a tree, each in the narrowest type that holds it within the tolerance."""
    total = 0
    for array in arrays_in(tree):
        allowed = tolerance * np.abs(array).max(initial=0)
        with np.errstate(all="ignore"):
            fits = [t for t in NARROW if (np.abs(array.astype(t).astype(array.dtype) - array) <= allowed).all()]
        total += array.size * min(np.dtype(kind).itemsize for kind in fits or [array.dtype])
    return total


def weights(trial: Trial) -> FigureBound:
    """After loading: the parameters, wherever they are, by their information."""
    whole = information(trial.params)
    return FigureBound(
        int(whole / trial.devices),
        f"the parameters have {whole:,.0f} B of information, on {trial.devices} devices together",
    )


def kept(trial: Trial) -> FigureBound:
    """At the end: the results of the last call."""
    last = [narrowest(right, trial.tolerance) for right in trial.calls[-1].wanted or (None,)]
    return FigureBound(max(last), "a device holds what its last call returned")


def peak(trial: Trial) -> FigureBound:
    """The most of one call: its argument when it begins, or its result when it ends."""
    given = [nbytes(argument) for call in trial.calls for argument in call.arguments]
    ended = [narrowest(right, trial.tolerance) for call in trial.calls for right in call.wanted or ()]
    return FigureBound(
        max(given + ended), "a device holds its argument when a call begins, and its result when it ends"
    )


COUNTS = ("collectives", "messages", "receives", "barriers")


def in_every_trial(trial: Trial, figures: Collection[str]) -> dict[str, FigureBound]:
    """The least of those of some figures that are found alike in every trial."""
    alike = {"weights": weights, "peak": peak, "kept": kept}
    bounds = {name: least(trial) for name, least in alike.items() if name in figures}
    return bounds | dict.fromkeys(COUNTS, FigureBound(0, "other calls can do the same"))


SOMETHING = 1
"""Byte: that something is sent can be proven, but not how much."""


def something(reason: str, given: tuple[str, ...] = ()) -> FigureBound:
    """For a device whose result depends on what others know, or cannot compute within its targets."""
    return FigureBound(SOMETHING, reason, given)


def below(
    bounds: FigureBounds, figures: Mapping[str, int], targets: Mapping[str, int]
) -> Iterator[tuple[str, FigureBound]]:
    """The figures that are less than any class needs."""
    for name, bound in bounds.items():
        holds = all(other in targets and figures[other] <= targets[other] for other in bound.given)
        if name in figures and figures[name] < bound.value and holds:
            yield name, bound


# --- Arguments and products of a trial ---


def arguments(trial: Trial, *methods: str) -> list[list[Any]]:
    """What each device is given in the first call of each method."""
    firsts = [next(call for call in trial.calls if call.method == method) for method in methods]
    return [[call.arguments[device] for call in firsts] for device in range(trial.devices)]


def whole(trial: Trial, method: str) -> Any:
    """The rows of all devices in the first call of a method."""
    return np.concatenate([given for (given,) in arguments(trial, method)])


def mlp_products(params: Mapping[str, Any], x: Any, g: Any, with_dx: bool) -> int:
    """Of one forward and backward of relu(x @ w0 + b0) @ w1 + b1."""
    w0, w1 = params["layer_0/weights"], params["layer_1/weights"]
    on = x @ w0 + params.get("layer_0/bias", 0) > 0
    forward = products(x, w0) + products(on, w1)
    backward = products(on.T, g) + products(g, w1.T, on) + products(x.T, on)
    return forward + backward + (products(on, w0.T) if with_dx else 0)


def chain_products(
    params: Mapping[str, Any], x: Any, g: Any = None, relu_first: bool = True, with_dx: bool = True
) -> int:
    """Of a chain of layers, relu(x) @ w or relu(x @ w); with `g`, of its backward too."""
    count, seen = 0, []
    for w in params.values():
        x = np.maximum(x, 0) if relu_first else x
        count += products(x, w)
        seen.append(x)
        x = x @ w if relu_first else np.maximum(x @ w, 0)
    if g is not None:
        for i, w in reversed([*enumerate(params.values())]):
            count += products(seen[i].T, g)
            if i or with_dx:
                count += products(g, w.T, seen[i])
            g = (g @ w.T) * (seen[i] > 0)
    return count
