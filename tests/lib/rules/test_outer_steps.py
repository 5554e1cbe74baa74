"""Outer steps: what is refused, how long they take, what they hold, and what they compute."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from itertools import permutations
from typing import Any

import pytest

import drawing
from lib import (
    COSTS,
    Costs,
    Delta,
    Model,
    OuterState,
    RuleError,
    Setting,
    Size,
    TraceError,
    Weight,
    referee,
    run,
    trace_from_json,
    trace_to_json,
)
from lib.bounds import memory_bound, time_bound
from lib.engine.replay.replay import replay
from lib.game.tiers import Tier
from solutions.streaming_diloco import streaming_diloco
from tests.catalog.lessons.families.outer_steps import all_together, one_by_one, outer_steps
from tests.support import finished
from tests.support.mutants import zeroed
from tests.support.programs.outer import Program

TICKS = {**COSTS["outer_steps"].ticks, "backward_input": 10, "backward_weight": 10}


def setting(steps: int = 4, outer: int = 2, late: int = 1, **more: Any) -> Setting:
    return Setting("outer_steps", steps=steps, task="outer", outer=outer, late=late, **more)


class Rank:
    """One rank that trains copies of all layers with its own microbatch: weights by layer and step."""

    def __init__(self, model: Model) -> None:
        self.model, self.layers = model, range(model.LAYERS)
        loaded = [model.load_weights(layer, outer=True) for layer in self.layers]
        self.agreed = [weight for weight, _, _ in loaded]
        self.states = [state for _, state, _ in loaded]
        self.outer = [outer for _, _, outer in loaded]
        self.copies = [[weight] for weight in self.agreed]
        self.grads: dict[tuple[int, int], Any] = {}

    def train(self, step: int, batches: Any = None, versions: dict[int, Any] | None = None) -> None:
        """A step with the last copies, or with other weights in some layers."""
        model, inputs = self.model, [self.model.get_activation(batches or [self.model.rank], step)]
        used = [(versions or {}).get(layer, self.copies[layer][-1]) for layer in self.layers]
        for layer in self.layers:
            inputs.append(model.forward(layer, inputs[-1], used[layer]))
        grad = model.loss(inputs.pop())
        for layer in reversed(self.layers):
            new, grad = model.backward(layer, inputs.pop(), grad, used[layer])
            self.grads[layer, step] = new
            weight, self.states[layer] = model.update(layer, new, used[layer], self.states[layer])
            self.copies[layer].append(weight)

    def change(self, layer: int = 0, step: int = -1) -> Any:
        return self.model.delta(layer, self.agreed[layer], self.copies[layer][step])

    async def average(self, layer: int = 0) -> Weight:
        total = await self.model.allreduce(self.change(layer), layer)
        new = self.model.outer_update(layer, self.agreed[layer], total, self.outer[layer])
        self.agreed[layer], self.outer[layer] = new
        return self.agreed[layer]


async def unsummed(rank: Rank) -> None:
    rank.train(0)
    rank.model.outer_update(0, rank.agreed[0], rank.change(), rank.outer[0])


async def summed_twice(rank: Rank) -> None:
    rank.train(0)
    total = await rank.model.allreduce(rank.change(), 0)
    await rank.model.allreduce(total, 0)


async def updated_twice(rank: Rank) -> None:
    rank.train(0)
    total = await rank.model.allreduce(rank.change(), 0)
    agreed, state = rank.model.outer_update(0, rank.agreed[0], total, rank.outer[0])
    rank.model.outer_update(0, agreed, total, state)


async def another_state(rank: Rank) -> None:
    rank.train(0)
    total, old = await rank.model.allreduce(rank.change(), 0), rank.agreed[0]
    _, state = rank.model.outer_update(0, old, total, rank.outer[0])
    rank.model.outer_update(0, old, total, state)


async def too_late(rank: Rank) -> None:
    rank.train(0)
    agreed = await rank.average()
    rank.train(1)
    rank.train(2)
    rank.model.merge(0, rank.copies[0][-1], agreed)


async def not_there_yet(rank: Rank) -> None:
    rank.train(0)
    rank.train(1)
    agreed = await rank.average()
    rank.model.merge(0, rank.copies[0][1], agreed)


async def merged_twice(rank: Rank) -> None:
    rank.train(0)
    agreed = await rank.average()
    rank.model.merge(0, rank.model.merge(0, rank.copies[0][-1], agreed), agreed)


async def old_agreed(rank: Rank) -> None:
    rank.train(0)
    agreed = await rank.average()
    rank.train(1)
    rank.model.forward(0, rank.model.get_activation([rank.model.rank], 2), agreed)


async def old_agreed_updated(rank: Rank) -> None:
    loaded = rank.states[0]
    rank.train(0)
    rank.train(1)
    rank.model.update(0, rank.grads[0, 1], rank.agreed[0], loaded)


async def not_merged(rank: Rank) -> None:
    rank.train(0)
    await rank.average()
    rank.train(1)
    rank.change()


async def too_long(rank: Rank) -> None:
    for step in range(3):
        rank.train(step)
    rank.change()


async def untrained(rank: Rank) -> None:
    rank.change()


async def from_a_copy(rank: Rank) -> None:
    rank.train(0)
    rank.model.delta(0, rank.copies[0][-1], rank.copies[0][-1])


async def another_layer(rank: Rank) -> None:
    rank.train(0)
    rank.model.delta(0, rank.agreed[0], rank.copies[1][-1])


async def other_shards(rank: Rank) -> None:
    rank.train(0)
    rank.model.delta(0, rank.agreed[0].shard(0, 2), rank.copies[0][-1])


async def other_rounds(rank: Rank) -> None:
    rank.train(0)
    agreed = await rank.average()
    rank.copies[0].append(rank.model.merge(0, rank.copies[0][-1], agreed))
    first = rank.model.rank == 0
    rank.train(1, None, {} if first else {0: rank.copies[0][-2]})
    before = agreed if first else rank.model.load_weights(0)[0]
    await rank.model.allreduce(rank.model.delta(0, before, rank.copies[0][-1]), 0)


async def weights_averaged(rank: Rank) -> None:
    rank.train(0)
    await rank.model.allreduce(rank.copies[0][-1], 0)


async def another_replica(rank: Rank) -> None:
    rank.train(0)
    if rank.model.rank == 0:
        await rank.model.pass_to(1, rank.copies[0][-1])
    else:
        other = await rank.model.receive(0)
        out = rank.model.forward(0, rank.model.get_activation([0], 1), other)
        rank.model.forward(1, out, rank.copies[1][-1])


async def other_batches(rank: Rank) -> None:
    rank.train(0)
    rank.train(1, [1 - rank.model.rank])


async def final_copy(rank: Rank) -> None:
    rank.train(0)
    rank.model.set_final_weight(0, rank.copies[0][-1])


async def early_final(rank: Rank) -> None:
    rank.train(0)
    rank.model.set_final_weight(0, await rank.average())


async def early_copy(rank: Rank) -> None:
    rank.train(0)
    rank.model.set_final_copy(0, rank.copies[0][-1])


async def agreed_as_copy(rank: Rank) -> None:
    rank.model.set_final_copy(0, rank.agreed[0])


async def zero_gradient(rank: Rank) -> None:
    rank.model.update(0, rank.model.fake_grad(0, []), rank.agreed[0], rank.states[0])


async def wrong_kinds(rank: Rank) -> None:
    rank.model.outer_update(0, rank.agreed[0], rank.outer[0], rank.outer[0])  # type: ignore[arg-type]


REFUSED: dict[Callable[[Rank], Any], str] = {
    unsummed: "the copies of {0} of 2 are in this delta; all-reduce it first",
    summed_twice: "batch 0 is in both rank 0 and rank 1; sum each copy once",
    updated_twice: "this delta starts from round 0 and the weight is of round 1",
    another_state: "pass the outer state that belongs to this weight",
    too_late: "this average is 2 steps late, and this game allows 1",
    not_there_yet: "the agreed weight is of step 2 and the copy of step 1; train it first",
    merged_twice: "merge a copy with the agreed weight of the round after its own",
    old_agreed: "the agreed weight is of step 1 and the copy of step 2; merge them",
    old_agreed_updated: "the agreed weight is of step 0 and the copy of step 1; merge them",
    not_merged: "the copy is of round 0 and the agreed weight of round 1; merge the copy with each agreed weight",
    too_long: "this copy has made 3 steps since the agreed weight, and a round has at most 2; take the change earlier",
    untrained: "which no replica has trained; after is a copy, from update",
    from_a_copy: "before is an agreed weight: as loaded, or from outer_update",
    another_layer: "delta(0, ...) needs a value of layer 0",
    other_shards: "the weight is shard 0 of 2, and this is the weight of layer 0, unsharded, step 1",
    other_rounds: "sum copies of one round",
    weights_averaged: "the value to reduce must be a weight gradient",
    another_replica: "belong to different replicas; a replica uses its own copies",
    other_batches: "this replica trains with batch 0, but the gradient covers batch 1 of 2",
    final_copy: "declare the agreed weight, and the copy with set_final_copy",
    early_final: "this is the agreed weight of step 1; the last round ends after step 2",
    early_copy: "not the copy after all 4 steps; pass what update returned",
    agreed_as_copy: "which no replica has trained; copy is a copy, from update",
    zero_gradient: "this gradient has no batches; compute one",
    wrong_kinds: "delta must be an outer gradient; got the outer optimizer state of layer 0",
}


def refused(wrong: Callable[[Rank], Any], game: Setting) -> str:
    async def schedule(model: Model) -> None:
        await wrong(Rank(model))

    return str(run(schedule, 2, 2, 2, setting=game).error)


@pytest.mark.parametrize("wrong", REFUSED)
def test_what_an_outer_step_cannot_be_is_refused_in_words(wrong: Callable[[Rank], Any]) -> None:
    ticks = {**TICKS, "pass_to": 0, "receive": 0}
    costs = replace(COSTS["outer_steps"], name="messages", ticks=ticks)
    assert REFUSED[wrong] in refused(wrong, Setting(costs, steps=4, task="outer", outer=2, late=1))


CALLS: dict[str, Callable[[Model, Any], Any]] = {
    "outer=True": lambda model, weight: model.load_weights(0, outer=True),
    "delta": lambda model, weight: model.delta(0, weight, weight),
    "merge": lambda model, weight: model.merge(0, weight, weight),
    "set_final_copy": lambda model, weight: model.set_final_copy(0, weight),
}


@pytest.mark.parametrize("call", CALLS)
def test_in_other_tasks_there_is_no_outer_step(call: str) -> None:
    def schedule(model: Model) -> None:
        CALLS[call](model, model.load_weights(0)[0])

    error = run(schedule, 1, 1, 1, setting=Setting(steps=2, task="local")).error
    assert f"{call} is for the task 'outer'; the task of this game is 'local'" in str(error)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"task": "outer"}, "outer must be a whole number from 1"),
        ({"task": "outer", "outer": 2, "late": -1}, "late must be a whole number from 0"),
        ({"task": "outer", "outer": 2, "mix": 1}, "mix must be at least 0 and less than 1; got 1"),
        ({"task": "outer", "outer": 2, "mix": 0.5}, "mix must be a fraction"),
        ({"outer": 2}, "outer, late and mix are for the task 'outer'; this one is 'train'"),
        ({"task": "local", "late": 1}, "outer, late and mix are for the task 'outer'; this one is 'local'"),
        ({"task": "outer", "outer": 2, "lag": 1}, "lag is for the task 'train'"),
        ({"task": "outer", "outer": 2, "layer": "attention"}, "neither local replicas nor lag"),
    ],
)
def test_a_setting_that_cannot_be_is_refused(fields: Any, words: str) -> None:
    with pytest.raises(RuleError, match=words):
        Setting(**fields)


# --- What must be there at the end ---


def altered(changes: dict[str, Callable[[Model], Any]]) -> Any:
    """The report on DiLoCo with some of the model's calls replaced."""

    async def schedule(model: Model) -> None:
        for name, change in changes.items():
            object.__setattr__(model, name, change(model))
        await outer_steps(lambda step: range(2) if step % 2 == 0 else (), waits=True)(model)

    outcome = finished(schedule, 2, 2, 2, setting=setting())
    return referee(outcome.trace)


def nothing(*_: Any) -> None:
    """Declares nothing."""


def test_each_layers_agreed_weight_and_each_replicas_copy_are_declared() -> None:
    assert altered({}).error is None
    error = altered({"set_final_weight": lambda model: nothing}).error
    assert "no rank set a final weight for layer 0" in str(error)
    of_rank_1 = {"set_final_copy": lambda model: model.set_final_copy if model.rank else nothing}
    assert "no rank set the final copy of layer 0 that was trained with batch 0; call set_final_copy(0, ...)" in str(
        altered(of_rank_1).error
    )


def test_a_replica_computes_a_step_with_one_weight_in_each_layer() -> None:
    """A forward that counts for nothing is refused too: the rule needs no history of every gradient."""

    async def schedule(model: Model) -> None:
        rank = Rank(model)
        rank.train(0)
        copies = [copies[-1] for copies in rank.copies]
        for layer in rank.layers:
            merged = model.merge(layer, copies[layer], await rank.average(layer))
            rank.copies[layer].append(merged)
        rank.train(1)
        if model.rank == 0:
            model.forward(0, model.get_activation([0], 1), copies[0])
        for layer in rank.layers:
            model.set_final_weight(layer, await rank.average(layer))
            model.set_final_copy(layer, rank.copies[layer][-1])

    outcome = finished(schedule, 2, 2, 2, setting=setting(steps=2, outer=1))
    error = str(referee(outcome.trace).error)
    assert "batch 0 of step 1 is computed with the weight of layer 0" in error
    assert "compute a step with one weight in each layer" in error


# --- Values and the record ---


def test_outer_gradients_are_checked_and_added() -> None:
    copy: Any = (0, [0], 2, [])
    one, other = Delta(0, 1, 2, copy=copy, copies=((0,),)), Delta(0, 1, 2, copy=(0, [1], 2, []), copies=((1,),))  # type: ignore[arg-type]
    total = one + other
    assert total.copies == ((0,), (1,))
    assert total.is_complete()
    assert not one.is_complete()
    assert str(total) == "outer gradient of layer 0, unsharded, round 0, steps 0 to 2, of the copies {0, 1} of 2"
    with pytest.raises(RuleError, match="batch 0 is in both the first value and the second value; sum each copy once"):
        one + one
    with pytest.raises(RuleError, match="its copies together have the batches of its mark"):
        Delta(0, 1, 2, copy=copy, copies=((1,),))
    with pytest.raises(RuleError, match="an outer gradient is of copies"):
        Delta(0, 1, 2)
    assert one.memory() == OuterState(0, 1, 0).memory() == 512 * 512


def test_a_trace_says_what_the_rounds_are() -> None:
    trace = run(streaming_diloco, 2, 2, 2, setting=setting(mix=Fraction(1, 4))).trace
    data = json.loads(trace_to_json(trace))
    assert (data["outer"], data["late"], data["mix"]) == (2, 1, "1/4")
    assert trace_from_json(trace_to_json(trace)) == trace
    for mix in (0.25, "1/0", "2"):
        with pytest.raises(TraceError, match="mix"):
            trace_from_json(json.dumps(data | {"mix": mix}))


@pytest.mark.parametrize(
    ("name", "changes", "words"),
    [
        ("outer_update", {"end": 0}, "it takes place from tick"),
        ("delta", {"inputs": (0,)}, "a record of delta holds a layer, 2 used values"),
        ("merge", {"end": 10_000}, "it takes place from tick"),
        ("load_weights", {"args": (0, 1, None, 2)}, "a record says 1 where an outer state is loaded; got 2"),
        ("load_weights", {"args": (0, 1)}, "it makes 2 values from number 0 on"),
        ("set_final_copy", {"layer": 1}, "set_final_copy(1, ...) needs a value of layer 1"),
    ],
)
def test_a_forged_record_is_refused(name: str, changes: Any, words: str) -> None:
    trace = run(streaming_diloco, 2, 2, 2, setting=setting()).trace
    ops = list(trace.ranks[0])
    at = next(i for i, op in enumerate(ops) if op.name == name)
    ops[at] = ops[at]._replace(**changes)
    error = referee(replace(trace, ranks=(tuple(ops), *trace.ranks[1:]))).error
    assert words in str(error)


# --- Time, memory and traffic ---


def test_streaming_sends_as_much_as_diloco_and_waits_for_nothing() -> None:
    game, weight = setting(8, 4), 512 * 512
    streaming, blocking, each = (
        referee(run(schedule, 4, 4, 4, setting=game).trace)
        for schedule in (
            streaming_diloco,
            outer_steps(all_together, waits=True),
            outer_steps(all_together, sums_gradients=True),
        )
    )
    assert (streaming.timesteps, streaming.peak.memory) == (116.5, 5_373_952)
    assert (blocking.timesteps, blocking.peak.memory) == (179.5, 4_980_736)
    assert streaming.traffic == blocking.traffic == 2 * 4 * (2 * 3 * weight // 4)
    assert each.traffic == game.outer * blocking.traffic
    assert (streaming.family, streaming.drift) == ("local SGD", 5)
    assert streaming.timesteps >= time_bound(Size(4, 4, 4), game).least
    assert streaming.peak.memory >= memory_bound(Size(4, 4, 4), game).least


@pytest.mark.sampled(5)
@pytest.mark.parametrize("seed", range(40))
def test_random_programs_take_the_time_of_a_second_simulator_in_any_order(seed: int) -> None:
    program = Program(seed)
    costs = Costs("random", ticks=program.ticks, overlap=program.overlaps)
    game = Setting(costs, steps=program.steps, task="outer", outer=program.rounds, late=program.late)
    trace = run(program.schedule(), *program.size, setting=game).trace
    report = referee(trace)
    assert report.error is None
    assert (round(report.makespan * 10), report.traffic) == program.simulated()
    assert time_bound(trace.size, game).least <= report.timesteps
    assert memory_bound(trace.size, game).least <= report.peak.memory
    for order in permutations(range(program.size[2])):
        assert run(program.schedule(), *program.size, list(order), setting=game).trace == trace
    assert replay(trace, small=True).passed


# --- On tensors ---


@pytest.mark.slow
@pytest.mark.parametrize("small", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_a_replay_gives_the_weights_of_one_device(small: bool) -> None:
    size = (4, 4, 4) if small else (2, 2, 2)
    result = replay(run(streaming_diloco, *size, setting=setting(8, 4)).trace, small=small)
    assert result.passed, result.error


def test_replicas_of_several_microbatches_and_halves_of_backward_are_replayed() -> None:
    async def schedule(model: Model) -> None:
        """Two replicas of two ranks each, which sum the gradients of their two microbatches."""
        own = [2 * (model.rank // 2), 2 * (model.rank // 2) + 1]
        weight, state, outer = model.load_weights(0, outer=True)
        agreed = weight
        for step in range(2):
            inp = model.get_activation([own[model.rank % 2]], step)
            grad = model.loss(model.forward(0, inp, weight))
            model.backward_input(0, inp, grad, weight)
            total = await model.allreduce(model.backward_weight(0, inp, grad), 0, group="own")
            weight, state = model.update(0, total, weight, state)
        change = await model.allreduce(model.delta(0, agreed, weight), 0, group="dp")
        agreed, _ = model.outer_update(0, agreed, change, outer)
        model.set_final_weight(0, agreed)
        model.set_final_copy(0, weight)

    costs = replace(COSTS["outer_steps"], name="halves", ticks=TICKS)
    outcome = finished(schedule, 1, 4, 4, setting=Setting(costs, {"dp": 2, "own": 2}, steps=2, task="outer", outer=2))
    trace = outcome.trace
    assert referee(trace).error is None
    assert replay(trace, small=True).passed


def test_an_outer_state_may_be_parked() -> None:
    async def schedule(model: Model) -> None:
        weight, state, outer = [await model.fetch(one) for one in model.load_weights(0, tier="host", outer=True)]  # type: ignore[call-overload]
        inp = model.get_activation([0])
        grad, _ = model.backward(0, inp, model.loss(model.forward(0, inp, weight)), weight)
        copy, _ = model.update(0, grad, weight, state)
        agreed, _ = model.outer_update(0, weight, model.delta(0, weight, copy), outer)
        model.set_final_weight(0, agreed)
        model.set_final_copy(0, copy)

    costs = replace(COSTS["outer_steps"], name="host", tiers={"host": Tier(0, 0)})
    trace = run(schedule, 1, 1, 1, setting=Setting(costs, task="outer", outer=1)).trace
    assert referee(trace).error is None
    assert trace_from_json(trace_to_json(trace)) == trace
    assert replay(trace, small=True).passed


@pytest.mark.parametrize("other", [{"late": 0}, {"mix": Fraction(1, 4)}])
def test_another_mixture_or_a_punctual_average_gives_other_weights(other: Any) -> None:
    """The comparison reads both from the trace: it does not pass because they do not count."""
    from lib.engine.replay.outer_reference import trained_with_outer_steps
    from lib.engine.replay.workload import Workload
    from lib.judging.recompute import executed

    def results(**more: Any) -> Any:
        waits = more.get("late") == 0
        trace = run(outer_steps(one_by_one, waits=waits), 4, 4, 4, setting=setting(8, 4, **more)).trace
        return trained_with_outer_steps(Workload(trace.size, trace.setting, True), executed(trace))

    usual, changed = results(), results(**other)
    assert all((one != two).any() for one, two in zip(usual, changed))


OPERATIONS = ("forward", "loss", "backward", "update", "delta", "allreduce", "outer_update", "merge")


@pytest.mark.sampled(3)
@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("nth", [1, 3])
def test_zeroing_any_one_result_changes_the_weights(operation: str, nth: int, monkeypatch: pytest.MonkeyPatch) -> None:
    trace = run(streaming_diloco, 2, 2, 2, setting=setting()).trace
    with zeroed(monkeypatch, operation, nth):
        assert not replay(trace, small=True).same_weights


# --- The picture ---


def test_a_picture_shows_outer_updates_and_values() -> None:
    trace = run(streaming_diloco, 2, 2, 2, setting=setting()).trace
    assert "outer update" in str(drawing.svg(drawing.draw(trace)))
    assert "O" in drawing.text(trace)
    change = Delta(0, 1, 2, copy=(0, [0], 2, []), copies=((0,),))  # type: ignore[arg-type]
    assert "ΔW" in str(drawing.svg(change.draw()))
    assert "opt" in str(drawing.svg(OuterState(0, 1, 0).draw()))
