"""What one layer costs on the ranks that share it (tp, cp, ep): measured on runs of the ledger, not by a formula.

These ranks do the same for every layer and microbatch, so one layer is played for all, as one replica is where they are
folded. Its times become the prices of `forward` and `backward` in the run of the whole pipeline.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Coroutine, Mapping
from fractions import Fraction
from functools import cache
from types import MappingProxyType
from typing import Any, NamedTuple

from lib import Costs, Model, Setting
from lib.judging.traffic import sent_by

from .gpus import LATENCY, call_seconds
from .job import Job
from .layer_compute import compute_seconds, tokens_of
from .playing import played, taken_over
from .split import Split

TICKS = 10**7
"""Ticks in a second in the run of a layer: a tick is 100 ns."""

HALVES = ("forward", "backward_input", "backward_weight")


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
    pieces = [_blocks(job, split)]
    if split.cp > 1:
        pieces.append(_ring(job, split))
    if split.ep > 1:
        pieces.append(_experts(job, split))
    axes = ("tp", "cp", "ep")
    forward, back_input, back_weight = (sum(piece.seconds[k] for piece in pieces) for k in range(3))
    computed = {"tp": sum(compute_seconds(job, split))}
    return LayerTimes(
        forward,
        back_input,
        back_weight,
        MappingProxyType({axis: sum(sum(piece.sent) for piece in pieces if piece.axis == axis) for axis in axes}),
        MappingProxyType({axis: sum(piece.sent[0] for piece in pieces if piece.axis == axis) for axis in axes}),
        MappingProxyType({one.axis: sum(one.seconds) - computed.get(one.axis, 0.0) for one in pieces}),
    )


def shared(split: Split) -> Split:
    """The split reduced to the fields that decide a layer's cost, as a cache key."""
    kept = {name: getattr(split, name) for name in ("tp", "cp", "ep", "sp", "microbatch")}
    return Split(**kept, recompute=split.recompute if split.recompute in ("selective", "ops") else "none")


PieceSchedule = Callable[[Model, Callable[[], None]], Coroutine[Any, Any, None]]
"""What a rank does for a layer; it calls back at the end of forward and of each half of backward."""


class Piece(NamedTuple):
    """A part of a layer with communication of its own: seconds and bytes of forward and of both halves of backward."""

    axis: str
    seconds: tuple[float, float, float]
    sent: tuple[float, float, float]


# --- Runs ---


def _blocks(job: Job, split: Split) -> Piece:
    """The layer's two parts on tp ranks: attention and the feed-forward part, whose experts are cut along tp too."""
    tp, parts = split.tp, 2
    seconds = compute_seconds(job, split)
    ticks = {name: _ticks(second * tp / parts) for name, second in zip(HALVES, seconds)}
    costs = _costs(
        job, split, "tp", ticks, job.model.hidden, tokens_of(job, split), 2 / job.gpu.rate(job.gpu.members(1, tp), tp)
    )
    return _measured("tp", _cut_blocks(split.sp), (parts, 1, tp), Setting(costs, layer="block"), 2)


def _ring(job: Job, split: Split) -> Piece:
    """Keys and values of all tokens for each: they go round a ring of cp ranks, and in backward their gradients too
    (Liu et al. 2023, Ring Attention)."""
    stride, cp = split.tp, split.cp
    each, tokens = job.model.kv_bytes // split.tp, tokens_of(job, split)
    costs = _costs(job, split, "cp", {}, each, tokens, 1 / job.gpu.rate(job.gpu.members(stride, cp), cp))
    return _measured("cp", _round, (1, cp, cp), Setting(costs), 1)


def _experts(job: Job, split: Split) -> Piece:
    """Tokens go to their experts and back, forward and backward (Lepikhin et al. 2021, GShard, 3.2). Tensor parallel
    ranks send a share each. Layers without experts send nothing, so the average layer sends less."""
    stride, ep, model = split.tp * split.cp, split.ep, job.model
    each = model.hidden * model.top_k * model.expert_layers // (model.layers * split.tp)
    rate = job.gpu.rate_to_all(job.gpu.members(stride, ep), ep)
    costs = _costs(job, split, "ep", {}, each, tokens_of(job, split), 2 / rate)
    return _measured("ep", _to_experts, (1, ep, ep), Setting(costs, layer="experts"), 2)


def _costs(
    job: Job, split: Split, axis: str, ticks: Mapping[str, int], hidden: int, length: int, per_element: float
) -> Costs:
    """Prices of a piece: `per_element` is the seconds of each element sent."""
    link = link_of(job, split, axis)
    collective = _ticks(call_seconds(link, getattr(split, axis)))
    sending = ("allreduce", "allgather", "scatterreduce", "dispatch", "collect", "pass_to")
    free = dict.fromkeys((*HALVES, "loss", "update", "receive"), 0)
    return Costs(
        f"a layer, {axis}",
        hidden=hidden,
        length=length,
        ticks=MappingProxyType({**free, **ticks}),
        unit=1000,
        calls=MappingProxyType({**dict.fromkeys(sending, collective), "pass_to": _ticks(LATENCY[link])}),
        beta=MappingProxyType(dict.fromkeys(sending, exact(per_element * TICKS))),
    )


def link_of(job: Job, split: Split, axis: str) -> str:
    """The slowest link of an axis within a layer."""
    stride, count = {"tp": 1, "cp": split.tp, "ep": split.tp * split.cp}[axis], getattr(split, axis)
    return job.gpu.link(job.gpu.members(stride, count), count)


@cache
def exact(number: float) -> Fraction:
    """A fraction near a number, as costs have them."""
    return Fraction(number).limit_denominator(10**12)


def _ticks(seconds: float) -> int:
    return round(seconds * TICKS)


def _measured(axis: str, piece: PieceSchedule, size: tuple[int, int, int], setting: Setting, width: int) -> Piece:
    """Plays a piece on its ranks, of which each element takes `width` bytes; time and bytes of the first rank, cut
    where it says that a half has ended."""
    ends: list[int] = []

    async def schedule(model: Model) -> None:
        def done() -> None:
            if model.rank == 0:
                ends.append(round(model.time * setting.costs.unit))

        await piece(model, done)

    recomputation = taken_over(played(schedule, size, setting))
    sent = [0, 0, 0]
    for one in sent_by(recomputation, recomputation.ranks[0]):
        sent[bisect_right(ends[:2], one.start)] += width * one.elements
    forward, back_input, back_weight = ends
    seconds = (forward / TICKS, (back_input - forward) / TICKS, (back_weight - back_input) / TICKS)
    return Piece(axis, seconds, (sent[0], sent[1], sent[2]))


def _cut_blocks(sp: bool) -> PieceSchedule:
    """Blocks cut along tp; with `sp` each rank keeps a share of the tokens between them, and gathers them again for
    backward (Korthikanti et al. 2022, section 4.2.2)."""

    async def schedule(model: Model, done: Callable[[], None]) -> None:
        cut, kept, grads = model.RANKS > 1, dict[int, Any](), dict[int, Any]()
        weights = [model.load_weights(layer, model.rank, model.RANKS)[0] for layer in range(model.LAYERS)]

        async def whole(value: Any, layer: int) -> Any:
            return await model.allgather(value, layer) if cut and sp else value

        async def summed(value: Any, layer: int) -> Any:
            if not cut:
                return value
            return await (model.scatterreduce(value, layer) if sp else model.allreduce(value, layer))

        inp = model.get_activation([0])
        inp = inp.shard(model.rank, model.RANKS) if cut and sp else inp
        for layer, weight in enumerate(weights):
            kept[layer] = inp
            inp = await summed(model.forward(layer, await whole(inp, layer), weight), layer + 1)
        grad = model.loss(inp)
        done()
        for layer, weight in reversed(list(enumerate(weights))):
            kept[layer], grads[layer] = await whole(kept[layer], layer), await whole(grad, layer)
            grad = await summed(model.backward_input(layer, kept[layer], grads[layer], weight), layer - 1)
        done()
        for layer, weight in enumerate(weights):
            model.backward_weight(layer, kept[layer], grads[layer], weight)
        done()

    return schedule


async def _round(model: Model, done: Callable[[], None]) -> None:
    """Each rank's own go round the ring once in forward; in backward again, and their gradients beside them."""
    for rounds in (1, 2, 0):
        for _ in range(rounds):
            value = model.get_activation([model.rank])
            for _ in range(model.RANKS - 1):
                await model.pass_to((model.rank + 1) % model.RANKS, value)
                value = await model.receive((model.rank - 1) % model.RANKS)
        done()


async def _to_experts(model: Model, done: Callable[[], None]) -> None:
    """To the experts and back, in forward and in backward; what they compute is in the other piece's price."""
    weight, _ = model.load_weights(0, model.rank, model.RANKS)
    tokens = await model.dispatch(model.get_activation([model.rank]), 0)
    out = await model.collect(model.forward(0, tokens, weight), 1, [model.rank])
    grad = model.loss(out)
    done()
    grad = await model.dispatch(grad, 0)
    await model.collect(model.backward_input(0, tokens, grad, weight), -1, [model.rank])
    done()
    done()
