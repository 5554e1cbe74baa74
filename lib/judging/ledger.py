"""Memory by kind: what each rank needs at each event, by kind of value, stored or not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from lib.errors import PuzzleError
from lib.gc_pause import no_collection
from lib.trace import TIMED, Op, Trace
from lib.values.base import Value
from lib.values.kinds import Activation, ActivationGrad, OptState, Weight, WeightGrad

from .memory import profile
from .recompute import Part, Retrace


class Share(NamedTuple):
    """Elements of one kind: in the rank's dictionaries, and outside of them but used later."""

    stored: int
    hidden: int


class Sample(NamedTuple):
    """What a rank needs at one moment; the shares add up to its memory in the referee's report."""

    weights: Share
    opt_states: Share
    activations: Share
    gradients: Share


GROUPS: Mapping[type[Value], int] = {Weight: 0, OptState: 1, Activation: 2, ActivationGrad: 3, WeightGrad: 3}
"""Which share of a sample each kind of value belongs to."""


def memory_by_kind(trace: Trace) -> tuple[tuple[Sample, ...], ...]:
    """For each rank, a sample at each event and one at the end of the run; as far as the trace is legal.

    A function of its own, because it takes about twice as long as judging.
    """
    with no_collection():
        retrace = Retrace(trace)
        with suppress(PuzzleError):  # the referee tells it; what came before it is measured all the same
            retrace.run()
        return tuple(_samples(part, trace) for part in retrace.parts)


def _samples(part: Part, trace: Trace) -> tuple[Sample, ...]:
    ops = part.ops[: part.at]
    groups = [GROUPS[type(part.values[number])] for number in range(len(part.values))]
    sizes = [part.values[number].memory(trace.costs) for number in range(len(part.values))]
    stored = _stored(ops, sizes, groups)
    shares: list[list[Share]] = []
    for group in range(len(Sample._fields)):
        # The same accounting as for the whole, with everything else made weightless.
        charged = profile(ops, [size if g == group else 0 for size, g in zip(sizes, groups)]).memory
        shares.append([Share(s[group], c - s[group]) for s, c in zip(stored, charged)])
    return tuple(map(Sample, *shares))


def _stored(ops: Sequence[Op], sizes: Sequence[int], groups: Sequence[int]) -> list[list[int]]:
    """By group, the elements in the dictionaries at each event and at the end; a value under two keys counts once."""
    now = [0] * len(Sample._fields)
    places = [0] * len(sizes)
    at: dict[tuple[object, ...], int] = {}
    samples = []
    for op in ops:
        if op.name in TIMED:
            samples.append(now.copy())
            continue
        if op.name != "store" and op.name != "delete":
            continue
        if op.args in at:
            number = at.pop(op.args)
            places[number] -= 1
            if not places[number]:
                now[groups[number]] -= sizes[number]
        if op.name == "store":
            (number,) = op.used
            at[op.args] = number
            if not places[number]:
                now[groups[number]] += sizes[number]
            places[number] += 1
    samples.append(now)
    return samples
