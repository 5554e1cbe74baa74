"""What papers state about schedules, and the same measured on our runs: tests compare, docs/truth.md shows.

Also about two directions, controlled memory, older weights and shares of tokens: the chapter "frontier".
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from functools import cache, partial
from itertools import count
from math import ceil
from types import MappingProxyType
from typing import Any, NamedTuple

from lib import Costs, Model, Report, Setting, Trace, inflight, memory_by_kind, referee, run
from lib.ledger.recomputation import Recomputation
from lib.ledger.traffic import sent_by
from lib.pipelines import (
    breadth_first,
    chimera,
    ddp,
    dualpipe,
    dualpipev,
    gpipe,
    hanayo,
    interleaved,
    one_f_one_b,
    pipeline,
    seq1f1b,
    sequence_parallel,
    v_half,
    v_min,
    zb_h1,
    zb_h2,
    zb_v,
    zero1,
    zero2,
    zero3,
)
from lib.pipelines.player import Order
from puzzles.catalog.schedule import PUZZLES
from solutions.host_update import host_update
from solutions.ring_context import ring_context
from solutions.ulysses import ulysses
from tests.oracles.truth_runs import Claim, costs_of, judged
from tests.support.mistakes import altered
from tests.support.schedules.clipping import data_parallel
from tests.support.schedules.rooted import COSTS_WITH_ROOTS, owned

Times = tuple[int, int, int]
"""F, I and W: times of a forward, and of both halves of backward. B = I + W."""

UNIT = (1, 1, 1)


# --- Runs ---


@cache
def played(order: Order, p: int, m: int, times: Times = UNIT, v: int = 1, steps: int = 1) -> tuple[Trace, Report]:
    """An order on p ranks, with one layer in each of v stages of a rank."""
    sizes = {"v": v} if order in (interleaved, breadth_first) else {}
    return judged(pipeline(order, **sizes), (p * v, m, p), Setting(costs_of(*times), steps=steps))


def makespan(order: Order, p: int, m: int, times: Times = UNIT, v: int = 1) -> float:
    return played(order, p, m, times, v)[1].makespan


def bubble(order: Order, p: int, m: int, times: Times = UNIT, v: int = 1) -> float:
    """The longest span, less the work in it."""
    return played(order, p, m, times, v)[1].span - m * v * sum(times)


def held(order: Order, p: int, m: int, v: int = 1, m_w: Fraction = Fraction(0)) -> tuple[float, ...]:
    """By rank, the chunks of one layer in flight."""
    return inflight(played(order, p, m, UNIT, v)[0], 1, m_w, chunk=1)


def gathers(order: Order, m: int) -> int:
    """Gathers of the rank that has most: two stages on each of two ranks, weights in shards of two replicas."""
    setting = Setting("gathers", mesh={"pp": 2, "dp": 2})
    trace, _ = judged(pipeline(order, sharded=True, v=2), (4, 2 * m, 4), setting)
    return max(sum(op.name == "allgather" for op in ops) for ops in trace.ranks)


@cache
def states_held(zero: int, n: int) -> Fraction:
    """Bytes of weights (2), gradients (2) and optimizer states (12) that a rank of n holds for each parameter:
    before its second microbatch, or in stage 3, where a layer is gathered then, before the first update."""
    layers = 2
    setting = Setting(mesh={"dp": n})
    trace, _ = judged((ddp, zero1, zero2, zero3)[zero], (layers, 2 * n, n), setting)
    names = [op.name for op in trace.events(0)]
    moment = names.index("update") if zero == 3 else names.index("forward", layers)
    sample = memory_by_kind(trace)[0][moment]
    priced = ((2, sample.weights), (2, sample.gradients), (12, sample.opt_states))
    return Fraction(sum(price * sum(share) for price, share in priced), layers * trace.costs.weight)


@cache
def kept_by_sequence_parallelism(t: int) -> Fraction:
    """The share of its layers' activations that a rank of t keeps."""
    layers = 2
    trace, _ = judged(sequence_parallel, (layers, 1, t), Setting("long_quarters", layer="block"))
    at_loss = [op.name for op in trace.events(0)].index("loss")
    return Fraction(sum(memory_by_kind(trace)[0][at_loss].activations), layers * trace.costs.activation)


def layers_held(layers: int, p: int, v: int) -> Fraction:
    """Activations of how many layers the first rank keeps: in flight are chunks of L / pv layers."""
    trace = (played(interleaved, p, 2 * p, UNIT, v) if v > 1 else played(one_f_one_b, p, p))[0]
    return Fraction(int(max(inflight(trace, chunk=1))) * layers, p * v)


def sent(operation: str, n: int) -> Fraction:
    """What each of n ranks sends, as a share of the whole tensor."""

    async def reduce(model: Model) -> None:
        await getattr(model, operation)(model.fake_grad(0, []), 0)

    async def gather(model: Model) -> None:
        await model.allgather(model.load_weights(0, model.rank, model.RANKS)[0], 0)

    async def dispatch(model: Model) -> None:
        await model.dispatch(model.get_activation([model.rank]), 0)

    schedule = {"allgather": gather, "dispatch": dispatch}.get(operation, reduce)
    setting = Setting("experts", layer="experts") if operation == "dispatch" else Setting()
    report = referee(run(schedule, 1, n, n, setting=setting).trace)
    whole = setting.costs.activation if operation == "dispatch" else setting.costs.weight
    (elements,) = {rank.bytes_sent // 4 for rank in report.ranks}
    return Fraction(elements, whole)


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


def hanayo_bubble(p: int, waves: int) -> float:
    return (makespan(partial(hanayo, waves=waves), p, p, UNIT, 2 * waves) - 3 * 2 * waves * p) / 2


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


# --- Claims ---

TIMES = [(1, 1, 1), (2, 1, 1), (3, 2, 3), (2, 3, 2)]
RANKS = [2, 3, 4, 6]
QUICK = [(2, 5, (3, 2, 3)), (4, 8, UNIT)]
PIPELINES = [(p, m, times) for p in RANKS for times in TIMES for m in (1, p - 1, p, 2 * p + 1, 3 * p)]
CHUNKED = [(p, k * p, times, v) for p in RANKS for v in (2, 3) for k in (1, 2, 3) for times in TIMES[:3]]
HALVES = [(p, m, times) for p in RANKS for m in (2 * p, 2 * p + 3) for times in TIMES if sum(times[:2]) >= times[2]]
ROOMY = [(p, m, times) for p, m, times in HALVES if times[0] + times[1] >= 2 * times[2]]
LONG = [(p, m) for p in (2, 3, 4, 6, 8) for m in (2 * p, 2 * p + 1, 3 * p)]
QUARTER = Fraction(1, 4)
"""M_W, where M_B is 1."""

TIME = [
    *(
        Claim(
            f"{name}: a step",
            "(m + p - 1)(F + B)",
            lambda p, m, t: (m + p - 1) * sum(t),
            partial(makespan, order),
            (4, 8, UNIT),
            QUICK,
            PIPELINES,
        )
        for name, order in (("GPipe", gpipe), ("1F1B", one_f_one_b))
    ),
    *(
        Claim(
            f"{name}: a step, F and B of a chunk",
            "(mv + p - 1)(F + B)",
            lambda p, m, t, v: (m * v + p - 1) * sum(t),
            partial(makespan, order),
            (4, 8, UNIT, 2),
            [(2, 4, (3, 2, 3), 3), (4, 8, UNIT, 2)],
            CHUNKED,
        )
        for name, order in (("interleaved 1F1B", interleaved), ("breadth-first", breadth_first))
    ),
    Claim(
        "ZB-H1: bubble, if F + I >= W",
        "(p - 1)(F + I - W)",
        lambda p, m, t: (p - 1) * (t[0] + t[1] - t[2]),
        partial(bubble, zb_h1),
        (4, 8, UNIT),
        [(3, 6, (3, 2, 3)), (4, 8, UNIT)],
        HALVES,
    ),
    Claim(
        "ZB-H2: bubble, if F + I >= 2W",
        "(p - 1)(F + I - 2W)",
        lambda p, m, t: (p - 1) * (t[0] + t[1] - 2 * t[2]),
        partial(bubble, zb_h2),
        (4, 8, UNIT),
        [(3, 6, (2, 1, 1)), (4, 8, UNIT)],
        ROOMY,
    ),
    Claim(
        "ZB-V: a step, F = I = W = 1",
        "6m + p - 1",
        lambda p, m: 6 * m + p - 1,
        lambda p, m: makespan(zb_v, p, m, UNIT, 2),
        (4, 8),
        [(2, 4), (4, 8)],
        LONG,
    ),
    Claim(
        "ZB-V: bubble, F = I = W",
        "0",
        lambda p, m: 0,
        lambda p, m: bubble(zb_v, p, m, UNIT, 2),
        (4, 8),
        [(2, 4), (4, 8)],
        LONG,
    ),
    Claim(
        "DualPipeV: bubble on PP = 2p stages, F = I = W = 1, F&B = 3",
        "(PP/2 - 1)(F&B + B - 3W)",
        lambda p, m: (p - 1) * (3 + 2 - 3),
        lambda p, m: bubble(dualpipev, p, m, UNIT, 2),
        (4, 8),
        [(2, 4), (3, 7)],
        LONG,
    ),
]

MEMORY = [
    Claim(
        "GPipe",
        "m",
        lambda p, m: (m,) * p,
        partial(held, gpipe),
        (4, 8),
        [(3, 5)],
        [(p, m) for p in RANKS for m in (1, p, 2 * p + 1)],
    ),
    Claim(
        "1F1B",
        "min(p - r, m)",
        lambda p, m: tuple(min(p - r, m) for r in range(p)),
        partial(held, one_f_one_b),
        (4, 8),
        [(4, 2), (3, 5)],
        [(p, m) for p in RANKS for m in (1, p - 1, p, 2 * p, 2 * p + 1)],
    ),
    Claim(
        "interleaved 1F1B, in chunks",
        "min(pv + p - 1 - 2r, mv)",
        lambda p, m, v: tuple(min(p * v + p - 1 - 2 * r, m * v) for r in range(p)),
        partial(held, interleaved),
        (4, 8, 2),
        [(2, 4, 3), (4, 4, 2)],
        [(p, k * p, v) for p in RANKS for v in (2, 3) for k in (1, 2, 3)],
    ),
    Claim(
        "ZB-H1",
        "(p - r) M_B + r M_W",
        lambda p, m, m_w: tuple(p - r + r * m_w for r in range(p)),
        lambda p, m, m_w: held(zb_h1, p, m, 1, m_w),
        (4, 8, QUARTER),
        [(3, 6, QUARTER)],
        [(p, m, m_w) for p in RANKS for m in (2 * p, 2 * p + 3) for m_w in (Fraction(0), QUARTER)],
    ),
    Claim(
        "ZB-H2",
        "(2(p - r) - 1) M_B + 2r M_W",
        lambda p, m, m_w: tuple(2 * (p - r) - 1 + 2 * r * m_w for r in range(p)),
        lambda p, m, m_w: held(zb_h2, p, m, 1, m_w),
        (4, 8, QUARTER),
        [(3, 6, QUARTER)],
        [(p, m, m_w) for p in RANKS for m in (2 * p, 2 * p + 3) for m_w in (Fraction(0), QUARTER)],
    ),
    Claim(
        "ZB-V, in chunks",
        "2p",
        lambda p, m: (2 * p,) * p,
        lambda p, m: held(zb_v, p, m, 2, Fraction(1)),
        (4, 8),
        [(3, 6)],
        LONG,
    ),
    Claim(
        "DualPipeV, in chunks",
        "PP + 1",
        lambda p, m: (2 * p + 1,) * p,
        lambda p, m: held(dualpipev, p, m, 2, Fraction(1)),
        (4, 8),
        [(3, 6)],
        LONG,
    ),
]

GATHERS = [
    Claim(
        "breadth-first",
        "3",
        lambda m: 3,
        partial(gathers, breadth_first),
        (4,),
        [(4,)],
        [(m,) for m in (2, 4, 6, 8)],
    ),
    Claim(
        "depth-first (interleaved 1F1B)",
        "3m - 1",
        lambda m: 3 * m - 1,
        partial(gathers, interleaved),
        (8,),
        [(4,)],
        [(m,) for m in (4, 6, 8)],
    ),
]

REPLICAS = (1, 4, 16, 64, 256, 1024)
STATES = [
    Claim(
        f"ZeRO, stage {zero}" if zero else "data parallelism",
        formula,
        published,
        partial(states_held, zero),
        (64,),
        [(4,), (64,)],
        [(n,) for n in REPLICAS],
    )
    for zero, formula, published in (
        (0, "16Y", lambda n: 16),
        (1, "4Y + 12Y/N", lambda n: 4 + Fraction(12, n)),
        (2, "2Y + 14Y/N", lambda n: 2 + Fraction(14, n)),
        (3, "16Y/N", lambda n: Fraction(16, n)),
    )
]

TABLE_1 = {
    7_500_000_000: (
        ("120", "120", "120"),
        ("52.5", "41.3", "30"),
        ("35.6", "21.6", "7.5"),
        ("31.4", "16.6", "1.88"),
        ("30.4", "15.4", "0.47"),
        ("30.1", "15.1", "0.12"),
    ),
    128_000_000_000: (
        ("2048", "2048", "2048"),
        ("896", "704", "512"),
        ("608", "368", "128"),
        ("536", "284", "32"),
        ("518", "263", "8"),
        ("513", "257", "2"),
    ),
    1_000_000_000_000: (
        ("16000", "16000", "16000"),
        ("7000", "5500", "4000"),
        ("4750", "2875", "1000"),
        ("4187", "2218", "250"),
        ("4046", "2054", "62.5"),
        ("4011", "2013", "15.6"),
    ),
}
"""GB (10^9 bytes), by parameters: for each of REPLICAS, stages 1 to 3 (Rajbhandari et al. 2020, Table 1)."""


class Transformer(NamedTuple):
    """Heads a, hidden size h, layers L; t tensor parallel ranks, p stages of v chunks, b sequences in a microbatch."""

    name: str
    a: int
    h: int
    layers: int
    t: int
    p: int
    v: int
    b: int
    s: int = 2048

    @property
    def sbh(self) -> int:
        return self.s * self.b * self.h

    @property
    def interleaving(self) -> Fraction:
        return 1 + Fraction(self.p - 1, self.p * self.v) if self.v > 1 else Fraction(1)


MODELS = [
    Transformer("22B", 64, 6144, 48, 8, 1, 1, 4),
    Transformer("175B", 96, 12288, 96, 8, 8, 3, 1),
    Transformer("530B", 128, 20480, 105, 8, 35, 3, 1),
    Transformer("1T", 160, 25600, 128, 8, 64, 1, 1),
]
"""Models of Korthikanti et al. 2022."""


def without_recomputation(model: Transformer) -> Fraction:
    """Bytes of a layer's activations for a microbatch, with tensor parallelism."""
    return model.sbh * (10 + Fraction(24, model.t) + Fraction(5 * model.a * model.s, model.h * model.t))


ACTIVATIONS = [
    Claim(
        "no recomputation",
        "sbh (10 + 24/t + 5as/(ht)) L (1 + (p - 1)/(pv))",
        lambda model: without_recomputation(model) * model.layers * model.interleaving,
        lambda model: without_recomputation(model) * layers_held(model.layers, model.p, model.v),
        (MODELS[1],),
        [(MODELS[0],), (MODELS[1],)],
        [(model,) for model in MODELS],
    ),
    Claim(
        "sequence parallelism and selective recomputation",
        "34 sbh/t L (1 + (p - 1)/(pv))",
        lambda model: Fraction(34 * model.sbh, model.t) * model.layers * model.interleaving,
        lambda model: (
            34 * model.sbh * kept_by_sequence_parallelism(model.t) * layers_held(model.layers, model.p, model.v)
        ),
        (MODELS[1],),
        [(MODELS[0],), (MODELS[1],)],
        [(model,) for model in MODELS],
    ),
]

SENT = [
    Claim(
        name,
        formula,
        published,
        partial(sent, operation),
        (8,),
        [(2,), (8,)],
        [(n,) for n in (2, 4, 8, 16, 64)],
    )
    for name, operation, formula, published in (
        ("all-reduce", "allreduce", "2(n - 1)/n", lambda n: Fraction(2 * (n - 1), n)),
        ("reduce-scatter", "scatterreduce", "(n - 1)/n", lambda n: Fraction(n - 1, n)),
        ("all-gather", "allgather", "(n - 1)/n", lambda n: Fraction(n - 1, n)),
        ("all-to-all", "dispatch", "(n - 1)/n", lambda n: Fraction(n - 1, n)),
    )
]

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
          lambda p, m: max(held(v_half, p, m, 2, Fraction(1))), (4, 8), [(3, 6)], V_SIZES),
    Claim("V-Min: most in flight, in chunks", "2 floor((p + 4)/3)", lambda p, m: 2 * ((p + 4) // 3),
          lambda p, m: max(held(v_min, p, m, 2, Fraction(1))), (4, 8), [(3, 6)], V_SIZES),
    Claim("V-Half: a step, F = I = W = 1, with k in flight", "6m + 6p - 3k - 1",
          lambda p, m: 6 * (m + p) - 6 * ((p + 2) // 2) - 1, lambda p, m: makespan(v_half, p, m, UNIT, 2), (4, 8),
          [(3, 6)], V_SIZES),
    Claim("V-Min: a step, F = I = W = 1, with k in flight", "6m + 6p - 3k - 1",
          lambda p, m: 6 * (m + p) - 6 * ((p + 4) // 3) - 1, lambda p, m: makespan(v_min, p, m, UNIT, 2), (4, 8),
          [(3, 6)], V_SIZES),
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

CLAIMS = {
    "time": TIME,
    "memory": MEMORY,
    "gathers": GATHERS,
    "states": STATES,
    "activations": ACTIVATIONS,
    "sent": SENT,
    "frontier": FRONTIER,
}
