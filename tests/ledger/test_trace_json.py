"""The notation: traces read back the same, nothing in them changes unnoticed, and reading and judging are bounded."""

import json
import random
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from functools import cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib import (
    COSTS,
    Costs,
    IncompleteError,
    Model,
    Op,
    Report,
    Setting,
    Size,
    Trace,
    TraceError,
    WeightGrad,
    referee,
    run,
    trace_from_json,
    trace_to_json,
)
from lib import pipelines as schedules
from lib.ledger import notes
from lib.ledger.trace import FORMS
from lib.ledger.trace_json import MAX_COUNT
from solutions.checkpoint import checkpoint
from solutions.fsdp_prefetch import fsdp_prefetch
from solutions.host_update import host_update
from solutions.ring_context import ring_context
from solutions.seq_pipeline import seq_pipeline
from solutions.streaming_diloco import streaming_diloco
from solutions.ulysses import ulysses
from solutions.weight_versions import weight_versions
from solutions.zero1 import zero1
from tests.catalog.lessons.families.grid import grid
from tests.catalog.lessons.families.replicas import buckets
from tests.support import CLASSICS
from tests.support.examples import examples
from tests.support.refusals import Refused, edited
from tests.support.schedules import clipping, groups, rooted, shards, tiers

# === A trace is complete ===


TRACES = {classic.slug: run(classic.solution, *classic.size).trace for classic in CLASSICS}
REPORTS = {slug: referee(trace) for slug, trace in TRACES.items()}

slugs = st.sampled_from(sorted(TRACES))


def exploring() -> Trace:
    """A trace with the records that no solution has: given values, odd keys, every operation on values."""
    model = Model(layers=2, batches=2)
    made_up = WeightGrad(0, 2, {0}, 2, {0, 1}, 4)
    model.grad_weights['a "key"', -1, (2, None)] = made_up + model.fake_grad(0, [1]).shard(0, 2).shard(0, 4).combine(
        model.fake_grad(0, [1]).shard(1, 4)
    )
    return model.run.trace()


@pytest.mark.sampled(3)
@pytest.mark.parametrize("slug", TRACES)
def test_reads_back_the_same_from_json(slug: str) -> None:
    trace = TRACES[slug]
    assert trace_from_json(trace_to_json(trace)) == trace
    assert referee(trace_from_json(trace_to_json(trace))) == REPORTS[slug]


def test_hand_made_values_and_odd_keys_read_back_the_same() -> None:
    trace = exploring()
    assert {op.name for op in trace.ranks[0]} == {"given", "fake_grad", "shard", "combine", "add", "store"}
    assert trace_from_json(trace_to_json(trace)) == trace


# --- Nothing in it can be changed unnoticed ---------------------------------------------------------


def scored(report: Report) -> Any:
    """Everything a report says of a legal run; None for one that is refused."""
    return None if report.error else (report.timesteps, report.makespan, report.peak, report.ranks, report.copies)


def without(trace: Trace, rank: int, i: int) -> Trace:
    return edited(trace, lambda ops: [*ops[:i], *ops[i + 1 :]], rank)


def noticed(slug: str, changed: Trace) -> bool:
    try:
        changed = trace_from_json(trace_to_json(changed))
    except TraceError:
        return True
    return scored(referee(changed)) != scored(REPORTS[slug])


def operations(trace: Trace) -> list[tuple[int, int]]:
    """The indices of the operations; storing and deleting are bookkeeping, of which a run may have too much."""
    return [
        (rank, i)
        for rank, ops in enumerate(trace.ranks)
        for i, op in enumerate(ops)
        if op.name not in ("store", "delete")
    ]


@pytest.mark.slow
@examples(200)
@given(slugs, st.integers(0, 10**6))
def test_an_operation_that_is_removed_is_missed(slug: str, seed: int) -> None:
    rank, i = random.Random(seed).choice(operations(TRACES[slug]))
    assert noticed(slug, without(TRACES[slug], rank, i)), TRACES[slug].ranks[rank][i]


@examples(200)
@given(slugs, st.integers(0, 10**6))
def test_an_operation_before_what_it_needs_is_refused(slug: str, seed: int) -> None:
    draw = random.Random(seed)
    rank, i = draw.choice([(r, i) for r, i in operations(TRACES[slug]) if TRACES[slug].ranks[r][i].inputs])
    ops = TRACES[slug].ranks[rank]
    source = next(j for j, op in enumerate(ops) if set(op.outputs) & set(ops[i].inputs))
    moved = edited(TRACES[slug], lambda ops: [*ops[:source], ops[i], *ops[source:i], *ops[i + 1 :]], rank)
    assert referee(moved).error is not None


def altered(op: Op, draw: random.Random, values: int) -> Op:
    """The operation with one of its numbers changed."""
    choices: list[Callable[[], Op]] = [
        lambda: op._replace(start=op.start + draw.choice([-1, 1]) * draw.randint(1, 30)),
        lambda: op._replace(end=op.end + draw.choice([-1, 1]) * draw.randint(1, 30)),
        lambda: op._replace(layer=draw.randint(0, 9) if op.layer is None else op.layer + draw.choice([-1, 1])),
        lambda: op._replace(batches=op.batches ^ {draw.randint(0, 4)}),
    ]
    if op.inputs:
        n = draw.randrange(len(op.inputs))
        other = draw.choice([v for v in range(values + 1) if v != op.inputs[n]])
        choices.append(lambda: op._replace(inputs=(*op.inputs[:n], other, *op.inputs[n + 1 :])))
    if op.outputs:
        choices.append(lambda: op._replace(outputs=tuple(number + 1 for number in op.outputs)))
    for n, arg in enumerate(op.args):
        if type(arg) is int and FORMS[op.name].args[n] != "key":
            choices.append(lambda n=n, arg=arg: op._replace(args=(*op.args[:n], arg + 1, *op.args[n + 1 :])))
    return draw.choice(choices)()


@examples(200)
@given(slugs, st.integers(0, 10**6))
def test_a_number_that_is_altered_is_noticed(slug: str, seed: int) -> None:
    draw = random.Random(seed)
    rank, i = draw.choice(operations(TRACES[slug]))
    values = sum(len(op.outputs) for op in TRACES[slug].ranks[rank])
    changed = altered(TRACES[slug].ranks[rank][i], draw, values)
    forged = edited(TRACES[slug], lambda ops: [*ops[:i], changed, *ops[i + 1 :]], rank)
    assert noticed(slug, forged), (TRACES[slug].ranks[rank][i], changed)


NONSENSE = [None, -1, "x", [], {}, 1.5, (None,), ({},), frozenset((0,))]


@examples(500)
@given(slugs, st.integers(0, 10**6), st.sampled_from(["start", "end", "inputs", "outputs"]), st.sampled_from(NONSENSE))
def test_a_column_of_the_wrong_type_is_refused_on_its_own_rank(
    slug: str, seed: int, column: str, nonsense: object
) -> None:
    rank, i = random.Random(seed).choice([(r, i) for r, ops in enumerate(TRACES[slug].ranks) for i in range(len(ops))])
    changed = TRACES[slug].ranks[rank][i]._replace(**{column: nonsense})
    error = referee(edited(TRACES[slug], lambda ops: [*ops[:i], changed, *ops[i + 1 :]], rank)).error
    assert error is not None, changed
    assert error.place.startswith(f"rank {rank}, "), error


# --- Reading is strict ------------------------------------------------------------------------------


def of_json(change: Callable[[dict[str, Any]], Any]) -> str:
    data = json.loads(trace_to_json(TRACES["basic"]))
    change(data)
    return json.dumps(data)


def row(**columns: Any) -> Callable[[dict[str, Any]], None]:
    return lambda data: data["operations"][0][0].update(columns)


BAD_JSON = [
    ("nonsense", Refused("no JSON")),
    ("[" * 100_000, Refused("no JSON")),
    ('{"format": NaN}', Refused("no JSON", why="NaN is not a number here")),
    ("[]", Refused("no trace")),
    (of_json(lambda data: data.update(version=2)), Refused("other version", version=2, read=1)),
    (of_json(lambda data: data.update(costs="free")), Refused("unknown costs read", got="free")),
    (of_json(lambda data: data.update(layers=0)), Refused("impossible count", name="layers", most=10_000, got=0)),
    (of_json(lambda data: data.update(ranks=True)), Refused("impossible count", name="ranks")),
    (of_json(lambda data: data.update(ranks=3)), Refused("ranks missing", ranks="3 ranks", count=1)),
    (of_json(lambda data: data.update(operations=[7])), Refused("no operations", rank=0)),
    (
        of_json(row(op="dance")),
        Refused("unreadable operation", operation=0, rank=0, why="there is no operation 'dance'"),
    ),
    (
        of_json(row(op=["load_weights"])),
        Refused("unreadable operation", operation=0, rank=0, why="there is no operation ['load_weights']"),
    ),
    (of_json(row(mood="good")), Refused("unreadable operation", why="load_weights has no mood")),
    (of_json(row(at=[0])), Refused("no ticks")),
    (of_json(row(at=[0, 0.5])), Refused("no numbers", column="at")),
    (of_json(row(layer=-1)), Refused("no number", column="layer", first=0, got=-1)),
    (of_json(row(layer=1.0)), Refused("no number", column="layer")),
    (of_json(row(batches=[1, 1])), Refused("batch twice")),
    (of_json(row(makes="01")), Refused("no numbers", column="makes")),
    (of_json(row(makes=[True])), Refused("no numbers", column="makes")),
    (of_json(row(shard=-1)), Refused("unreadable operation", why="shard cannot be -1")),
    (
        of_json(lambda data: data["operations"][0][0].pop("total")),
        Refused("unreadable operation", why="load_weights needs total"),
    ),
    (
        of_json(lambda data: data["operations"][0][1].update(where=7)),
        Refused("unreadable operation", why="where cannot be 7"),
    ),
    (of_json(lambda data: data["operations"][0][1].update(key={})), Refused("no key")),
    (
        of_json(
            lambda data: data["operations"][0].insert(0, {"op": "given", "at": [0, 0], "value": ["Weight", 9, 2, 0]})
        ),
        Refused(
            "unreadable operation", operation=0, rank=0, why="Weight: layer 9 does not exist; there are layers 0 to 1"
        ),
    ),
    (
        of_json(lambda data: data["operations"][0].insert(0, {"op": "given", "at": [0, 0], "value": ["Money", 9]})),
        Refused("no value"),
    ),
]


@pytest.mark.parametrize(("text", "expected"), BAD_JSON)
def test_bad_json_is_refused_in_one_sentence(text: str, expected: Refused) -> None:
    with pytest.raises(TraceError) as why:
        trace_from_json(text)
    expected.require(why.value)


# === Every extended schedule comes back with its report ===


MESH = {"replica": 2, "shard": 2}


async def the_rest(model: Model) -> None:
    """What no schedule above does: tags, parts put together, sums, hand-made values; it trains nothing."""
    weights, states, inputs, _, weight_grads = model.storage()
    weights[0], states[0] = model.load_weights(0)
    if model.rank == 0:
        inputs[0] = model.get_activation([0], 1)
        await model.pass_to(1, inputs[0], tag=3)
    else:
        inputs[0] = await model.receive(0, tag=3)
    weight_grads[0] = model.fake_grad(0, [0], 1) + model.fake_grad(0, [1], 1)
    weights[0] = weights[0].shard(0, 2).combine(weights[0].shard(1, 2))
    del inputs[0]


async def experts_in_groups(model: Model) -> None:
    """A forward of experts that are split among some of the ranks only; it trains nothing."""
    weight, _ = model.load_weights(0, model.index("expert"), 2)
    tokens = await model.dispatch(model.get_activation([model.rank]), 0, group="expert")
    model.activations[0] = await model.collect(model.forward(0, tokens, weight), 1, [model.rank], group="expert")


Play = tuple[Callable[[Model], Any], Size, Setting]


def game(schedule: Callable[[Model], Any], layers: int, batches: int, ranks: int, *setting: Any, **more: Any) -> Play:
    return schedule, Size(layers, batches, ranks), Setting(*setting, **more)


PAIRS = replace(COSTS["parts"], name="pairs", ticks={**COSTS["parts"].ticks, "pair": 20})
BLOCK, EXPERTS = {"layer": "block"}, {"layer": "experts"}
LOCAL = {"steps": 4, "task": "local"}
P = schedules.pipeline


async def heads_in_groups(model: Model) -> None:
    """Tokens for heads and back, in two groups, with a label of its own."""
    tokens = model.get_activation([model.index("dp")], shares=[model.index("cp")])
    heads = await model.heads(tokens, 7, group="cp")
    await model.tokens(heads, 7, group="cp")


GAMES: dict[str, Play] = {
    "replicas": game(grid(2, 1, 2, zero=1), 2, 4, 4, mesh={"dp": 2, "pp": 2}),
    "hybrid_shard": game(groups.hybrid_shard, 2, 4, 4, "islands", MESH),
    "hybrid_shard_keeping_the_last": game(groups.hybrid_shard_keeping_the_last, 2, 4, 4, "classic", MESH),
    "ddp_overlap": game(buckets(2, 1), 3, 2, 2, "buckets"),
    "fsdp_prefetch": game(fsdp_prefetch, 3, 2, 2, "overlap"),
    "gpipe": game(P(schedules.gpipe), 2, 3, 2, "stages"),
    "one_f_one_b": game(P(schedules.one_f_one_b), 2, 3, 2, "stages"),
    "zero_bubble": game(P(schedules.zb_v), 6, 6, 3, "parts"),
    "zb_h1": game(P(schedules.zb_h1), 3, 4, 3, "parts"),
    "zb_h2": game(P(schedules.zb_h2), 3, 4, 3, "parts", steps=2),
    "zero1": game(zero1, 2, 2, 2),
    "checkpoint": game(checkpoint, 6, 1, 1, "long"),
    "tensor_parallel": game(schedules.tensor_parallel, 2, 1, 4, "quarters", **BLOCK),
    "tensor_parallel_record": game(shards.tensor_parallel_record, 2, 1, 2, "twentieths", **BLOCK),
    "sequence_parallel": game(schedules.sequence_parallel, 2, 1, 4, "long_quarters", **BLOCK),
    "local_sgd": game(shards.local_sgd(2), 2, 2, 2, "slow", **LOCAL),
    "data_parallel_steps": game(shards.data_parallel_steps, 2, 2, 2, "slow", steps=2),
    "expert_parallel": game(shards.expert_parallel, 2, 4, 2, "experts", **EXPERTS),
    "experts_in_turn": game(shards.experts_in_turn, 2, 4, 2, "experts", **EXPERTS),
    "offload": game(tiers.offload([1, 2]), 4, 1, 1, "copies"),
    "stream_inference": game(tiers.stream_inference, 3, 2, 1, "streams", task="infer"),
    "stream_inference_in_turn": game(tiers.stream_inference_in_turn, 3, 2, 1, "streams", task="infer"),
    "experts_in_groups": game(experts_in_groups, 1, 4, 4, "experts", {"data": 2, "expert": 2}, **EXPERTS),
    "pairs": game(P(schedules.dualpipev), 4, 4, 2, PAIRS),
    "host_update": game(host_update, 2, 2, 1, "host_updates", steps=3, lag=1),
    "moved": game(tiers.moved, 1, 2, 1, tiers.TWO_TIERS),
    "two_versions": game(weight_versions, 2, 2, 2, "stages", steps=3, lag=1),
    "streaming_diloco": game(
        streaming_diloco, 2, 2, 2, "outer_steps", steps=4, task="outer", outer=2, late=1, mix=Fraction(1, 4)
    ),
    "seq_pipeline": game(seq_pipeline, 2, 2, 2, "sequences", layer="attention", shares=4, steps=1),
    "ring_context": game(ring_context, 2, 1, 2, "grouped", layer="attention", shares=4),
    "ulysses": game(ulysses, 2, 1, 2, "context", layer="attention", shares=4),
    "heads_in_groups": game(heads_in_groups, 1, 2, 4, "context", {"dp": 2, "cp": 2}, layer="attention", shares=2),
    "clipped_pipeline": game(clipping.pipeline, 2, 2, 2, clip=True),
    "clipped_on_the_host": game(clipping.on_the_host, 1, 2, 1, "host_updates", clip=True),
    "owned": game(rooted.owned, 2, 2, 2, rooted.COSTS_WITH_ROOTS, steps=2),
    "the_rest": game(the_rest, 1, 2, 2, steps=2),
}


@cache
def trace_of_game(name: str) -> Trace:
    schedule, size, setting = GAMES[name]
    return run(schedule, *size, setting=setting).trace


def comes_back(trace: Trace) -> None:
    again = trace_from_json(trace_to_json(trace))
    assert again == trace
    assert trace_to_json(again) == trace_to_json(trace)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", GAMES)
def test_a_trace_comes_back_with_its_report(name: str) -> None:
    trace = trace_of_game(name)
    comes_back(trace)
    report = referee(trace)
    trains = name not in ("the_rest", "experts_in_groups", "heads_in_groups")
    assert (report.error is None) == trains
    assert trains or isinstance(report.error, IncompleteError)
    assert repr(referee(trace_from_json(trace_to_json(trace)))) == repr(report)


def test_every_operation_and_every_optional_argument_is_here() -> None:
    ops = [op for name in GAMES for rank in trace_of_game(name).ranks for op in rank]
    assert set(FORMS) - {op.name for op in ops} == {"given"}, "other tests of this file have values of other runs"
    for name, form in FORMS.items():
        if form.optional:
            assert any(op.args[len(form.args) :] for op in ops if op.name == name), name


PRICES = st.dictionaries(st.sampled_from(sorted(COSTS["experts"].ticks)), st.integers(0, 10**9))


@examples(40)
@given(
    st.sampled_from(sorted(GAMES)),
    st.sampled_from([1, 8, 10, 20, 40, 1000]),
    PRICES,
    st.fractions(0, 900, max_denominator=10**6),
    st.integers(0, 64),
)
def test_a_trace_with_any_cost_record_comes_back(
    name: str, unit: int, prices: dict[str, int], beta: Fraction, islands: int
) -> None:
    """The costs are whatever a player writes, not those that the run had: the notation keeps what it is given."""
    trace = trace_of_game(name)
    more: dict[str, Any] = {"beta": {"allreduce": beta}, "islands": islands, "calls": prices, "ticks_between": prices}
    own: Costs = replace(trace.costs, name="any", unit=unit, **more)
    comes_back(replace(trace, setting=replace(trace.setting, costs=own)))


# === Judging costs no more than a trace is long ===


HUGE = 20_000_000
RANKS = 4
MIB = 1 << 20


def head(**changed: Any) -> str:
    return json.dumps({**json.loads(trace_to_json(run(CLASSICS[0].solution, 2, 4, 1).trace)), **changed})


def value(*label: Any) -> str:
    return head(operations=[[{"op": "given", "at": [0, 0], "makes": [0], "value": label}]])


TOO_LARGE = [
    (head(layers=HUGE), Refused("impossible count", name="layers", most=10_000, got=20000000)),
    (head(batches=HUGE), Refused("impossible count", name="batches")),
    (head(ranks=HUGE), Refused("impossible count", name="ranks")),
    (value("Weight", 0, HUGE, 0), Refused("unreadable operation", operation=0, rank=0)),
    (
        value("Weight", 0, 2, 0, list(range(MAX_COUNT + 1)), MAX_COUNT + 1),
        Refused("unreadable operation", operation=0, rank=0),
    ),
    (
        head(operations=[[{"op": "load_weights", "at": [0, 0], "layer": 0, "shard": 0, "total": HUGE}]]),
        Refused("unreadable operation", why="total cannot be 20000000"),
    ),
    (head(operations=[[{"op": "loss", "at": [0, 10**13]}]]), Refused("no numbers", column="at")),
]


@pytest.mark.parametrize(("text", "expected"), TOO_LARGE, ids=lambda x: x if isinstance(x, str) and len(x) < 80 else "")
def test_what_is_too_large_is_refused_when_it_is_read(text: str, expected: Refused) -> None:
    with pytest.raises(TraceError) as why:
        trace_from_json(text)
    expected.require(why.value)
    assert len(str(why.value)) < 300


def test_the_largest_counts_are_read() -> None:
    assert trace_from_json(head(layers=MAX_COUNT)).size.layers == MAX_COUNT


@pytest.mark.parametrize("goal", [CLASSICS[0].goal, None])
def test_layers_that_no_operation_names_cost_nothing(goal: Any) -> None:
    """A trace that was never read, so that no bound of the reader protects the judge."""
    trace = Trace(Size(HUGE // 20, 4, 1), ((),))
    tracemalloc.start()
    try:
        report = referee(trace, goal)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert report.error is not None
    assert report.notes == ()
    assert most < 20 * MIB, "eight bytes for the copies of each layer, and nothing else"


def joined(parts: int) -> Callable[[Model], Any]:
    """Each rank updates half of its shards and stores them joined in every length; it sends and reads the others."""

    async def schedule(model: Model) -> None:
        inp, whole = model.get_activation(range(4)), model.load_weights(0)[0]
        grad, _ = model.backward(0, inp, model.loss(model.forward(0, inp, whole)), whole)
        held = None
        for i in range(parts):
            weight, state = model.load_weights(0, model.rank * parts + i, RANKS * parts)
            if i % 2:
                weight, state = model.update(0, grad, weight, state)
                held = weight if held is None else held.combine(weight)
                model.weights[i] = held
            else:
                await model.pass_to((model.rank + 1) % RANKS, weight)
                await model.receive()

    return schedule


@pytest.mark.parametrize("parts", [40, pytest.param(400, marks=pytest.mark.slow)])
def test_shards_that_are_joined_again_and_again_are_compared_once(parts: int, monkeypatch: pytest.MonkeyPatch) -> None:
    made = 0

    def counted(*given: int) -> Fraction:
        nonlocal made
        made += 1
        return Fraction(*given)

    trace = run(joined(parts), 1, 4, RANKS).trace
    monkeypatch.setattr(notes, "Fraction", counted)
    report = referee(trace)
    assert any(note.about == "missing" for note in report.notes)
    assert made <= 4 * sum(map(len, trace.ranks))
