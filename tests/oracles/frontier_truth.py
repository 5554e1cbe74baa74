"""What papers state about two directions, controlled memory, older weights and shares of tokens, and our runs of it."""

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from functools import cache, partial
from itertools import count
from math import ceil
from types import MappingProxyType
from typing import Any

from lib import Costs, Model, Report, Setting, Trace, inflight
from lib.ledger.recomputation import Recomputation
from lib.ledger.traffic import sent_by
from lib.pipelines import chimera, dualpipe, hanayo, one_f_one_b, pipeline, seq1f1b, v_half, v_min
from lib.pipelines.player import Order
from puzzles.catalog.schedule import PUZZLES
from solutions.host_update import host_update
from solutions.ring_context import ring_context
from solutions.ulysses import ulysses
from tests.oracles.truth_runs import Claim, costs_of, judged
from tests.support.mistakes import altered
from tests.support.schedules.rooted import COSTS_WITH_ROOTS, data_parallel, owned


@cache
def two_ways(order: Order, p: int, m: int, forward: int = 1, backward: int = 2) -> tuple[Trace, Report]:
    """An order in two directions, with a layer in each stage; I = W = 1, and a forward and a backward at once."""
    ticks = {**costs_of(forward, 1, 1).ticks, "backward": backward, "pair": forward + backward}
    costs = replace(costs_of(forward, 1, 1), ticks=MappingProxyType(ticks))
    return judged(pipeline(order), (p, m, p), Setting(costs))


def dualpipe_bubble(p: int, m: int) -> float:
    return two_ways(dualpipe, p, m)[1].makespan - 3 * m


def chimera_step(p: int, forward: int, backward: int) -> float:
    return two_ways(chimera, p, p, forward, backward)[1].makespan


def weights_held(order: Order, p: int, m: int) -> int:
    """The layers that a rank updates."""
    trace, _ = two_ways(order, p, m)
    return max(sum(op.name == "update" for op in ops) for ops in trace.ranks)


@cache
def held_in_v(order: Order, p: int, m: int) -> int:
    trace, _ = judged(pipeline(order), (2 * p, m, p), Setting(costs_of(1, 1, 1)))
    return int(max(inflight(trace, 1, 1, chunk=1)))


@cache
def in_shares(p: int, m: int, k: int) -> tuple[Trace, Report]:
    """Seq1F1B with k shares of equal cost: attention itself is free, and a share takes 1 forward and 2 backward."""
    ticks = {"keys": k, "attend": 0, **dict.fromkeys(("loss", "update", "pass_to", "receive"), 0)}
    costs = Costs("shares", ticks=MappingProxyType(ticks), unit=1)
    return judged(pipeline(seq1f1b, shares=k), (p, m, p), Setting(costs, layer="attention", shares=k))


def shares_held(p: int, m: int, k: int) -> tuple[int, ...]:
    """By rank, the most shares between their forward and their backward."""

    def held(rank: int) -> Iterator[int]:
        now = 0
        for op in in_shares(p, m, k)[0].ranks[rank]:
            now += (op.name == "keys") - (op.name == "keys_backward")
            yield now

    return tuple(max(held(rank)) for rank in range(p))


@cache
def lagging(p: int, m: int, n: int, flush: bool) -> Report:
    setting = Setting(costs_of(1, 1, 1), steps=n, lag=1)
    return judged(pipeline(one_f_one_b, flush=flush), (p, m, p), setting)[1]


def extra_version(p: int, m: int, n: int) -> tuple[int, ...]:
    """By rank, how much higher the peak of 2BW is than the peak of 1F1B, in weights."""
    held = [[max(rank.memory) for rank in lagging(p, m, n, flush).ranks] for flush in (False, True)]
    return tuple((late - usual) // costs_of(1, 1, 1).weight for late, usual in zip(*held, strict=True))


@cache
def v_step(order: Order, p: int, m: int) -> float:
    return judged(pipeline(order), (2 * p, m, p), Setting(costs_of(1, 1, 1)))[1].makespan


def hanayo_bubble(p: int, waves: int) -> float:
    work = 3 * 2 * waves * p
    _, report = judged(pipeline(partial(hanayo, waves=waves)), (2 * waves * p, p, p), Setting(costs_of(1, 1, 1)))
    return (report.makespan - work) / 2


@cache
def with_cut_head(p: int, m: int, most: int) -> float:
    """A step of p stages of two blocks, and a head of four on all ranks; rank r has at most `most` - r in flight."""
    schedule = altered("vocab_parallel", (("> ranks - rank", f">= {most} - rank"),))
    setting = Setting("vocabulary_shards", kinds=("block",) * 2 * p + ("head",))
    return judged(schedule, (2 * p + 1, m, p), setting)[1].makespan


def needed_in_flight(p: int) -> int:
    """The fewest microbatches in flight on rank 0 with which no rank waits in a steady state: four more microbatches
    take four times the work for one."""
    work = 6 + 3 * ceil(40 / p) / 10
    more = {k: with_cut_head(p, 10, k) - with_cut_head(p, 6, k) for k in range(p, p + 3)}
    return next(k for k, four in more.items() if round(four - 4 * work, 6) <= 0)


@cache
def sent_for_a_layer(schedule: Callable[..., Any], p: int) -> Fraction:
    """Elements that a rank sends for keys, or for tokens and heads, of a layer, forward and back, in activations."""
    setting = Setting("context", layer="attention", shares=2 * p)
    costs, layers = setting.costs, 2
    gradients = layers * 2 * costs.weight * (p - 1) // p
    _, report = judged(schedule, (layers, 1, p), setting)
    return Fraction(report.traffic - gradients, layers * costs.activation)


@cache
def balance(p: int) -> Fraction:
    """Attending of the rank that has least, over the rank that has most."""
    trace, _ = judged(ring_context, (2, 1, p), Setting("context", layer="attention", shares=2 * p))
    each = [sum(op.end - op.start for op in ops if op.name == "attend") for ops in trace.ranks]
    return Fraction(min(each), max(each))


def in_rounds(fragments: int, waits: bool, sums_gradients: bool = False) -> Callable[[Model], Awaitable[None]]:
    """Outer steps in which `fragments` of the layers take turns. An average begins after a step, and ranks wait for it
    or take it over after the next step."""

    async def schedule(model: Model) -> None:
        rounds, layers, steps = model.dist.setting.outer, range(model.LAYERS), model.dist.setting.steps
        copies, states, agreed, outer, pending = {}, {}, {}, {}, dict[int, Any]()
        for layer in layers:
            copies[layer], states[layer], outer[layer] = model.load_weights(layer, outer=True)
            agreed[layer] = copies[layer]

        async def take_over(merges: bool = True) -> None:
            for layer in [*pending]:
                total = await pending.pop(layer)
                agreed[layer], outer[layer] = model.outer_update(layer, agreed[layer], total, outer[layer])
                if merges:
                    copies[layer] = model.merge(layer, copies[layer], agreed[layer])

        for step in range(steps):
            inputs = [model.get_activation([model.rank], step)]
            for layer in layers:
                inputs.append(model.forward(layer, inputs[-1], copies[layer]))
            grad = model.loss(inputs.pop())
            for layer in reversed(layers):
                new, grad = model.backward(layer, inputs.pop(), grad, copies[layer])
                new = await model.allreduce(new, layer) if sums_gradients else new
                copies[layer], states[layer] = model.update(layer, new, copies[layer], states[layer])
            await take_over()
            each = model.LAYERS // fragments
            turn, not_mine = divmod(step % rounds, rounds // fragments)
            for layer in () if not_mine else layers[turn * each : turn * each + each]:
                change = model.delta(layer, agreed[layer], copies[layer])
                if sums_gradients:
                    agreed[layer], outer[layer] = model.outer_update(layer, agreed[layer], change, outer[layer])
                    copies[layer] = model.merge(layer, copies[layer], agreed[layer])
                else:
                    pending[layer] = model.allreduce(change, layer)
            if waits:
                await take_over()
        await take_over(merges=False)
        for layer in layers:
            model.set_final_weight(layer, agreed[layer])
            model.set_final_copy(layer, copies[layer])

    return schedule


@cache
def apart(
    p: int, rounds: int, fragments: int, price: int, sums: bool = False, waits: bool = False
) -> tuple[Trace, Report]:
    """Two rounds of four layers; F = 1, B = 2, and an all-reduce takes `price`."""
    ticks = {"forward": 1, "backward": 2, "loss": 0, "update": 0, "outer_update": 0, "allreduce": price}
    costs = Costs("apart", ticks=MappingProxyType(ticks), unit=1, overlap=True)
    setting = Setting(costs, steps=2 * rounds, task="outer", outer=rounds, late=1)
    return judged(in_rounds(fragments, waits, sums), (4, p, p), setting)


def share_of_traffic(p: int, rounds: int) -> Fraction:
    """What DiLoCo sends, over what data parallelism sends."""
    local, every = (apart(p, rounds, 1, 1, sums, True)[1].traffic for sums in (False, True))
    return Fraction(local, every)


def sent_by_all(schedule: Callable[[Model], Awaitable[None]], p: int) -> Fraction:
    """What p ranks send to update one layer with the sum of their gradients, in weights."""
    _, report = judged(schedule, (1, p, p), Setting(COSTS_WITH_ROOTS))
    return Fraction(sum(rank.bytes_sent for rank in report.ranks), 4 * COSTS_WITH_ROOTS.weight)


def dearest_link(p: int, rounds: int, fragments: int) -> int:
    """The longest all-reduce of a layer for which no rank waits, but at the end."""

    def waits(price: int) -> bool:
        for ops in apart(p, rounds, fragments, price)[0].ranks:
            last = max(op.end for op in ops if op.name == "update")
            if any(op.name == "await" and op.end > op.start and op.start < last for op in ops):
                return True
        return False

    return next(price for price in count(1) if waits(price + 1))


def share_of_bandwidth(p: int, fragments: int) -> Fraction:
    """The most that a rank sends in the time of a step, over what DiLoCo's ranks send; a link takes 1 for a layer."""
    streamed, at_once = (apart(p, 4, parts, 1)[1].wire(12) for parts in (fragments, 1))
    return Fraction(streamed) / Fraction(at_once)


def copied(m: int, n: int) -> Fraction:
    """What goes to the host and comes from it for a layer in each of n steps, in weights."""
    layers, setting = 2, replace(PUZZLES["host_update"].goal.setting, steps=n)
    trace, _ = judged(host_update, (layers, m, 1), setting)
    recomputation = Recomputation(trace, strict=True)
    recomputation.run()
    (rank,) = recomputation.ranks
    elements = sum(one.elements for one in sent_by(recomputation, rank))
    return Fraction(elements, layers * n * setting.costs.hidden**2)


EVEN = [(2, 4), (4, 8), (4, 10), (6, 14), (8, 16)]
V_SIZES = [(p, 2 * p) for p in (3, 4, 6)]
SHARES = [(2, 2, 2), (4, 2, 4), (3, 4, 2), (4, 3, 8), (3, 1, 8)]
LAGGED = [(4, 4, 4), (2, 3, 3), (4, 3, 5), (3, 6, 2)]
LONGER = [(2, 3, 3), (3, 4, 3), (4, 6, 3), (3, 6, 2)]

FRONTIER = [
    Claim("DualPipe: bubble, F = I = W = 1, F&B = 3", "(p/2 - 1)(F&B + B - 3W)", lambda p, m: (p // 2 - 1) * 2,
          dualpipe_bubble, (4, 8), [(4, 10)], EVEN),
    Claim("DualPipe: most in flight on each rank", "p + 1", lambda p, m: (p + 1,) * p,
          lambda p, m: inflight(two_ways(dualpipe, p, m)[0], 1, 1), (4, 8), [(2, 4)], EVEN),
    Claim("DualPipe: layers of a rank, for one of 1F1B", "2", lambda p, m: 2,
          partial(weights_held, dualpipe), (4, 8), [(4, 8)], EVEN[:2]),
    Claim("Chimera, m = p: a step, F = B = 1", "2m + p - 2", lambda p: 3 * p - 2,
          lambda p: chimera_step(p, 1, 1), (4,), [(6,)], [(2,), (4,), (6,), (8,)]),
    Claim("Chimera, m = p: a step, F = 1, B = 2", "3m + 2(p - 2)", lambda p: 5 * p - 4,
          lambda p: chimera_step(p, 1, 2), (4,), [(6,)], [(2,), (4,), (6,), (8,)]),
    Claim("Chimera, m = p: in flight", "p/2 + 1 to p",
          lambda p: tuple(p // 2 + 1 + min(r, p - 1 - r) for r in range(p)),
          lambda p: inflight(two_ways(chimera, p, p)[0]), (4,), [(6,)], [(2,), (4,), (6,), (8,)]),
    Claim("V-Half: most in flight, in chunks", "2 floor((p + 2)/2)", lambda p, m: 2 * ((p + 2) // 2),
          partial(held_in_v, v_half), (4, 8), [(3, 6)], V_SIZES),
    Claim("V-Min: most in flight, in chunks", "2 floor((p + 4)/3)", lambda p, m: 2 * ((p + 4) // 3),
          partial(held_in_v, v_min), (4, 8), [(3, 6)], V_SIZES),
    Claim("V-Half: a step, F = I = W = 1, with k in flight", "6m + 6p - 3k - 1",
          lambda p, m: 6 * (m + p) - 6 * ((p + 2) // 2) - 1, partial(v_step, v_half), (4, 8), [(3, 6)], V_SIZES),
    Claim("V-Min: a step, F = I = W = 1, with k in flight", "6m + 6p - 3k - 1",
          lambda p, m: 6 * (m + p) - 6 * ((p + 4) // 3) - 1, partial(v_step, v_min), (4, 8), [(3, 6)], V_SIZES),
    Claim("Hanayo, m = p, W waves: bubble, in forwards of two chunks", "2p - 2", lambda p, w: 2 * p - 2,
          hanayo_bubble, (4, 2), [(3, 1)], [(2, 3), (3, 2), (4, 1), (4, 2), (6, 1)], "pW"),
    Claim("Seq1F1B, k equal shares: a step, in shares", "3mk + 3(p - 1)", lambda p, m, k: 3 * m * k + 3 * (p - 1),
          lambda p, m, k: in_shares(p, m, k)[1].makespan, (4, 2, 4), SHARES[:2], SHARES, "pmk"),
    Claim("Seq1F1B: in flight, in shares", "min(p - 1 - r + k, mk)",
          lambda p, m, k: tuple(min(p - 1 - r + k, m * k) for r in range(p)), shares_held, (4, 2, 4), SHARES[:2],
          SHARES, "pmk"),
    Claim("2BW: n steps", "(mn + p - 1)(F + B)", lambda p, m, n: 3 * (m * n + p - 1),
          lambda p, m, n: lagging(p, m, n, False).makespan, (4, 4, 4), LAGGED[:2], LAGGED, "pmn"),
    Claim("1F1B: n steps with a flush after each", "n(m + p - 1)(F + B)", lambda p, m, n: 3 * n * (m + p - 1),
          lambda p, m, n: lagging(p, m, n, True).makespan, (4, 4, 4), LAGGED[:2], LAGGED, "pmn"),
    Claim("2BW, m > p: weights that a rank holds more than with a flush", "1 a stage", lambda p, m, n: (1,) * p,
          extra_version, (4, 6, 3), LONGER[:1], LONGER, "pmn"),
    Claim("a head cut by vocabulary: in flight on rank 0 so that no rank waits", "p + 1", lambda p: p + 1,
          needed_in_flight, (3,), [(2,)], [(2,), (3,)]),
    Claim("ring attention: sent for a layer, kv = 2A", "3 kv (p - 1)/p",
          lambda p: Fraction(6 * (p - 1), p), partial(sent_for_a_layer, ring_context), (4,), [(2,)], [(2,), (4,)]),
    Claim("Ulysses: sent for a layer, kv = 2A", "2(2A + kv)(p - 1)/p^2", lambda p: Fraction(8 * (p - 1), p * p),
          partial(sent_for_a_layer, ulysses), (4,), [(2,)], [(2,), (4,)]),
    Claim("zigzag: attending of the rank with least, over the rank with most", "1", lambda p: 1, balance, (4,), [(2,)],
          [(2,), (4,)]),
    Claim("DiLoCo: sent, over data parallelism; H = m", "1/H", lambda p, m: Fraction(1, m), share_of_traffic, (4, 4),
          [(2, 2)], [(2, 2), (4, 4), (4, 8)]),
    Claim("Streaming DiLoCo: longest free all-reduce of a layer, m fragments of four", "m (F + B)",
          lambda p, m: 3 * m, lambda p, m: dearest_link(p, 4, m), (4, 4), [(4, 2)], [(2, 1), (2, 2), (4, 4)]),
    Claim("Streaming DiLoCo: most sent in the time of a step, over DiLoCo; m fragments of four", "1/m",
          lambda p, m: Fraction(1, m), share_of_bandwidth, (4, 4), [(4, 2)], [(2, 1), (2, 2), (4, 4)]),
    Claim("ZeRO-Offload: copied for a layer in each of n steps, in weights", "2", lambda m, n: 2, copied, (2, 3),
          [(2, 4)], [(1, 2), (2, 3), (3, 4)], "mn"),
    Claim("a reduce and a broadcast: sent by all ranks", "2(p - 1)W", lambda p: 2 * (p - 1),
          partial(sent_by_all, owned), (4,), [(3,)], [(2,), (3,), (5,), (8,)]),
    Claim("all-reduce: sent by all ranks", "2(p - 1)W", lambda p: 2 * (p - 1), partial(sent_by_all, data_parallel),
          (4,), [(2,)], [(2,), (4,), (8,)]),
]  # fmt: skip
