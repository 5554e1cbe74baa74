"""Groups of ranks: axes of a mesh, collectives of some ranks only, cuts of what is cut already."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
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
    Trace,
    TraceError,
    WeightGrad,
    referee,
    run,
    trace_from_json,
    trace_to_json,
)
from lib.ledger.algebra import coarsest
from lib.ledger.trace import Op
from tests.support import finished, refusal
from tests.support.examples import examples
from tests.support.refusals import Refusals, Refused
from tests.support.schedules.groups import hybrid_shard, hybrid_shard_keeping_the_last
from tests.support.step_costs import STEP_COSTS

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


@refused(Refused("scatter of shards", shards="shard 0 of 2"))
async def a_scatter_of_a_shard_over_the_world(model: Model) -> None:
    await model.scatterreduce(zero(model).shard(0, 2), 0, group=("dp", "tp"))


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


def both_ways(trace: Trace) -> None:
    assert trace_from_json(trace_to_json(trace)) == trace


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
    both_ways(outcome.trace)


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
    both_ways(outcome.trace)


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
