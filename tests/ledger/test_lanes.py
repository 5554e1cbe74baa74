"""Overlap: pending calls on lanes, joined by await, and chains of calls that are given handles."""

import asyncio
import itertools
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from lib import (
    COSTS,
    DeadlockError,
    Dist,
    Model,
    Op,
    RuleError,
    Setting,
    Trace,
    TraceError,
    referee,
    run,
    run_async,
    trace_from_json,
    trace_to_json,
)
from lib.ledger.costs import Tier
from solutions.fsdp_prefetch import fsdp_prefetch
from tests.catalog.lessons.families.replicas import buckets, passes
from tests.oracles.timing import retimed
from tests.support import finished, refusal
from tests.support.refusals import Edit, Refusals, Refused, edited, nth, with_columns
from tests.support.step_costs import STEP_COSTS

# === A call is pending when it is made, and its lane runs one call after the other ===


OVERLAP = Setting(STEP_COSTS["overlap"])
BUCKETS = Setting(STEP_COSTS["buckets"])
SQUARE = Setting(STEP_COSTS["overlap"], mesh=(("dp", 2), ("tp", 2)))

FSDP = run(fsdp_prefetch, 6, 4, 4, setting=OVERLAP).trace

ORDERS: Sequence[Sequence[int]] = [(0, 1, 2, 3), (3, 2, 1, 0), (2, 0, 3, 1)]


# --- Lanes ---


async def message_behind_a_sum(model: Model) -> None:
    """Rank 0 calls an all-reduce that waits for rank 1, then sends a message, which rank 1 waits for first."""
    grad = model.fake_grad(0, [])
    if model.rank == 0:
        calls = [model.allreduce(grad, 0), model.pass_to(1, model.get_activation([0]))]
    else:
        await model.receive(0)
        calls = [model.allreduce(grad, 0)]
    for call in calls:
        await call


def test_a_message_waits_for_the_sum_before_it_unless_it_has_a_lane_of_its_own() -> None:
    for lanes in ("one", "group"):
        setting = Setting(replace(OVERLAP.costs, name="lanes", lanes=lanes))
        assert isinstance(run(message_behind_a_sum, 1, 1, 2, setting=setting).error, DeadlockError)
    each = Setting(replace(OVERLAP.costs, name="lanes", lanes="each"))
    outcome = finished(message_behind_a_sum, 1, 1, 2, setting=each)
    message, total = (next(op for op in outcome.trace.ranks[0] if op.name == name) for name in ("pass_to", "allreduce"))
    assert message.start == 0 < message.end <= total.start
    Refused("no final weight").require(referee(outcome.trace).error)
    with Refused("no such choice", name="lanes", choices='"one" or "group" or "each"', got="two"):
        replace(OVERLAP.costs, lanes="two")


# --- Figures of the report, from the rows ---


def calls_early_or_late(seed: int) -> Callable[[Model], Any]:
    """Each rank issues one all-reduce before, between or after some forwards, of which it may have none."""

    async def schedule(model: Model) -> None:
        choice = random.Random(f"{seed} {model.rank}")
        before, between, after = (choice.choice((0, 0, 1, 4)) for _ in range(3))
        weight, _ = model.load_weights(0)
        for _ in range(before):
            model.forward(0, model.get_activation([0]), weight)
        call = model.allreduce(model.fake_grad(0, []), 0)
        for _ in range(between):
            model.forward(0, model.get_activation([0]), weight)
        await call
        for _ in range(after):
            model.forward(0, model.get_activation([0]), weight)

    return schedule


def test_times_in_the_report_are_those_of_the_rows_whenever_calls_start() -> None:
    calls_first = 0
    for seed in range(40):
        trace = run(calls_early_or_late(seed), 1, 1, 3, setting=OVERLAP).trace
        report, events = referee(trace), [trace.events(rank) for rank in range(3)]
        starts, ends = ([[getattr(op, at) for op in ops] for ops in events] for at in ("start", "end"))
        assert report.timesteps * 10 == max(map(max, starts))
        assert report.makespan * 10 == max(map(max, ends))
        assert report.span * 10 == max(max(last) - min(first) for first, last in zip(starts, ends))
        calls_first += any(ops[0].start > min(first) for ops, first in zip(events, starts))
    assert calls_first > 5


# --- Known figures, in every order of starting the ranks ---


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("schedule", "setting", "timesteps", "peak"),
    [
        (buckets(1, 1, 1, 1, 1, 1), BUCKETS, 14.5, 6_029_312),
        (buckets(2, 2, 2), BUCKETS, 14.5, 5_767_168),
        (buckets(6), BUCKETS, 18.0, 4_718_592),
        (fsdp_prefetch, OVERLAP, 15.0, 2_293_760),
        (passes(1, prefetch=False), OVERLAP, 23.0, 1_966_080),
    ],
)
def test_figures_of_known_schedules(schedule: Any, setting: Setting, timesteps: float, peak: int) -> None:
    found = set()
    for order in ORDERS:
        outcome = run(schedule, 6, 4, 4, order, setting=setting)
        report = referee(outcome.trace)
        assert (report.error, report.timesteps, report.peak.memory) == (None, timesteps, peak)
        assert not any(note.costs_a_star for note in report.notes)
        assert max(model.memory() for model in outcome.models) <= peak
        found.add((trace_to_json(outcome.trace), report.critical_path, report.bubble))
    assert len(found) == 1


async def test_the_same_on_a_loop_that_others_use() -> None:
    outcome = await run_async(fsdp_prefetch, 6, 4, 4, setting=OVERLAP)
    assert outcome.trace == FSDP


async def test_the_same_without_a_runner() -> None:
    dist = Dist(4, setting=OVERLAP)
    models = [Model(rank, dist, 6, 4) for rank in range(4)]
    await asyncio.gather(*map(fsdp_prefetch, models))
    assert models[0].run.trace() == FSDP


def test_busy_is_computing_only() -> None:
    report = referee(run(buckets(1, 1, 1, 1, 1, 1), 6, 4, 4, setting=BUCKETS).trace)
    assert report.bubble == 0
    assert [rank.busy for rank in report.ranks] == [1.0] * 4
    report = referee(run(buckets(6), 6, 4, 4, setting=BUCKETS).trace)
    assert report.bubble == pytest.approx(1 - 15 / 18.5)


def test_the_critical_path_goes_through_the_lane() -> None:
    trace = run(passes(1, prefetch=False), 6, 4, 4, setting=OVERLAP).trace
    path = referee(trace).critical_path
    events = [trace.ranks[rank][i] for rank, i in path]
    assert events[0].start == 0
    assert all(before.end == after.start for before, after in itertools.pairwise(events))
    assert sum(op.name in ("allgather", "scatterreduce") for op in events) > 6


# --- A few calls, timed by hand ---


def calls(trace: Trace, rank: int = 0) -> list[tuple[int, int]]:
    """Start and end of each call of a rank."""
    return [(op.start, op.end) for op in trace.ranks[rank] if op.name in ("allreduce", "allgather", "pass_to")]


def zero(model: Model, layer: int = 0) -> Any:
    return model.fake_grad(layer, [])


def work(model: Model, batches: int) -> None:
    """One step for each batch."""
    if batches:
        model.forward(0, model.get_activation(range(batches)), model.load_weights(0)[0])


def test_a_call_starts_when_its_last_rank_makes_it_and_the_lane_is_free() -> None:
    async def schedule(model: Model) -> None:
        work(model, model.rank)
        first = model.allreduce(zero(model), 0)
        work(model, 1)
        second = model.allreduce(zero(model, 1), 1)
        await second
        await first

    outcome = finished(schedule, 2, 4, 4, setting=OVERLAP)
    # Ranks call first at 0, 1, 2, 3 and second one step later; half a step each.
    assert [calls(outcome.trace, rank) for rank in range(4)] == [[(30, 35), (40, 45)]] * 4
    assert [model.time for model in outcome.models] == [4.5] * 4


def test_messages_go_out_beside_computation() -> None:
    async def schedule(model: Model) -> None:
        if model.rank == 0:
            sent = model.pass_to(1, model.get_activation([0]))
            work(model, 1)
            await sent
            assert model.time == 1
        else:
            inp = await model.receive(0)
            assert model.time == 0.4
            assert inp.memory() == 131_072

    for order in ((0, 1), (1, 0)):
        outcome = finished(schedule, 1, 2, 2, order, setting=OVERLAP)
        Refused("no final weight").require(referee(outcome.trace).error)


def test_a_full_mailbox_holds_up_the_lane() -> None:
    async def schedule(model: Model) -> None:
        if model.rank == 0:
            for handle in [model.pass_to(1, n) for n in range(3)]:
                await handle
        else:
            work(model, 2)
            assert [await model.receive() for _ in range(3)] == [0, 1, 2]

    for order in ((0, 1), (1, 0)):
        outcome = finished(schedule, 1, 2, 2, order, setting=OVERLAP)
        assert calls(outcome.trace) == [(0, 4), (4, 8), (8, 12)]  # as ever, room costs no time


def test_messages_that_a_lane_holds_up_come_in_order() -> None:
    async def schedule(model: Model) -> None:
        handles: list[Any] = [model.allreduce(zero(model), 0)]
        if model.rank == 0:
            handles += [model.pass_to(1, n) for n in range(2)]
        elif model.rank == 1:
            assert [await model.receive(0) for _ in range(2)] == [0, 1]
        for handle in handles:
            await handle

    for order in itertools.permutations(range(3)):
        assert run(schedule, 1, 3, 3, order, setting=OVERLAP).error is None


def test_a_bucket_is_one_call_of_several_values() -> None:
    async def schedule(model: Model) -> None:
        first, second = await model.allreduce([zero(model, 1), zero(model, 0)], [1, 0])
        assert (first.layer, second.layer) == (1, 0)

    trace = run(schedule, 2, 4, 4, setting=BUCKETS).trace
    (op,) = [op for op in trace.ranks[0] if op.name == "allreduce"]
    assert (op.layer, op.args, len(op.inputs), len(op.outputs), op.end - op.start) == (1, (), 2, 2, 15)


def test_labels_of_a_bucket_are_a_note() -> None:
    async def schedule(model: Model) -> None:
        await model.allreduce([zero(model, 1), zero(model, 0)], [0, 0])

    trace = run(schedule, 2, 4, 4, setting=BUCKETS).trace
    (note,) = (note for note in referee(trace).notes if note.about == "label")
    assert "with layer [0, 0]" in note.text
    assert trace_from_json(trace_to_json(trace)) == trace


# --- Memory is a function of program order ---


def test_what_a_call_brings_counts_until_its_await_and_what_it_makes_from_the_next_event_on() -> None:
    weight = 512 * 512

    async def schedule(model: Model) -> None:
        model.weights[0], _ = model.load_weights(0, model.rank, 4)
        gathered = model.allgather(model.weights.pop(0), 0)
        work(model, 1)
        whole = await gathered
        model.forward(0, model.get_activation([1]), whole)

    report = referee(run(schedule, 1, 4, 4, setting=OVERLAP).trace)
    quarter, activation = weight // 4, 512 * 256
    # At the gather the shard; at the first forward also the whole weight, another one and an input; then the whole one
    # and an input. The outputs that nobody uses are charged to nobody.
    assert report.ranks[0].memory == (quarter, quarter + 2 * weight + activation, weight + activation, 0)


# --- Refusals ---

refused = Refusals(OVERLAP)


def shard(model: Model, layer: int = 0) -> Any:
    return model.load_weights(layer, model.rank, model.RANKS)[0]


@refused(Refused("never awaited", place="the end", call="allgather(layer=1)"))
async def never_awaited(model: Model) -> None:
    model.allgather(shard(model, 1), 1)


@refused(Refused("never awaited", place="the end"))
async def a_send_never_awaited(model: Model) -> None:
    if model.rank == 0:
        model.pass_to(1, None)
    elif model.rank == 1:
        await model.receive(0)


@refused(Refused("awaited twice", place="await allgather(layer=0)"))
async def awaited_twice(model: Model) -> None:
    handle = model.allgather(shard(model), 0)
    await handle
    await handle


SHELF: dict[int, Any] = {}


@refused(Refused("handle awaited elsewhere", place="rank 1", rank=0))
async def awaited_by_another_rank(model: Model) -> None:
    SHELF[model.rank] = model.allreduce(zero(model), 0)
    await SHELF[model.rank]
    if model.rank == 1:
        await SHELF[0]


@refused(Refused("handle used elsewhere", place="rank 1"))
async def brought_by_another_rank(model: Model) -> None:
    SHELF[model.rank] = model.allreduce(zero(model), 0)
    await SHELF[model.rank]
    if model.rank == 1:
        model.allreduce(SHELF[0], 0)


@refused(Refused("wrong kind", place="forward(layer=0)"))
async def used_before_its_await(model: Model) -> None:
    model.forward(0, model.get_activation([0]), model.allgather(shard(model), 0))  # type: ignore[arg-type]


@refused(Refused("wrong dictionary", place="weights[0] = ..."))
async def stored_before_its_await(model: Model) -> None:
    model.weights[0] = model.allgather(shard(model), 0)  # type: ignore[assignment]


@refused(Refused("handle summed", handle="the result of allreduce(layer=0) which is still pending; await it first"))
async def added_before_its_await(model: Model) -> None:
    zero(model) + model.allreduce(zero(model), 0)


@refused(Refused("cannot send", place="pass_to(1)"))
async def sent_before_its_await(model: Model) -> None:
    await model.pass_to(1, {"weight": [model.allgather(shard(model), 0)]})


@refused(Refused("no value made", place="allreduce(layer=0)"))
async def the_handle_of_a_send_as_a_value(model: Model) -> None:
    model.allreduce(model.pass_to((model.rank + 1) % 4, None), 0)


@refused(
    Refused(
        "wrong kind for use", kind="a weight gradient", value="the weight of layer 0, unsharded (all 4 shards), step 0"
    )
)
async def what_a_gather_makes_is_reduced(model: Model) -> None:
    gathered = model.allgather(shard(model), 0)
    await model.allreduce(gathered, 0)


@refused(Refused("values without layers", count=2))
async def a_bucket_with_one_layer(model: Model) -> None:
    await model.allreduce([zero(model), zero(model, 1)], 0)


@refused(Refused("values without layers", count=2))
async def a_bucket_with_too_many_layers(model: Model) -> None:
    await model.allreduce([zero(model), zero(model, 1)], [0, 1, 2])


@refused(Refused("empty list"))
async def an_empty_bucket(model: Model) -> None:
    await model.allreduce([], [])


@refused(Refused("list without overlap"), setting=Setting())
async def a_bucket_where_nothing_overlaps(model: Model) -> None:
    await model.allreduce([zero(model)], [0])


@refused(Refused("in both", thing="batch", number=0, both="both rank 0 and rank 1"))
async def a_bucket_of_which_one_value_does_not_fit(model: Model) -> None:
    weight, _ = model.load_weights(1)
    inp = model.get_activation([0])
    whole = model.forward(0, inp, model.load_weights(0)[0])
    grad, _ = model.backward(1, whole, model.loss(model.forward(1, whole, weight)), weight)
    await model.allreduce([zero(model, 0), grad], [0, 1])


@refused(
    Refused("other calls", first="rank 0 calls allreduce(layers=[0, 1])", other="rank 3 calls allreduce(layers=[1, 0])")
)
async def buckets_that_differ(model: Model) -> None:
    layers = [1, 0] if model.rank == 3 else [0, 1]
    await model.allreduce([zero(model, layer) for layer in layers], layers)


@refused(Refused("other calls", first="rank 0 calls allreduce(layer=0)", other="rank 1 calls allreduce(layer=1)"))
async def calls_in_another_order(model: Model) -> None:
    for handle in [
        model.allreduce(zero(model, (layer + model.rank) % 2), (layer + model.rank) % 2) for layer in (0, 1)
    ]:
        await handle


@refused(
    Refused(
        "nobody can move",
        waits={
            0: "await allreduce(layer=0) in the group of ranks 0, 2",
            1: "await allreduce(layer=0) in the group of ranks 0, 1",
            2: "await allreduce(layer=0) in the group of ranks 2, 3",
            3: "await allreduce(layer=0) in the group of ranks 1, 3",
        },
        of={0: (2,), 1: (0,), 2: (3,), 3: (1,)},
        cycle=[(0, 2), (2, 3), (3, 1), (1, 0)],
    ),
    setting=SQUARE,
)
async def groups_in_another_order(model: Model) -> None:
    for axis in ["dp", "tp"] if model.rank in (0, 3) else ["tp", "dp"]:
        await model.allreduce(zero(model), 0, group=axis)


@refused(
    Refused(
        "nobody can move",
        waits={0: "await pass_to(1)", 1: "receive(0)"},
        of={0: (2,), 1: (0,)},
        absent={2: "has returned", 3: "has returned"},
    ),
    setting=SQUARE,
)
async def a_call_held_up_by_the_one_before(model: Model) -> None:
    if model.rank == 0:
        waits = model.allreduce(zero(model), 0, group="dp")
        await model.pass_to(1, "behind it")
        await waits
    elif model.rank == 1:
        await model.receive(0)


@refused(Refused("nobody can move", waits={0: "await pass_to(1)"}, of={0: (1,)}))
async def nobody_reads(model: Model) -> None:
    if model.rank == 0:
        for handle in [model.pass_to(1, n) for n in range(2)]:
            await handle


@refused(
    Refused(
        "nobody can move",
        waits={0: "await allreduce(layer=0)", 1: "await allreduce(layer=0)", 2: "await allreduce(layer=0)"},
        of={0: (3,), 1: (3,), 2: (3,)},
    )
)
async def one_rank_is_missing(model: Model) -> None:
    if model.rank < 3:
        await model.allreduce(zero(model), 0)


@pytest.mark.parametrize("name", refused)
def test_is_refused_in_words_that_help(name: str) -> None:
    schedule, setting, expected = refused[name]
    expected.require(refusal(schedule, 2, 4, 4, setting))


@pytest.mark.sampled(8)
@pytest.mark.parametrize("name", refused)
def test_is_refused_alike_in_every_order(name: str) -> None:
    schedule, setting, _ = refused[name]
    said = {tuple(map(str, run(schedule, 2, 4, 4, order, setting=setting).errors)) for order in ORDERS}
    assert len(said) == 1


@pytest.mark.parametrize("name", ["groups_in_another_order", "one_rank_is_missing", "nobody_reads"])
async def test_a_standstill_ends_without_a_runner_as_well(name: str) -> None:
    schedule, setting, expected = refused[name]
    dist = Dist(4, setting=setting)
    running = asyncio.gather(*(schedule(Model(rank, dist, 2, 4)) for rank in range(4)), return_exceptions=True)
    results = await asyncio.wait_for(running, timeout=5)
    (first, *_) = [why for why in results if isinstance(why, DeadlockError)]
    expected.require(first)


def test_a_refused_call_ends_every_wait_behind_it() -> None:
    async def schedule(model: Model) -> None:
        wrong = model.allgather(model.load_weights(0, 0, 2)[0], 0)
        behind = model.allreduce(zero(model), 0)
        with Refused("in both", thing="shard", number=0):
            await behind
        await wrong

    outcome = run(schedule, 1, 2, 2, setting=OVERLAP)
    for error in outcome.errors:
        Refused("in both", thing="shard", number=0).require(error)


def test_the_text_of_a_handle() -> None:
    async def schedule(model: Model) -> None:
        handle = model.allgather(shard(model), 0)
        assert "allgather(layer=0) on line" in repr(handle)
        with pytest.raises(AttributeError, match="await it first"):
            _ = handle.memory  # type: ignore[attr-defined]
        await handle

    assert run(schedule, 1, 4, 4, setting=OVERLAP).error is None


# --- Forged and altered traces ---


def without_an_await(ops: list[Op]) -> list[Op]:
    """The last await is gone, and nobody waited for what is used."""
    del ops[nth(ops, "await", -1)]
    return ops


def awaited_again(ops: list[Op]) -> list[Op]:
    at = nth(ops, "await", -1)
    again = ops[at]._replace(start=ops[at].end)
    return [*ops[: at + 1], again, *ops[at + 1 :]]


def awaited_first(ops: list[Op]) -> list[Op]:
    at = nth(ops, "await")
    call = ops[at].args[0]
    return [*ops[:call], ops[at], *ops[call:at], *ops[at + 1 :]]


def naming(call: Any) -> Edit:
    return with_columns("await", args=(call,))


@pytest.mark.parametrize(
    ("edit", "expected"),
    [
        (without_an_await, Refused("still pending")),
        (awaited_again, Refused("not pending")),
        (awaited_first, Refused("not pending")),
        (naming(0), Refused("not pending")),
        (naming(10**6), Refused("not pending")),
        (naming("x"), Refused("not pending")),
        (naming(None), Refused("not pending")),
        (naming([0]), Refused("senseless record")),
        (with_columns("await", 0, start=1), Refused("other end", start=0, end=5)),
        (with_columns("await", 0, end=6), Refused("other end", start=0, end=5)),
        (with_columns("await", 0, inputs=()), Refused("other end", start=0, inputs=[0])),
        (with_columns("await", 0, inputs=(1,)), Refused("other end", start=0, inputs=[0])),
        (with_columns("await", 0, outputs=(99,)), Refused("other end", start=0, end=5)),
        (with_columns("allgather", 0, start=1, end=6), Refused("other ticks", start=0, end=5, op_start=1)),
        (with_columns("allgather", 1, start=0, end=5), Refused("other ticks")),
        (with_columns("allgather", 0, end=4), Refused("other ticks", start=0, end=5, op_start=0)),
        (with_columns("allgather", 0, outputs=()), Refused("other message", count=1)),
        (with_columns("allgather", 0, outputs=(13,)), Refused("other message", count=1)),
        (with_columns("allgather", 0, batches=frozenset((0,))), Refused("other message", count=1)),
        (with_columns("allgather", 0, inputs=(0, 2)), Refused("other message", count=2)),
        (with_columns("allgather", 0, inputs=()), Refused("other record", name="allgather")),
        (with_columns("allgather", 0, layer=1), Refused("other layer", layer=0)),
    ],
)
def test_a_trace_that_no_run_writes(edit: Any, expected: Refused) -> None:
    expected.require(referee(edited(FSDP, edit)).error)


def test_what_is_under_way_is_not_sent_or_stored() -> None:
    for op in (
        Op("pass_to", 0, 4, inputs=(2,), args=(1,)),
        Op("store", 0, 0, inputs=(2,), args=("weights", 0)),
        Op("shard", 0, 0, inputs=(2,), outputs=(3,), args=(0, 2)),
        Op("set_final_weight", 0, 0, layer=0, inputs=(2,)),
    ):

        async def schedule(model: Model) -> None:
            await model.allgather(shard(model), 0)

        def early(ops: list[Op], op: Op = op) -> list[Op]:
            at = nth(ops, "await")
            return [*ops[:at], op, *ops[at:]]

        error = referee(edited(run(schedule, 1, 4, 4, setting=OVERLAP).trace, early)).error
        Refused("still pending").require(error)


def test_an_overlapped_trace_in_costs_without_overlap() -> None:
    error = referee(replace(FSDP, setting=Setting())).error
    assert isinstance(error, TraceError)
    Refused("other ticks").require(error)


def test_a_blocking_trace_in_costs_with_overlap() -> None:
    async def schedule(model: Model) -> None:
        await model.allgather(shard(model), 0)

    free = replace(STEP_COSTS["overlap"], name="blocking", overlap=False)
    trace = run(schedule, 1, 4, 4, setting=Setting(free)).trace
    Refused("never awaited").require(referee(replace(trace, setting=OVERLAP)).error)


# === Chains: a call that is given the handle of another runs after it ===


MESH = {"dp": 2, "tp": 2}
GROUPS = Setting(STEP_COSTS["overlap"], mesh=MESH)
STREAMS = Setting(replace(STEP_COSTS["overlap"], name="a lane for each group", lanes="group"), mesh=MESH)
HOST = Setting(replace(COSTS["copies"], name="small", length=256))


async def hybrid(model: Model) -> None:
    """A gradient is scattered in tp, the shard summed in dp, and the updated shard gathered in tp: one chain."""
    place = model.index("tp")
    weight, state = model.load_weights(0)
    part, part_state = weight.shard(place, 2), state.shard(place, 2)
    inp = model.get_activation([model.rank])
    grad, _ = model.backward(0, inp, model.loss(model.forward(0, inp, weight)), weight)
    scattered = model.scatterreduce(grad, 0, group="tp")
    summed = model.allreduce(scattered, 0, group="dp")
    model.forward(0, inp, weight)
    new, _ = model.update(0, await summed, part, part_state)
    await scattered
    model.set_final_weight(0, new)


async def through_the_host(model: Model) -> None:
    """A weight's shard is fetched, gathered, and the whole parked again: three lanes, one chain."""
    parked, _ = model.load_weights(0, model.rank, 2, tier="host")
    fetched = model.fetch(parked)
    gathered = model.allgather(fetched, 0)
    whole = model.offload(gathered)
    weight = await gathered
    await whole
    await fetched
    model.set_output(model.forward(0, model.get_activation([model.rank]), weight))


async def there_and_back(model: Model) -> None:
    """Tokens go to their experts and back and out again, each call behind the one before."""
    out = model.dispatch(model.get_activation([model.rank]), 0)
    back = model.collect(out, 0, [model.rank])
    again = model.dispatch(back, 0)
    weight, state = model.load_weights(0, model.rank, 2)
    tokens = await again
    done = await model.collect(model.forward(0, tokens, weight), 1, [model.rank])
    grad = await model.dispatch(model.loss(done), 0)
    new, _ = model.backward(0, tokens, grad, weight)
    await out
    await back
    model.set_final_weight(0, model.update(0, new, weight, state)[0])


CHAINS: dict[str, tuple[Any, tuple[int, int, int], Setting]] = {
    "groups": (hybrid, (1, 4, 4), GROUPS),
    "groups, a lane each": (hybrid, (1, 4, 4), STREAMS),
    "tiers": (through_the_host, (1, 2, 2), replace(HOST, task="infer")),
    "experts": (there_and_back, (1, 2, 2), Setting("experts", layer="experts")),
}


def trace_of(name: str) -> Trace:
    schedule, size, setting = CHAINS[name]
    return finished(schedule, *size, setting=setting).trace


@pytest.mark.parametrize("name", CHAINS)
def test_a_chain_is_right_and_the_same_for_every_order_of_starting_ranks(name: str) -> None:
    schedule, size, setting = CHAINS[name]
    trace = trace_of(name)
    assert referee(trace).error is None
    for order in itertools.permutations(range(size[2])):
        assert run(schedule, *size, order, setting=setting).trace == trace
    if name != "tiers":  # the plain lines of `retimed` know no copies
        assert retimed(trace) == trace


@pytest.mark.parametrize("name", CHAINS)
def test_each_call_of_a_chain_starts_when_the_one_before_has_ended(name: str) -> None:
    trace = trace_of(name)
    for ops in trace.ranks:
        maker = {number: op for op in ops if op.name != "await" for number in op.outputs}
        awaited = {op.args[0]: i for i, op in enumerate(ops) if op.name == "await"}
        links = [
            (maker[number], op)
            for i, op in enumerate(ops)
            if i in awaited
            for number in op.inputs
            if ops.index(maker[number]) in awaited and i < awaited[ops.index(maker[number])]
        ]
        assert links
        assert all(before.end <= after.start for before, after in links)


def test_an_awaited_handle_can_still_be_brought_and_one_handle_to_two_calls() -> None:
    async def schedule(model: Model) -> None:
        first = model.allreduce(model.fake_grad(0, []), 0)
        left, right = model.allreduce(first, 0), model.allreduce(first, 0)
        assert await first == await left == await right
        assert await model.allreduce(first, 0) == model.fake_grad(0, [])

    outcome = finished(schedule, 1, 2, 2, setting=Setting(STEP_COSTS["overlap"]))
    assert [(op.start, op.end) for op in outcome.trace.events(0)] == [(0, 5), (5, 10), (10, 15), (15, 20)]
    Refused("no final weight").require(referee(outcome.trace).error)


# --- Refusals ---

refused_chains = Refusals(GROUPS)


@refused_chains(Refused("never awaited", place="the end", call="scatterreduce(layer=0) in the group of ranks 0, 1"))
async def only_the_last_is_awaited(model: Model) -> None:
    scattered = model.scatterreduce(zero(model), 0, group="tp")
    await model.allreduce(scattered, 0, group="dp")


@refused_chains(
    Refused(
        "wrong kind for use", kind="a weight gradient", value="the weight of layer 0, unsharded (all 4 shards), step 0"
    )
)
async def what_does_not_fit(model: Model) -> None:
    gathered = model.allgather(model.load_weights(0, model.rank, 4)[0], 0)
    await model.scatterreduce(gathered, 0, group="tp")
    await gathered


@refused_chains(Refused("complete sum"), setting=Setting(STEP_COSTS["overlap"], layer="block"))
async def a_sum_of_a_sum(model: Model) -> None:
    weight = model.load_weights(0, model.rank, 4)[0]
    summed = model.allreduce(model.forward(0, model.get_activation([0]), weight), 1)
    await model.allreduce(summed, 1)
    await summed


@refused_chains(
    Refused(
        "nobody can move",
        waits={
            0: "await allreduce(layer=0) in the group of ranks 0, 1",
            1: "await allreduce(layer=0) in the group of ranks 1, 3",
            2: "await allreduce(layer=0) in the group of ranks 0, 2",
            3: "await allreduce(layer=0) in the group of ranks 2, 3",
        },
        of={0: (0,), 1: (1,), 2: (2,), 3: (3,)},
        cycle=[(0, 0)],
    ),
    setting=STREAMS,
)
async def chains_in_a_cycle(model: Model) -> None:
    first, second = ("dp", "tp") if model.rank in (0, 3) else ("tp", "dp")
    one = model.allreduce(zero(model), 0, group=first)
    await model.allreduce(one, 0, group=second)
    await one


@refused_chains(Refused("cannot send"))
async def a_message_of_a_handle(model: Model) -> None:
    await model.pass_to((model.rank + 1) % 4, model.allreduce(zero(model), 0))


@refused_chains(Refused("parked already"), setting=HOST)
async def what_is_parked_is_parked_again(model: Model) -> None:
    parked = model.offload(model.get_activation([0]))
    await model.offload(parked)
    await parked


@refused_chains(
    Refused("wrong kind for use", kind="a parked value", value="the input activation of layer 0, batch 0 of 4"),
    setting=replace(HOST, layer="block"),
)
async def what_is_gathered_is_fetched(model: Model) -> None:
    gathered = model.allgather(model.get_activation([0]).shard(model.rank, 4), 0)
    await model.fetch(gathered)
    await gathered


@pytest.mark.parametrize("name", refused_chains)
def test_a_chain_that_cannot_be_is_refused(name: str) -> None:
    schedule, setting, expected = refused_chains[name]
    expected.require(refusal(schedule, 1, 4, 4, setting))


def test_more_than_fits_on_the_host_is_refused_at_the_end() -> None:
    """What a chained copy makes is known late: the call is let through, and the referee counts."""
    costs = replace(HOST.costs, tiers={"host": Tier(10, 10, 262_144)})

    def parks(times: int) -> Trace:
        async def schedule(model: Model) -> None:
            gathered = model.allgather(model.load_weights(0, model.rank, 2)[0], 0)
            handles = [model.offload(gathered) for _ in range(times)]
            for key, handle in enumerate(handles):
                model.parked[key] = await handle
            model.set_output(model.forward(0, model.get_activation([model.rank]), await gathered))

        return finished(schedule, 1, 2, 2, setting=Setting(costs, task="infer")).trace

    assert referee(parks(1)).error is None
    Refused("tier full", memory=524_288, tier="host", capacity=262_144).require(referee(parks(2)).error)


# --- Forged traces ---


def with_what_the_first_brought(ops: list[Op]) -> list[Op]:
    return with_columns("allreduce", inputs=ops[nth(ops, "scatterreduce")].inputs)(ops)


def with_its_own_result(ops: list[Op]) -> list[Op]:
    return with_columns("allreduce", inputs=ops[nth(ops, "allreduce")].outputs)(ops)


def the_second_first(ops: list[Op]) -> list[Op]:
    i, k = nth(ops, "scatterreduce"), nth(ops, "allreduce")
    ops[i], ops[k] = ops[k], ops[i]
    return ops


def used_in_between(ops: list[Op]) -> list[Op]:
    i = nth(ops, "allreduce")
    store = Op("store", ops[i - 2].end, ops[i - 2].end, inputs=ops[i - 1].outputs, args=("grad_weights", 0))
    at_await = nth(ops, "forward", 1)
    return [*ops[:at_await], store, *ops[at_await:]]


@pytest.mark.parametrize(
    ("edit", "expected"),
    [
        (without_an_await, Refused("never awaited")),
        (with_what_the_first_brought, Refused("other end", inputs=[7], call="allreduce(layer=0)")),
        (with_its_own_result, Refused("value not made")),
        (the_second_first, Refused("value not made")),
        (used_in_between, Refused("still pending")),
        (with_columns("allreduce", start=20, end=25), Refused("other ticks")),
        (with_columns("allreduce", layer=1), Refused("other layer", layer=0)),
        (with_columns("allreduce", outputs=()), Refused("other message", count=1)),
        (with_columns("await", 0, inputs=()), Refused("other end")),
        (with_columns("await", 1, end=99), Refused("other end")),
    ],
)
def test_a_forged_chain_is_refused(edit: Any, expected: Refused) -> None:
    expected.require(referee(edited(trace_of("groups"), edit)).error)


def test_a_chain_may_be_awaited_in_any_order() -> None:
    """The figures are those of the last await."""

    def swapped(ops: list[Op]) -> list[Op]:
        one, two = nth(ops, "await", 0), nth(ops, "await", 1)
        early = ops[one + 1 : two]
        return [*ops[:one], ops[two], ops[one], *early, *ops[two + 1 :]]

    report, before = referee(retimed(edited(trace_of("groups"), swapped))), referee(trace_of("groups"))
    assert report.error is None
    assert report.makespan == before.makespan


def test_weights_that_were_loaded_to_the_host_can_be_trained() -> None:
    """The notes on memory follow them through the fetch and its await."""

    async def schedule(model: Model) -> None:
        parked, parked_state = model.load_weights(0, tier="host")
        weight = await model.fetch(parked)
        inp = model.get_activation([0])
        grad, _ = model.backward(0, inp, model.loss(model.forward(0, inp, weight)), weight)
        model.weights[0], model.opt_states[0] = model.update(0, grad, weight, await model.fetch(parked_state))
        model.set_final_weight(0, model.weights[0])

    for overlap in (False, True):
        setting = Setting(replace(HOST.costs, overlap=overlap))
        report = referee(run(schedule, 1, 1, 1, setting=setting).trace)
        assert report.error is None
        assert not any(note.about == "reload" for note in report.notes)


def test_a_parked_value_of_another_rank_is_refused() -> None:
    shelf: dict[int, Any] = {}

    async def thief(model: Model) -> None:
        shelf[model.rank] = await model.offload(model.get_activation([model.rank]))
        if model.rank:
            await model.fetch(shelf[0])

    for overlap in (False, True):
        error = run(thief, 1, 2, 2, setting=Setting(replace(HOST.costs, overlap=overlap))).error
        assert isinstance(error, RuleError)
        Refused("value of another rank", place="rank 1", rank=0).require(error)


def test_a_group_in_another_order_is_the_same_group() -> None:
    async def schedule(model: Model) -> None:
        pair = model.axis("tp")
        await model.allreduce(zero(model), 0, group=pair if model.rank % 2 else pair[::-1])

    traces = [
        run(schedule, 1, 4, 4, setting=replace(GROUPS, costs=COSTS[name])).trace for name in ("classic", "overlap")
    ]
    for trace in traces:
        assert [op.args for op in trace.events(0)] == [((0, 1),)]
        assert [op.args for op in trace.events(3)] == [((2, 3),)]


@pytest.mark.parametrize("total", [3, 5])
def test_a_cut_that_does_not_divide_is_refused(total: int) -> None:
    """Half of a weight does not hold the third of it that the rank asks for."""

    def schedule(model: Model) -> None:
        model.load_weights(0, model.rank % 2, 2)[0].shard(model.rank // 2, total)

    expected = Refused("shard not held", place="rank 1", value="weight of layer 0, shard 1 of 2, step 0", i=0, n=total)
    expected.require(refusal(schedule, 1, 4, 4, GROUPS))
