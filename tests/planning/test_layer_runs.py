"""A layer's seconds and bytes are those of a run of the ledger on the ranks that share it."""

from bisect import bisect_right
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import replace
from math import ceil
from random import Random
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest

from lib import Costs, Model, Setting
from lib.errors import IncompleteError
from lib.ledger.recomputation import Recomputation
from lib.ledger.runner import played
from lib.ledger.traffic import sent_by
from lib.planning import Job, Split, gpu, transformer
from lib.planning.job import LATENCY, call_seconds
from lib.planning.prices import (
    LAYER_TICKS as TICKS,
)
from lib.planning.prices import (
    compute_seconds,
    ep_traffic,
    exact,
    experts_of,
    layer_times,
    link_of,
    shared,
    tokens_of,
)

HALVES = ("forward", "backward_input", "backward_weight")

PieceSchedule = Callable[[Model, Callable[[], None]], Coroutine[Any, Any, None]]
"""What a rank does for a layer; it calls back at the end of forward and of each half of backward."""


class Piece(NamedTuple):
    """A part of a layer with communication of its own: seconds and bytes of forward and of both halves of backward."""

    axis: str
    seconds: tuple[float, ...]
    sent: tuple[float, ...]


def chosen(seed: int, count: int) -> list[tuple[Job, Split]]:
    """Jobs and splits at random, also with tokens that no axis divides."""
    choice, found = Random(seed).choice, list[tuple[Job, Split]]()
    while len(found) < count:
        model = transformer(choice(("gpt-22b", "llama-3-8b", "mixtral-8x7b", "deepseek-v3")))
        tp, cp, ep = choice((1, 2, 4, 8)), choice((1, 1, 2, 4)), choice((1, 2, 8)) if model.experts else 1
        ep *= choice((1, 1, 8)) if model.experts > 8 else 1
        split = Split(
            dp=ep, tp=tp, cp=cp, ep=ep, sp=choice((True, False)), microbatch=choice((1, 2, 3)),
            recompute=choice(("none", "ops", "selective")),
        )  # fmt: skip
        how: dict[str, Any] = {"kernels": choice(("megatron", "pytorch")), "flash": choice((True, False))}
        how |= {"dispatch": choice(("alltoall", "dedup")), "graphs": choice(("none", "partial", "full"))}
        how |= {"balanced": choice((True, False)), "fp8": choice((True, False))}
        job = Job(model, gpu(choice(("h100", "h800"))), tp * cp * ep, 64, choice((2048, 1512, 999)), **how)
        found.append((job, split))
    return found


def require_the_run(job: Job, split: Split) -> None:
    found, pieces = layer_times(job, shared(split)), [_blocks(job, split)]
    pieces += [_ring(job, split)] if split.cp > 1 else []
    pieces += [_experts(job, split)] if split.ep > 1 else []
    forward, back_input, back_weight = (sum(piece.seconds[k] for piece in pieces) for k in range(3))
    experts = experts_of(job, shared(split))
    forward, back_input = (one + experts.slower + experts.moved for one in (forward, back_input))
    back_weight += experts.slower + experts.summed
    late = max(forward, experts.host), max(back_input, 2 * experts.host - back_weight), back_weight
    assert found[:3] == pytest.approx(late, abs=1e-12)
    for piece in pieces:
        assert found.sent[piece.axis] == sum(piece.sent)
        assert found.sent_forward[piece.axis] == piece.sent[0]
    assert found.added["tp"] == pytest.approx(sum(pieces[0].seconds) - sum(compute_seconds(job, split)), abs=1e-9)
    assert [found.added[one.axis] for one in pieces[1:]] == pytest.approx([sum(one.seconds) for one in pieces[1:]])


@pytest.mark.parametrize("seed", range(3))
def test_a_layer_takes_and_sends_what_its_run_does(seed: int) -> None:
    for job, split in chosen(seed, 8):
        require_the_run(job, split)


@pytest.mark.slow
def test_layers_of_many_splits_take_what_their_runs_do() -> None:
    for job, split in chosen(17, 300):
        require_the_run(job, split)


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
    ep, model = split.ep, job.model
    share, tokens = model.expert_layers / model.layers, tokens_of(job, split) / split.tp
    seconds, *rows = ep_traffic(job, split)
    elements = ep * ceil(share * tokens * sum(rows) * model.hidden / (ep - 1))
    call = share * 0.3e-3
    per_element = (share * seconds - call) / (elements * (ep - 1) // ep)
    costs = _costs(job, split, "ep", {}, elements, 1, per_element)
    costs = replace(costs, calls=MappingProxyType(dict.fromkeys(costs.calls, _ticks(call))))
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

    recomputation = Recomputation(played(schedule, size, setting).trace)
    with suppress(IncompleteError):  # a layer trains no model
        recomputation.run()
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
