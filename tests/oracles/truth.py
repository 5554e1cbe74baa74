"""What papers state about schedules, and the same measured on our runs: tests compare, docs/truth.md shows."""

from __future__ import annotations

from fractions import Fraction
from functools import cache, partial
from typing import NamedTuple

from lib import Model, Report, Setting, Trace, inflight, memory_by_kind, referee, run
from lib.pipelines import (
    breadth_first,
    ddp,
    dualpipev,
    gpipe,
    interleaved,
    one_f_one_b,
    pipeline,
    sequence_parallel,
    zb_h1,
    zb_h2,
    zb_v,
    zero1,
    zero2,
    zero3,
)
from lib.pipelines.player import Order
from tests.oracles.frontier_truth import FRONTIER
from tests.oracles.truth_runs import Claim, costs_of, judged

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
    Claim(
        "GPipe: a step",
        "(m + p - 1)(F + B)",
        lambda p, m, t: (m + p - 1) * sum(t),
        partial(makespan, gpipe),
        (4, 8, UNIT),
        QUICK,
        PIPELINES,
    ),
    Claim(
        "1F1B: a step",
        "(m + p - 1)(F + B)",
        lambda p, m, t: (m + p - 1) * sum(t),
        partial(makespan, one_f_one_b),
        (4, 8, UNIT),
        QUICK,
        PIPELINES,
    ),
    Claim(
        "interleaved 1F1B: a step, F and B of a chunk",
        "(mv + p - 1)(F + B)",
        lambda p, m, t, v: (m * v + p - 1) * sum(t),
        partial(makespan, interleaved),
        (4, 8, UNIT, 2),
        [(2, 4, (3, 2, 3), 3), (4, 8, UNIT, 2)],
        CHUNKED,
    ),
    Claim(
        "breadth-first: a step, F and B of a chunk",
        "(mv + p - 1)(F + B)",
        lambda p, m, t, v: (m * v + p - 1) * sum(t),
        partial(makespan, breadth_first),
        (4, 8, UNIT, 2),
        [(2, 4, (3, 2, 3), 3), (4, 8, UNIT, 2)],
        CHUNKED,
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

CLAIMS = {
    "time": TIME,
    "memory": MEMORY,
    "gathers": GATHERS,
    "states": STATES,
    "activations": ACTIVATIONS,
    "sent": SENT,
    "frontier": FRONTIER,
}
