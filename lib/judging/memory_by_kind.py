"""Memory by kind: the elements that each rank needs at each event, by kind of value, stored or not."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from lib.trace.ops import Trace
from lib.values.base import Value
from lib.values.kinds import Activation, ActivationGrad, KeyValue, KeyValueGrad, OptState, Parked, Weight, WeightGrad

from .rank_state import RankState
from .recompute import executed


class Share(NamedTuple):
    """Elements of one kind: in the rank's dictionaries, and outside of them but used later."""

    stored: int
    hidden: int


class Sample(NamedTuple):
    """The memory that a rank needs at one moment; the shares add up to its memory in the referee's report."""

    weights: Share
    opt_states: Share
    activations: Share
    gradients: Share


SHARE_OF: Mapping[type[Value], int] = {
    Weight: 0,
    OptState: 1,
    Activation: 2,
    KeyValue: 2,
    ActivationGrad: 3,
    WeightGrad: 3,
    KeyValueGrad: 3,
    Parked: 0,
}
"""The field of a sample that each kind of value belongs to; a parked one takes nothing of the device."""


def memory_by_kind(trace: Trace) -> tuple[tuple[Sample, ...], ...]:
    """For each rank, a sample at each event and one at the end of the run; as far as the trace is legal."""
    return tuple(_samples(rank, trace) for rank in executed(trace))


def _samples(rank: RankState, trace: Trace) -> tuple[Sample, ...]:
    lives = rank.liveness.lifetimes()
    kinds = [SHARE_OF[type(rank.values[number])] for number in range(len(rank.values))]
    sizes = [rank.values[number].memory(trace.costs) for number in range(len(rank.values))]
    shares: list[Sequence[Share]] = []
    for kind in range(len(Sample._fields)):
        held = lives.sampled([span for span in lives.held if kinds[span[0]] == kind], sizes)
        stored = lives.sampled([span for span in lives.stored if kinds[span[0]] == kind], sizes)
        shares.append([Share(inside, all_of_it - inside) for inside, all_of_it in zip(stored, held)])
    return tuple(map(Sample, *shares))
