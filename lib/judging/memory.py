"""What each rank holds during a run: values that are stored or used later, by kind, and microbatches in flight."""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

from lib.communication.lanes import clocks
from lib.game.costs import PAIR, Costs
from lib.trace.lifetimes import Lifetimes, Span
from lib.trace.ops import Op, Trace, halves
from lib.values.algebra import consecutive
from lib.values.base import Value
from lib.values.kinds import (
    Activation,
    ActivationGrad,
    Delta,
    KeyValue,
    KeyValueGrad,
    OptState,
    OuterState,
    Parked,
    Weight,
    WeightGrad,
)
from lib.values.scalar import Scalar

from .rank_state import RankState
from .recompute import executed


class Profile(NamedTuple):
    """One rank's memory in elements: at the start of each event and, last, at the end of the run."""

    memory: list[int]
    lifetimes: Lifetimes


def profile(lives: Lifetimes, sizes: Sequence[int]) -> Profile:
    """Charges each value from its creation to its last use, and while it is stored. `sizes` are indexed by number.

    A final weight counts as used until the end. Memory is not sampled between events, as in the original puzzles.
    """
    return Profile(lives.sampled(lives.held, sizes), lives)


def lasting_peak(
    ops: Sequence[Op], sizes: Sequence[int], lives: Lifetimes, read: Mapping[int, int], costs: Costs
) -> int:
    """The peak, in elements, if training continued: loaded values count from the start, and sent values until they are
    read. `read` maps each pass_to, by its index, to the tick at which its message is received."""
    return max(lives.sampled(_lasting(ops, lives, read, costs), sizes))


def _lasting(ops: Sequence[Op], lives: Lifetimes, read: Mapping[int, int], costs: Costs) -> Iterator[Span]:
    loaded = {number for op in ops if op.name == "load_weights" for number in op.outputs}
    starts = list(clocks(ops, costs))
    under_way: dict[int, int] = {}  # by number: the last operation before the value has been read elsewhere
    for i, tick in read.items():
        before = bisect_left(starts, tick, lo=i) - 1
        for number in ops[i].inputs:
            under_way[number] = max(before, under_way.get(number, -1))
    for number, after, until in lives.held:
        needed = until > after
        yield number, -1 if needed and number in loaded else after, max(until, under_way.get(number, -1))


class Share(NamedTuple):
    """Elements of one kind: in the rank's dictionaries, and outside them but used later."""

    stored: int
    hidden: int


class Sample(NamedTuple):
    """The memory that a rank needs at one moment; the shares add up to its memory in the referee's report."""

    weights: Share
    opt_states: Share
    activations: Share
    gradients: Share


SHARE_OF: Mapping[type[Value], int] = {
    **dict.fromkeys((Weight, Parked), 0),
    **dict.fromkeys((OptState, OuterState), 1),
    **dict.fromkeys((Activation, KeyValue), 2),
    **dict.fromkeys((ActivationGrad, WeightGrad, KeyValueGrad, Delta, Scalar), 3),
}
"""The field of a sample to which each kind of value belongs; a parked value takes no device memory."""


def memory_by_kind(trace: Trace) -> tuple[tuple[Sample, ...], ...]:
    """For each rank, a sample at each event and one at the end of the run, as far as the trace is legal."""
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


Piece = tuple[tuple[int, ...], int]
"""A chunk, which is a run of consecutive layers, and a microbatch."""


def inflight(trace: Trace, m_b: float = 1, m_w: float = 1, chunk: int = 0) -> tuple[float, ...]:
    """For each rank, the most microbatches of a chunk that it holds at once, in program order.

    A piece weighs `m_b` from its forward to the input half of its backward, and then `m_w` to the weight half: the M_B
    and M_W of Qi et al. 2024, section 2.3. A full backward ends both. A chunk has `chunk` layers, or by default all
    consecutive layers of a rank.
    """
    return tuple(_most(ops, m_b, m_w, chunk) for ops in trace.ranks)


def _most(ops: Sequence[Op], m_b: float, m_w: float, chunk: int) -> float:
    chunk_of = _chunks((op.layer for op in ops if op.name in ("forward", PAIR) and op.layer is not None), chunk)
    to_input: dict[Piece, set[int]] = {}
    to_weight: dict[Piece, set[int]] = {}
    most = 0.0
    for op in (half for whole in ops for half in halves(whole)):
        if op.layer not in chunk_of or not op.batches:
            continue
        for batch in op.batches:
            piece = chunk_of[op.layer], batch
            if op.name == "forward":
                to_input.setdefault(piece, set()).add(op.layer)
                to_weight.setdefault(piece, set()).add(op.layer)
            if op.name in ("backward", "backward_input"):
                _done(to_input, piece, op.layer)
            if op.name in ("backward", "backward_weight"):
                _done(to_weight, piece, op.layer)
        most = max(most, m_b * len(to_input) + m_w * len(to_weight.keys() - to_input.keys()))
    return most


def _done(left: dict[Piece, set[int]], piece: Piece, layer: int) -> None:
    layers = left.get(piece, set())
    layers.discard(layer)
    if not layers:
        left.pop(piece, None)


def _chunks(layers: Iterable[int], chunk: int) -> dict[int, tuple[int, ...]]:
    """The chunk of each layer: `chunk` layers, or the longest run of a rank's layers that includes it."""
    runs = consecutive(set(layers))
    if chunk:
        runs = [[*part] for run in runs for _, part in groupby(run, lambda layer: layer // chunk)]
    return {layer: tuple(run) for run in runs for layer in run}
