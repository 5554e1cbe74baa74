"""What one layer costs on the ranks that share it (tp, cp, ep): what it computes, and its calls one after the other.

These ranks do the same for every layer and microbatch. Ticks and bytes are as in a run of the ledger, which the
tests play. They become the prices of `forward` and `backward` in the run of the whole pipeline.
"""

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from functools import cache
from math import ceil
from types import MappingProxyType
from typing import NamedTuple

from lib.game.ring import elements_sent

from .gpus import LATENCY, call_seconds
from .job import Job
from .layer_compute import compute_seconds, tokens_of
from .split import Split

TICKS = 10**7
"""Ticks in a second in the run of a layer: a tick is 100 ns."""

PARTS = 2
"""Of a layer: attention, and the feed-forward part, whose experts are cut along tp too."""


class Moves(NamedTuple):
    """Of each communication the ticks of a call, and of each element that a rank sends, as in a cost record."""

    calls: Mapping[str, int]
    beta: Mapping[str, Fraction]

    def ticks(self, operation: str, elements: int, ranks: int) -> int:
        """As Costs.transfer."""
        return self.by_size(operation, elements_sent(operation, elements, ranks))

    def by_size(self, operation: str, sent: int) -> int:
        return self.calls[operation] + ceil(self.beta[operation] * sent)


@cache
def exact(number: float) -> Fraction:
    """A fraction near a number, as costs have them."""
    return Fraction(number).limit_denominator(10**12)


class LayerTimes(NamedTuple):
    """Seconds of a layer for one microbatch, and by axis (tp, cp, ep) the bytes that a rank sends in it, and the
    seconds that are `added` to what it computes."""

    forward: float
    backward_input: float
    backward_weight: float
    sent: Mapping[str, float]
    sent_forward: Mapping[str, float]
    """What is sent again when forward is."""
    added: Mapping[str, float]


@cache
def layer_times(job: Job, split: Split) -> LayerTimes:
    """Of a split only tp, cp, ep, sp, microbatch and recompute count: see `shared`."""
    computed = compute_seconds(job, split)
    forward, back_input, back_weight = (
        PARTS * ceil(exact_ticks / split.tp) / TICKS
        for exact_ticks in (_ticks(seconds * split.tp / PARTS) for seconds in computed)
    )
    sent, sent_forward, added = (dict.fromkeys(("tp", "cp", "ep"), 0.0) for _ in range(3))
    added["tp"] = forward + back_input + back_weight - sum(computed)
    for axis, moves, width, (there, back) in _exchanges(job, split):
        ranks = getattr(split, axis)
        seconds = [
            sum(n * moves.ticks(name, size, ranks) for name, size, n in calls) / TICKS for calls in (there, back)
        ]
        counts = [sum(n * elements_sent(name, size, ranks) for name, size, n in calls) for calls in (there, back)]
        forward, back_input = forward + seconds[0], back_input + seconds[1]
        sent[axis], sent_forward[axis] = width * sum(counts), width * counts[0]
        added[axis] += sum(seconds)
    return LayerTimes(forward, back_input, back_weight, *map(MappingProxyType, (sent, sent_forward, added)))


def shared(split: Split) -> Split:
    """The split reduced to the fields that decide a layer's cost, as a cache key."""
    kept = {name: getattr(split, name) for name in ("tp", "cp", "ep", "sp", "microbatch")}
    return Split(**kept, recompute=split.recompute if split.recompute in ("selective", "ops") else "none")


Calls = Sequence[tuple[str, int, int]]
"""Of each kind of call: its operation, the elements that a rank brings, and how often it is called."""


def _exchanges(job: Job, split: Split) -> Iterator[tuple[str, Moves, int, tuple[Calls, Calls]]]:
    """Of each axis with several ranks: prices, bytes of an element, and the calls of forward and of the input half."""
    model, gpu, tokens = job.model, job.gpu, tokens_of(job, split)
    tp, cp, ep = split.tp, split.cp, split.ep
    if tp > 1:
        whole = tokens * model.hidden
        reduce = ("scatterreduce" if split.sp else "allreduce", whole, PARTS)
        # Each rank keeps a share of the tokens, and gathers them: the input twice, and the gradient (Korthikanti et
        # al. 2022, section 4.2.2).
        there, back = ([("allgather", whole // tp, n * PARTS)] if split.sp else [] for n in (1, 2))
        yield (
            "tp",
            _moves(job, split, "tp", 2 / gpu.rate(gpu.members(1, tp), tp)),
            2,
            ([*there, reduce], [*back, reduce]),
        )
    if cp > 1:
        # Keys and values go round a ring, and in backward again with their gradients (Liu et al. 2023, Ring Attention).
        pairs = tokens * (model.kv_bytes // tp)
        moves = _moves(job, split, "cp", 1 / gpu.rate(gpu.members(tp, cp), cp))
        yield "cp", moves, 1, ([("pass_to", pairs, cp - 1)], [("pass_to", pairs, 2 * (cp - 1))])
    if ep > 1:
        # Tokens go to their experts and back, forward and backward (Lepikhin et al. 2021, GShard, 3.2), a share from
        # each tensor parallel rank. Layers without experts send nothing, so the average layer sends less.
        routed = tokens * (model.hidden * model.top_k * model.expert_layers // (model.layers * tp))
        moves = _moves(job, split, "ep", 2 / gpu.rate_to_all(gpu.members(tp * cp, ep), ep))
        both = [("dispatch", routed, 1), ("collect", ep * (routed // ep), 1)]
        yield "ep", moves, 2, (both, both)


def _moves(job: Job, split: Split, axis: str, per_element: float) -> Moves:
    """Prices of an axis: `per_element` is the seconds of each element sent."""
    link, sending = link_of(job, split, axis), ("allreduce", "allgather", "scatterreduce", "dispatch", "collect")
    calls = {
        **dict.fromkeys(sending, _ticks(call_seconds(link, getattr(split, axis)))),
        "pass_to": _ticks(LATENCY[link]),
    }
    return Moves(calls, dict.fromkeys(calls, exact(per_element * TICKS)))


def link_of(job: Job, split: Split, axis: str) -> str:
    """The slowest link of an axis within a layer."""
    stride, count = {"tp": 1, "cp": split.tp, "ep": split.tp * split.cp}[axis], getattr(split, axis)
    return job.gpu.link(job.gpu.members(stride, count), count)


def _ticks(seconds: float) -> int:
    return round(seconds * TICKS)
