"""Collectives of groups and of roots: refusals, costs, memory, traffic and forged traces."""

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib import (
    COLLECTIVES,
    DeadlockError,
    Dist,
    MismatchError,
    Model,
    PuzzleError,
    RuleError,
    Setting,
    Size,
    TraceError,
    WeightGrad,
    referee,
    run,
    trace_from_json,
    trace_to_json,
)
from lib.engine.replay.replay import replay
from lib.ledger.algebra import coarsest
from lib.ledger.costs import CLASSIC
from lib.ledger.trace import Op
from lib.pipelines.bounds import time_bound
from tests.screens.texts import approved
from tests.support import finished, refusal
from tests.support.examples import examples
from tests.support.refusals import Refusals, Refused
from tests.support.schedules.groups import hybrid_shard, hybrid_shard_keeping_the_last
from tests.support.schedules.rooted import COSTS_WITH_ROOTS, clipped, owned, shared_head
from tests.support.step_costs import STEP_COSTS

# === Groups of ranks: axes of a mesh, collectives of some ranks, cuts of cuts ===


SQUARE = Setting(mesh=(("dp", 2), ("tp", 2)))
ISLANDS = Setting(STEP_COSTS["islands"], mesh=(("replica", 2), ("shard", 4)))

meshes = st.lists(st.integers(1, 4), min_size=1, max_size=4)


# --- Meshes ---


@examples(50)
@given(meshes)
def test_the_last_axis_changes_fastest(lengths: list[int]) -> None:
    places = list(product(*map(range, lengths)))
    names = [f"axis {n}" for n in range(len(lengths))]
    dist = Dist(len(places), mesh=dict(zip(names, lengths)))

    async def look() -> None:
        for rank, place in enumerate(places):
            model = Model(rank, dist)
            assert tuple(model.index(name) for name in names) == place
            for n, name in enumerate(names):
                alike = [other for other, p in enumerate(places) if p[:n] + p[n + 1 :] == place[:n] + place[n + 1 :]]
                assert model.axis(name) == tuple(alike)

    import asyncio

    asyncio.run(look())


@pytest.mark.parametrize(
    ("mesh", "expected"),
    [
        ({"dp": 3}, Refused("other number of ranks", product="3 ranks", ranks=4)),
        ({"dp": 2, "tp": 3}, Refused("other number of ranks", product="6 ranks", ranks=4)),
        ({"dp": 0}, Refused("too small", least=1)),
        ({"": 4}, Refused("axes share a name", names=[""])),
        ({4: 1}, Refused("axes share a name", names=[4])),
        ("dp", Refused("no mesh lengths", got="dp")),
        (4, Refused("no mesh lengths", got=4)),
        ((("dp", 2), ("dp", 2)), Refused("axes share a name", names=["dp", "dp"])),
    ],
)
def test_a_mesh_that_cannot_be(mesh: Any, expected: Refused) -> None:
    with expected:
        Dist(4, mesh=mesh)


# --- Refusals ---

refused = Refusals(SQUARE)


def zero(model: Model, layer: int = 0) -> WeightGrad:
    return model.fake_grad(layer, [])


@refused(Refused("not in this group", place="rank 0", group="of ranks 2, 3"))
async def a_group_without_oneself(model: Model) -> None:
    await model.allreduce(zero(model), 0, group=[2, 3])


@refused(Refused("no such axis", axis="dq", axes="dp, tp"))
async def an_axis_that_does_not_exist(model: Model) -> None:
    await model.allreduce(zero(model), 0, group="dq")


@refused(Refused("no such axis", place="index()", axis="pp", axes="dp, tp"))
def a_place_on_an_axis_that_does_not_exist(model: Model) -> None:
    model.index("pp")


@refused(Refused("no such axis", place="axis()", axis="pp", axes="dp, tp"))
def the_ranks_on_an_axis_that_does_not_exist(model: Model) -> None:
    model.axis("pp")


@refused(Refused("rank twice", ranks=[0, 0, 1]))
async def a_rank_twice(model: Model) -> None:
    await model.allreduce(zero(model), 0, group=[0, 0, 1])


@refused(Refused("axis twice"))
async def an_axis_twice(model: Model) -> None:
    await model.allreduce(zero(model), 0, group=("dp", "dp"))


@refused(Refused("does not exist", thing="rank", number=7))
async def a_rank_that_does_not_exist(model: Model) -> None:
    await model.allreduce(zero(model), 0, group=[0, 7])


@refused(Refused("no group"))
async def a_group_of_nobody(model: Model) -> None:
    await model.allreduce(zero(model), 0, group=[])


@refused(Refused("no group"))
async def a_group_that_is_a_number(model: Model) -> None:
    await model.allreduce(zero(model), 0, group=4)


@refused(Refused("no mesh"), setting=Setting())
async def a_group_where_there_is_no_mesh(model: Model) -> None:
    await model.allreduce(zero(model), 0, group=[0, 1])


@refused(Refused("no mesh"), setting=Setting())
def a_place_where_there_is_no_mesh(model: Model) -> None:
    model.index("dp")


@refused(
    Refused(
        "other calls",
        first="rank 0 in the group of ranks 0, 1 calls allreduce(layer=0)",
        other="rank 1 in the group of ranks 0, 1 calls allgather(layer=0)",
    )
)
async def different_collectives_in_a_group(model: Model) -> None:
    if model.index("tp") == 0:
        await model.allreduce(zero(model), 0, group="tp")
    else:
        await model.allgather(model.load_weights(0, 1, 2)[0], 0, group="tp")


@refused(
    Refused(
        "nobody can move",
        waits={0: "allreduce(layer=0) in the group of ranks 0, 2"},
        of={0: (2,)},
        absent={1: "has returned", 2: "has returned", 3: "has returned"},
    )
)
async def one_of_a_group_is_missing(model: Model) -> None:
    if model.rank != 2:
        await model.allreduce(zero(model), 0, group="dp")


@refused(
    Refused(
        "nobody can move",
        waits={
            0: "allreduce(layer=0) in the group of ranks 0, 1",
            1: "allreduce(layer=0) in the group of ranks 1, 3",
            2: "allreduce(layer=0) in the group of ranks 0, 2",
            3: "allreduce(layer=0) in the group of ranks 2, 3",
        },
        of={0: (1,), 1: (3,), 2: (0,), 3: (2,)},
        cycle=[(0, 1), (1, 3), (3, 2), (2, 0)],
    ),
)
async def groups_in_another_order(model: Model) -> None:
    order = ["tp", "dp"] if model.rank in (0, 3) else ["dp", "tp"]
    for axis in order:
        await model.allreduce(zero(model), 0, group=axis)


@refused(Refused("in both", thing="batch", number=0, both="both rank 1 and rank 3"))
async def a_batch_of_two_members(model: Model) -> None:
    weight, _ = model.load_weights(0)
    if model.index("tp"):
        inp = model.get_activation([0])
        grad, _ = model.backward(0, inp, model.loss(model.forward(0, inp, weight)), weight)
        await model.allreduce(grad, 0, group="dp")


@refused(Refused("scatter of several shards", shards="shards 0, 2 of 4"))
async def a_scatter_of_two_shards(model: Model) -> None:
    both = zero(model).shard(0, 4).combine(zero(model).shard(2, 4))
    await model.scatterreduce(both, 0, group="tp")


@pytest.mark.parametrize("name", refused)
def test_is_refused_in_words_that_help(name: str) -> None:
    schedule, setting, expected = refused[name]
    expected.require(refusal(schedule, 1, 4, 4, setting))


@pytest.mark.parametrize("name", ["different_collectives_in_a_group", "one_of_a_group_is_missing"])
def test_the_referee_says_what_the_run_says(name: str) -> None:
    schedule, setting, expected = refused[name]
    outcome = run(schedule, 1, 4, 4, setting=setting)
    rows = []
    for rank, ops in enumerate(outcome.trace.ranks):
        differ = name.startswith("different")
        group = (rank // 2 * 2, rank // 2 * 2 + 1) if differ else (0, 2)
        gathers = differ and rank % 2
        call = Op("allgather" if gathers else "allreduce", 0, 3, 0, inputs=(0,), outputs=(1 + gathers,), args=(group,))
        rows.append((*ops, call) if differ or rank == 0 else ops)
    error = referee(replace(outcome.trace, ranks=tuple(rows))).error
    assert isinstance(error, (MismatchError, DeadlockError))
    expected.require(error)


# --- Cuts of what is cut already ---


@examples(200)
@given(st.integers(1, 36).flatmap(lambda n: st.tuples(st.sets(st.integers(0, n - 1), min_size=1), st.just(n))))
def test_the_coarsest_count_says_the_same_and_no_smaller_one_does(held: tuple[set[int], int]) -> None:
    shards, total = frozenset(held[0]), held[1]
    fewer, count = coarsest(shards, total)
    block = total // count
    assert count * block == total
    assert {shard * block + n for shard in fewer for n in range(block)} == shards
    for other in range(1, count):
        if total % other == 0:
            size = total // other
            assert {shard // size * size + n for shard in shards for n in range(size)} != shards


async def cut_twice(model: Model) -> None:
    """A weight that is cut for tp, and again for dp, comes back whole; so does a gradient."""
    tp, dp = model.index("tp"), model.index("dp")
    cut, _ = model.load_weights(0, tp, 2)
    fine = cut.shard(tp * 2 + dp, 4)
    assert str(await model.allgather(fine, 0, group="dp")) == str(cut)
    whole = await model.allgather(await model.allgather(fine, 0, group="dp"), 0, group="tp")
    assert (whole.shards, whole.total) == (frozenset((0,)), 1)
    grad = await model.scatterreduce(zero(model), 0, group="tp")
    assert (grad.shards, grad.total) == (frozenset((tp,)), 2)
    grad = await model.scatterreduce(grad, 0, group="dp")
    assert (grad.shards, grad.total) == (frozenset((tp * 2 + dp,)), 4)
    row = await model.allgather(grad, 0, group="tp")
    assert (row.shards, row.total) == (frozenset((dp, dp + 2)), 4)  # nothing coarser says this
    alone = await model.allreduce(grad, 0, group=[model.rank])
    assert alone == grad


def test_nested_cuts_and_the_way_back() -> None:
    outcome = finished(cut_twice, 1, 4, 4, setting=SQUARE)
    for ops in outcome.trace.ranks:
        assert referee(outcome.trace).error is not None  # incomplete, and nothing else
        groups = [op.args for op in ops if op.name in ("allgather", "scatterreduce", "allreduce")]
        assert all(args and args[0] == tuple(sorted(args[0])) for args in groups)
    Refused("no final weight").require(referee(outcome.trace).error)


# --- What a group costs ---


@pytest.mark.parametrize(
    ("schedule", "timesteps", "peak"),
    [(hybrid_shard, 17.9, 1_441_792), (hybrid_shard_keeping_the_last, 17.6, 1_310_720)],
)
def test_hybrid_sharding(schedule: Any, timesteps: float, peak: int) -> None:
    for order in (range(8), reversed(range(8)), (3, 0, 7, 1, 6, 2, 5, 4)):
        outcome = run(schedule, 4, 8, 8, order, setting=ISLANDS)
        report = referee(outcome.trace)
        assert (report.error, report.timesteps, report.peak.memory) == (None, timesteps, peak)
        assert not any(note.costs_a_star for note in report.notes)
    gathers = 8 if schedule is hybrid_shard else 7
    weight = 512 * 512
    sent = gathers * 3 * weight // 4 + 4 * 3 * weight // 4 + 4 * 2 * 1 * (weight // 4) // 2
    assert {rank.bytes_sent for rank in report.ranks} == {4 * sent}


def test_the_world_is_no_group() -> None:
    async def schedule(model: Model, group: Any) -> None:
        await model.allreduce(zero(model), 0, group=group)

    traces = [
        run(lambda model, g=group: schedule(model, g), 1, 1, 4, setting=SQUARE).trace  # type: ignore[misc]
        for group in (None, ("dp", "tp"), ("tp", "dp"), [3, 1, 0, 2], range(4))
    ]
    assert {op.args for trace in traces for ops in trace.ranks for op in ops if op.name == "allreduce"} == {()}


# --- Forged traces ---


def forged(change: Callable[[int, Op], Op], setting: Setting = ISLANDS) -> PuzzleError | None:
    """What the referee says of the hybrid run when each of its collectives on each rank is changed."""
    trace = run(hybrid_shard, 4, 8, 8, setting=ISLANDS).trace
    ranks = [[change(r, op) if op.name in COLLECTIVES else op for op in ops] for r, ops in enumerate(trace.ranks)]
    return referee(replace(trace, ranks=tuple(map(tuple, ranks)), setting=setting)).error


def grouped(op: Op, group: Any) -> Op:
    return op._replace(args=(group,))


@pytest.mark.parametrize(
    ("group", "expected"),
    [
        (lambda rank: (4, 5, 6, 7), Refused("not in this group", group="of ranks 4-7")),
        (lambda rank: tuple(range(8)), Refused("no group")),
        (lambda rank: (1, 0, 2, 3), Refused("no group")),
        (lambda rank: (0, 0, 1), Refused("no group")),
        (lambda rank: (0, 9), Refused("no group")),
        (lambda rank: [0, 1], Refused("no group")),
        (lambda rank: None, Refused("default recorded")),
        (lambda rank: (rank,), Refused("weight not gathered")),
        (lambda rank: (0, 1) if rank < 2 else (2, 3) if rank < 4 else (rank,), Refused("weight not gathered")),
    ],
)
def test_a_group_that_no_run_writes(group: Any, expected: Refused) -> None:
    error = forged(lambda rank, op: grouped(op, group(rank)))
    expected.require(error)


def test_groups_in_a_trace_without_a_mesh() -> None:
    Refused("no mesh", error=RuleError).require(forged(lambda rank, op: op, replace(ISLANDS, mesh=())))


def test_a_mesh_of_other_ranks_in_a_trace() -> None:
    error = forged(lambda rank, op: op, replace(ISLANDS, mesh=(("dp", 3),)))
    assert error is not None
    Refused("other number of ranks", ranks=8).require(error)


@pytest.mark.parametrize("label", [0, "x", 1.0, True, (0,), ()])
def test_a_label_that_no_run_writes(label: Any) -> None:
    error = forged(lambda rank, op: op._replace(layer=0, args=(op.args[0], label)) if op.layer == 0 else op)
    assert isinstance(error, TraceError), error


def test_a_layer_that_is_not_that_of_the_value() -> None:
    error = forged(lambda rank, op: op._replace(layer=3 - (op.layer or 0)))
    Refused("other layer", error=TraceError, layer=0).require(error)


# --- Labels of collectives ---


async def labelled(model: Model) -> None:
    await model.allgather(model.load_weights(1, model.rank, model.RANKS)[0], 0)
    await model.allgather(model.load_weights(1, model.rank, model.RANKS)[0], -1)


def test_another_label_is_a_note() -> None:
    outcome = run(labelled, 2, 2, 2)
    (note,) = (note for note in referee(outcome.trace).notes if note.about == "label")
    assert not note.costs_a_star
    assert note.text.startswith("ranks 0, 1 called allgather(layer=1)")
    assert "layer 0, and 1" in note.text
    assert trace_from_json(trace_to_json(outcome.trace)) == outcome.trace


def test_ranks_that_mean_different_layers_by_one_label() -> None:
    async def schedule(model: Model) -> None:
        await model.allgather(model.load_weights(model.rank, model.rank, 2)[0], 0)

    expected = Refused("other calls", first="rank 0 calls allgather(layer=0)", other="rank 1 calls allgather(layer=1)")
    expected.require(run(schedule, 2, 2, 2).error)


def test_ranks_that_label_one_layer_differently() -> None:
    async def schedule(model: Model) -> None:
        await model.allgather(model.load_weights(1, model.rank, 2)[0], model.rank)

    outcome = finished(schedule, 2, 2, 2)
    assert "ranks" not in next(n.text for n in referee(outcome.trace).notes if n.about == "label")


# --- Tags ---

TAGGED = Setting(steps=2)  # any setting but the classic one


async def two_streams(model: Model) -> None:
    """Two streams from rank 0 to rank 1, which reads them in another order than they were sent in."""
    if model.rank == 0:
        await model.pass_to(1, "a", tag=1)
        await model.pass_to(1, "b", tag=2)
        await model.pass_to(1, "c")
        await model.pass_to(1, "d", tag=1)
    else:
        heard = [await model.receive(0, tag=2), await model.receive(), await model.receive(0, tag=1)]
        heard.append(await model.receive(0, tag=1))
        assert heard == ["b", "c", "a", "d"]


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_streams_with_tags_do_not_block_each_other(order: Any) -> None:
    outcome = finished(two_streams, 1, 1, 2, order, setting=TAGGED)
    Refused("no final weight").require(referee(outcome.trace).error)
    assert trace_from_json(trace_to_json(outcome.trace)) == outcome.trace


def test_tags_are_not_part_of_the_classic_game() -> None:
    Refused("classic tag", place="pass_to(1, tag=1)").require(refusal(two_streams, 1, 1, 2))


def test_a_trace_of_the_classic_game_has_no_tags() -> None:
    trace = replace(run(two_streams, 1, 1, 2, setting=TAGGED).trace, setting=Setting())
    Refused("classic tag").require(referee(trace).error)


def test_a_tag_without_a_rank() -> None:
    async def schedule(model: Model) -> None:
        await model.receive(tag=1)

    Refused("tag without source", tag=1).require(refusal(schedule, 1, 1, 2, TAGGED))


@pytest.mark.parametrize("tag", [-1, "x", 0.5])
def test_a_tag_that_is_no_number(tag: Any) -> None:
    async def schedule(model: Model) -> None:
        await model.pass_to(1 - model.rank, None, tag=tag)

    reason = "too small" if tag == -1 else "no whole number"
    Refused(reason, thing="tag").require(refusal(schedule, 1, 1, 2, TAGGED))


@pytest.mark.parametrize(
    ("tag", "expected"),
    [
        (0, Refused("default recorded")),
        (True, Refused("default recorded")),
        (None, Refused("default recorded")),
        (3, Refused("nobody can move", waits={0: "pass_to(1, tag=1)", 1: "receive(0, tag=2)"})),
    ],
)
def test_a_tag_that_no_run_writes(tag: Any, expected: Refused) -> None:
    trace = run(two_streams, 1, 1, 2, setting=TAGGED).trace
    ranks = [[op._replace(args=(op.args[0], tag)) if op.args[1:] == (2,) else op for op in ops] for ops in trace.ranks]
    changed = [ranks[0], list(trace.ranks[1])] if tag == 3 else ranks
    expected.require(referee(replace(trace, ranks=tuple(map(tuple, changed)))).error)


def test_a_deadlock_names_the_tag() -> None:
    async def schedule(model: Model) -> None:
        if model.rank:
            await model.receive(0, tag=2)

    Refused("nobody can move", waits={1: "receive(0, tag=2)"}, of={1: (0,)}, absent={0: "has returned"}).require(
        refusal(schedule, 1, 1, 2, TAGGED)
    )


def test_a_size_beside_a_mesh() -> None:
    with Refused("other number of ranks", ranks=4):
        run(hybrid_shard, *Size(4, 4, 4), setting=ISLANDS)


# === Broadcasts and reduces ===


OVERLAPPED = replace(COSTS_WITH_ROOTS, name="overlapped", overlap=True)
BY_SIZE = replace(
    OVERLAPPED,
    name="sizes",
    alpha={"broadcast": 3, "reduce": 2},
    beta=dict.fromkeys(("broadcast", "reduce"), Fraction(1, 2**16)),
)
RUNS: dict[str, tuple[Callable[[Model], Any], tuple[int, int, int], Setting]] = {
    "owned": (owned, (3, 3, 3), Setting(COSTS_WITH_ROOTS, steps=2)),
    "overlapped": (owned, (2, 4, 4), Setting(OVERLAPPED)),
    "by_size": (owned, (2, 3, 3), Setting(BY_SIZE)),
    "shared_head": (shared_head, (2, 4, 3), Setting(COSTS_WITH_ROOTS)),
    "clipped": (clipped, (3, 2, 3), Setting(COSTS_WITH_ROOTS, clip=True)),
}


def played(name: str) -> Any:
    schedule, size, setting = RUNS[name]
    return finished(schedule, *size, setting=setting).trace


# --- What is refused ---


async def wrong_giver(model: Model) -> None:
    await model.broadcast(model.load_weights(0)[0], 0, source=1 - model.rank)


async def no_giver(model: Model) -> None:
    await model.broadcast(None, 0)


async def no_part(model: Model) -> None:
    await model.reduce(None, 0)


async def outside(model: Model) -> None:
    if model.rank:
        await model.broadcast(model.load_weights(0)[0], 0, group=[1, 2])


async def no_rank(model: Model) -> None:
    await model.reduce(model.fake_grad(0, ()), 0, to="all")  # type: ignore[arg-type]


async def other_sources(model: Model) -> None:
    await model.broadcast(model.load_weights(0)[0], 0, source=model.rank)


async def other_layers(model: Model) -> None:
    await model.broadcast(model.load_weights(0)[0] if model.rank == 0 else None, model.rank)


async def other_calls(model: Model) -> None:
    grad = model.fake_grad(0, ())
    await (model.reduce(grad, 0) if model.rank else model.allreduce(grad, 0))


async def parked(model: Model) -> None:
    await model.broadcast(model.load_weights(0, tier="host")[0], 0, source=model.rank)


async def number(model: Model) -> None:
    await model.broadcast(7, 0, source=model.rank)


async def of_a_weight(model: Model) -> None:
    await model.reduce(model.load_weights(0)[0], 0)


REFUSED: dict[Callable[[Model], Any], Refused] = {
    wrong_giver: Refused("value not from root", rank=0, root=1),
    no_giver: Refused("no value given", rank=0, name="broadcast"),
    no_part: Refused("no value given", rank=0, name="reduce"),
    outside: Refused("root outside group", root=0, group="1, 2"),
    no_rank: Refused("no whole number", thing="to", got="'all'"),
    other_sources: Refused(
        "other calls",
        first="rank 0 calls broadcast(layer=0, source=0)",
        other="rank 1 calls broadcast(layer=0, source=1)",
    ),
    other_layers: Refused(
        "other calls",
        first="rank 0 calls broadcast(layer=0, source=0)",
        other="rank 1 calls broadcast(layer=1, source=0)",
    ),
    other_calls: Refused(
        "other calls", first="rank 0 calls allreduce(layer=0)", other="rank 1 calls reduce(layer=0, to=0)"
    ),
    parked: Refused("parked value sent"),
    number: Refused("broadcast of no value", value="int 7"),
    of_a_weight: Refused("wrong kind for use", use="the value to reduce", kind="a weight gradient"),
}


@pytest.mark.parametrize("costs", [COSTS_WITH_ROOTS, OVERLAPPED])
@pytest.mark.parametrize("wrong", REFUSED)
def test_what_cannot_meet_is_refused_in_words(wrong: Callable[[Model], Any], costs: Any) -> None:
    costs = replace(costs, tiers=Setting("copies").costs.tiers)
    setting = Setting(costs, mesh={"dp": 3})
    REFUSED[wrong].require(run(wrong, 2, 3, 3, setting=setting).error)


def test_without_a_price_there_is_none() -> None:
    Refused("no price", operation="broadcast", costs="classic").require(run(no_giver, 1, 1, 2).error)


async def brought_to_another_call(model: Model) -> None:
    handle = model.broadcast(model.fake_grad(0, ()) if model.rank == 0 else None, 0)
    await model.allreduce(handle, 0)


def test_the_pending_result_of_a_broadcast_goes_to_no_other_call() -> None:
    expected = Refused("result still pending")
    expected.require(run(brought_to_another_call, 1, 2, 2, setting=Setting(OVERLAPPED)).error)

    async def in_turn(model: Model) -> None:
        grad = await model.broadcast(model.fake_grad(0, ()) if model.rank == 0 else None, 0)
        await model.allreduce(grad, 0)

    trace = run(in_turn, 1, 2, 2, setting=Setting(OVERLAPPED)).trace
    ranks = []
    for ops in trace.ranks:
        (at,) = [
            i
            for i, op in enumerate(ops)
            if op.name == "await" and op.args == (ops.index(next(o for o in ops if o.name == "broadcast")),)
        ]
        ranks.append((*ops[:at], *ops[at + 1 :]))
    expected.require(referee(replace(trace, ranks=tuple(ranks))).error)


# --- What it takes ---


def test_the_time_is_from_when_the_last_rank_joins() -> None:
    trace = played("owned")
    report = referee(trace)
    # 3 forwards and 3 backwards; a reduce (1), an update (5), a broadcast (2) for each of 3 layers; twice
    assert report.makespan == 2 * (3 + 3 + 3 * 0.8)
    approved("rooted", "the time is from when the last rank joins", report.family)


def test_by_size_a_chain_has_a_hop_less_than_ranks_and_one_value() -> None:
    trace = played("by_size")
    spans = {op.name: op.end - op.start for op in trace.ranks[0]}
    assert spans["broadcast"] == 2 + 2 * 3 + CLASSIC.weight // 2**16
    assert spans["reduce"] == 1 + 2 * 2 + CLASSIC.weight // 2**16


def test_all_ranks_but_one_send_the_whole() -> None:
    report = referee(played("overlapped"))  # layers 0 and 1, of ranks 0 and 1 of 4
    sent = [rank.bytes_sent // 4 for rank in report.ranks]
    # A reduce to rank 0 starts at rank 1 and a broadcast of rank 0 ends at rank 3; one place further for rank 1.
    assert sent == [w * CLASSIC.weight for w in (0 + 1 + 1 + 0, 1 + 1 + 0 + 1, 1 + 1 + 1 + 1, 1 + 0 + 1 + 1)]
    assert sum(sent) == 4 * 3 * CLASSIC.weight


def test_it_holds_what_it_gives_until_the_call_and_what_it_gets_from_then_on() -> None:
    async def schedule(model: Model) -> None:
        weight = model.load_weights(0)[0] if model.rank == 0 else None
        model.weights[0] = await model.broadcast(weight, 0)
        await model.reduce(model.fake_grad(0, ()), 0, to=1)
        await model.reduce(model.fake_grad(0, ()), 0, to=1)

    report = referee(run(schedule, 1, 2, 2, setting=Setting(COSTS_WITH_ROOTS)).trace)
    assert [[m // CLASSIC.weight for m in rank.memory] for rank in report.ranks] == [[1, 2, 2, 1], [0, 2, 2, 1]]


# --- Lower bounds ---


async def summed_in_two(model: Model) -> None:
    """Tensor parallelism in which a reduce and a broadcast stand for each all-reduce."""

    async def total(part: Any, layer: int) -> Any:
        return await model.broadcast(await model.reduce(part, layer), layer)

    inputs = [model.get_activation([0])]
    held = [model.load_weights(layer, model.rank, model.RANKS) for layer in range(model.LAYERS)]
    for layer, (weight, _) in enumerate(held):
        inputs.append(await total(model.forward(layer, inputs[-1], weight), layer + 1))
    grad = model.loss(inputs.pop())
    for layer in reversed(range(model.LAYERS)):
        own, part = model.backward(layer, inputs.pop(), grad, held[layer][0])
        if layer:
            grad = await total(part, layer - 1)
        model.set_final_weight(layer, model.update(layer, own, *held[layer])[0])


def test_the_bound_knows_that_a_reduce_and_a_broadcast_sum() -> None:
    dear = {**COSTS_WITH_ROOTS.ticks, "allreduce": 90, "scatterreduce": 90, "allgather": 90, "pass_to": 90}
    setting = Setting(replace(COSTS_WITH_ROOTS, ticks=dear), layer="block")
    trace = run(summed_in_two, 4, 1, 4, setting=setting).trace
    report = referee(trace)
    assert report.error is None, report.error
    assert report.family == "tensor parallelism"
    assert replay(trace, small=True).passed
    # 8 quarters of a product (0.3), 7 sums (0.3), and 3 updates (0.5) before the last
    assert time_bound(Size(4, 1, 4), setting).least <= report.timesteps == 6
