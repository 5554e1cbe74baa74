"""Independent evidence: random programs against a second simulator, plain tensors, and labels that never lie."""

import random
import re
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from random import Random
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib import (
    COSTS,
    Activation,
    ActivationGrad,
    Costs,
    IncompleteError,
    Model,
    OptState,
    PuzzleError,
    Report,
    Setting,
    Size,
    Trace,
    Value,
    Weight,
    WeightGrad,
    referee,
    run,
    trace_from_json,
    trace_to_json,
)
from lib.ledger.costs import CLASSIC, Tier
from lib.ledger.recomputation import Recomputation
from lib.ledger.values import Parked
from lib.pipelines import pipeline, sequence_parallel, tensor_parallel, zb_h1
from lib.pipelines.bounds import memory_bound, time_bound
from tests.oracles import programs
from tests.oracles.programs import random_program
from tests.oracles.programs.simulation import Simulation
from tests.oracles.programs.writer import Program
from tests.oracles.tensor_interpreter import HIDDEN, Data, Truth, execute, outcome, update
from tests.support import CLASSICS, Classic, finished
from tests.support.examples import examples
from tests.support.schedules import shards, tiers
from tests.support.schedules.random_program import playing, setting_of

# === As a second simulator says, in every order ===


def played(program: Program, seed: int = 0) -> Trace:
    """A run, which must come to its end. With a seed the ranks start in another order, and with an odd one they nap."""
    choice, ranks = Random(seed), program.size[2]
    order = choice.sample(range(ranks), ranks) if seed else range(ranks)
    naps = choice if seed % 2 else None
    outcome = run(playing(program, naps), *program.size, order, setting=setting_of(program))
    if outcome.error is not None:
        raise outcome.error
    return outcome.trace


def assert_as_simulated(program: Program, trace: Trace, report: Report) -> None:
    told = Simulation(program.size[2], program.prices, program.acts)
    assert not told.stuck
    for rank, (acts, ops, mine) in enumerate(zip(program.acts, trace.ranks, report.ranks, strict=True)):
        assert [op[:3] for op in ops] == [(act.name, *told.times[rank, at]) for at, act in enumerate(acts)]
        assert mine.memory == tuple(told.memory(rank))
        assert (mine.bytes_sent, mine.messages) == (4 * told.sent[rank], told.messages[rank])
    ranks, unit = range(program.size[2]), trace.costs.unit
    starts, ends = zip(*[told.times[rank, at] for rank in ranks for at in told.events(rank)])
    assert (report.timesteps, report.makespan) == (max(starts) / unit, max(ends) / unit)
    for tier, peak in (("", report.peak), ("host", report.peaks["host"])):
        assert peak.memory == max(max(told.memory(rank, tier)) for rank in ranks)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("first", range(0, 2000, 10))
def test_random_programs_run_as_simulated_in_any_order(first: int) -> None:
    for seed in range(first, first + 10):
        as_simulated(random_program(seed))


@pytest.mark.slow
@pytest.mark.parametrize("primitive", ["frozen", "whole"])
@pytest.mark.parametrize("first", range(0, 500, 10))
def test_programs_of_a_primitive_run_as_simulated_in_any_order(first: int, primitive: str) -> None:
    for seed in range(first, first + 10):
        program = random_program(seed, **{primitive: True})
        report, game = as_simulated(program), (Size(*program.size), setting_of(program))
        assert time_bound(*game).least <= report.timesteps
        assert memory_bound(*game).least <= report.peak.memory


def as_simulated(program: Program) -> Report:
    """The report of a random program's runs, which are as a second simulator says."""
    trace = played(program)
    report = referee(trace)
    assert report.error is None, report.error
    assert_as_simulated(program, trace, report)
    assert played(program, 1) == trace
    again = played(program, 2)
    assert (again, referee(again)) == (trace, report)
    return report


def test_the_simulator_has_no_code_of_lib() -> None:
    (folder,) = programs.__path__
    for file in Path(folder).glob("*.py"):
        assert not re.search(r"^ *(import|from) (lib|tests.support.schedules)\b", file.read_text(), re.M), file


# === Traces on tiny tensors ===


# A few plain lines execute them that know nothing of the rules. A run that the referee accepts gives the weights that
# one device would have computed; a sum or an update that it refuses would have given others.


@pytest.mark.parametrize("classic", CLASSICS, ids=lambda classic: classic.slug)
def test_what_the_referee_accepts_is_what_one_device_computes(classic: Classic) -> None:
    size = classic.size if classic.size.ranks <= HIDDEN else classic.size._replace(ranks=8, layers=4, batches=2)
    trace = run(classic.solution, *size).trace
    assert referee(trace).error is None
    assert outcome(trace) == "right"


class Choices:
    """A random but legal data-parallel schedule: how batches are grouped, what is sharded, in which order."""

    def __init__(self, ranks: int, seed: int) -> None:
        self.ranks = ranks
        self.seed = seed

    def pick(self, what: str, n: int) -> int:
        return hash((self.seed, *map(ord, what))) % n

    async def __call__(self, model: Model) -> None:
        weights, states, inputs, grads, weight_grads = model.storage()
        sharded = [self.pick(f"shard{layer}", 2) for layer in range(model.LAYERS)]
        for layer in range(model.LAYERS):
            part = (model.rank, model.RANKS) if sharded[layer] else (0, 1)
            weights[layer], states[layer] = model.load_weights(layer, *part)
            weight_grads[layer] = model.fake_grad(layer, [])

        mine = [b for b in range(model.BATCHES) if self.pick(f"rank of {b}", model.RANKS) == model.rank]
        rounds = 1 + self.pick("rounds", 2)
        for turn in range(rounds):
            group = mine[turn::rounds]
            if group:
                inputs[0] = model.get_activation(group)
            for layer in range(model.LAYERS):
                used = await self.whole(model, layer, sharded[layer])
                if group:
                    inputs[layer + 1] = model.forward(layer, inputs[layer], used)
            if group:
                grads[0] = model.loss(inputs[model.LAYERS])
            for layer in reversed(range(model.LAYERS)):
                used = await self.whole(model, layer, sharded[layer])
                if group:
                    new, grads[0] = model.backward(layer, inputs[layer], grads[0], used)
                    weight_grads[layer] = weight_grads[layer] + new

        for layer in range(model.LAYERS):
            if sharded[layer] and self.pick(f"scatter{layer}", 2):
                grad = await model.scatterreduce(weight_grads[layer], layer)
            else:
                grad = await model.allreduce(weight_grads[layer], layer)
                if sharded[layer] and self.pick(f"cut{layer}", 2):
                    grad = grad.shard(model.rank, model.RANKS)
            weights[layer], states[layer] = model.update(layer, grad, weights[layer], states[layer])
            model.set_final_weight(layer, weights[layer])

    async def whole(self, model: Model, layer: int, sharded: int) -> Any:
        return await model.allgather(model.weights[layer], layer) if sharded else model.weights[layer]


@examples(60)
@given(st.integers(1, 3), st.integers(1, 4), st.integers(1, 4), st.integers(0, 10**9))
def test_random_legal_schedules_compute_what_one_device_does(layers: int, batches: int, ranks: int, seed: int) -> None:
    played = finished(Choices(ranks, seed), layers, batches, ranks)
    assert referee(played.trace).error is None
    assert outcome(played.trace) == "right"


# --- What is refused would have been wrong ------------------------------------------------------------

SIZE = Size(layers=2, batches=2, ranks=2)


def gradient(batches: list[int], weights: Any = None, layer: int = 0) -> Any:
    """The exact gradient of a layer over some batches."""
    truth = Truth(SIZE)
    truth.data.weights = weights or truth.data.weights
    return truth.grad(0, None, layer, batches)


def stepped(grad: Any, weight: Any = None, state: Any = None) -> Any:
    data = Data(SIZE)
    return update(grad, data.weights[0] if weight is None else weight, data.states[0] if state is None else state)[0]


DATA = Data(SIZE)
BOTH = gradient([0, 1])
SPLICED = np.concatenate([gradient([0])[: HIDDEN // 2], gradient([1])[HIDDEN // 2 :]])

WRONG = {
    "batch 0 summed twice": stepped(gradient([0, 0, 1])),
    "one batch from two ranks": stepped(gradient([1]) + gradient([1])),
    "reduced twice": stepped(BOTH + BOTH),
    "an update without batch 1": stepped(gradient([0])),
    "layers summed": stepped(gradient([0]) + gradient([1], layer=1)),
    "shards of different batches joined": stepped(SPLICED),
    "the gradient of another layer": stepped(gradient([0, 1], layer=1)),
    "updated twice": stepped(BOTH, *update(BOTH, DATA.weights[0], DATA.states[0])),
    "an old weight with a new state": stepped(BOTH, None, update(BOTH, DATA.weights[0], DATA.states[0])[1]),
    "a forward with an updated weight": stepped(
        gradient([0, 1], [update(BOTH, DATA.weights[0], DATA.states[0])[0], DATA.weights[1]])
    ),
    "a weight that was never updated": DATA.weights[0],
    "a zero instead of a gradient": stepped(0 * BOTH),
}


@pytest.mark.parametrize("mistake", WRONG)
def test_what_the_rules_refuse_would_have_given_other_weights(mistake: str) -> None:
    right = Truth(SIZE).weights_after(1)[0]
    assert np.array_equal(stepped(BOTH), right)
    assert not np.array_equal(WRONG[mistake], right)


# === Labels never lie ===


# Random programs, most of whose calls are refused, and schedules that train are run; each value that was made all the
# same is compared with the numbers that one device computes for its label.

ORDERS = [(0, 1, 2, 3), (3, 2, 1, 0), (2, 0, 3, 1)]
ALL = Costs(
    "everything",
    ticks=MappingProxyType(
        {**CLASSIC.ticks, **dict.fromkeys(("backward_input", "backward_weight", "dispatch", "collect"), 5)}
    ),
    tiers=MappingProxyType({"host": Tier(3, 3)}),
)


def labels_are_true(trace: Trace) -> list[Value]:
    """Compares every value of a trace with its label, and returns all values."""
    recomputation = Recomputation(trace)
    with suppress(IncompleteError):
        recomputation.run()
    truth = Truth(trace.size, trace.setting)
    values: list[Value] = []
    for rank, numbers in zip(recomputation.ranks, execute(trace)):
        assert rank.at == len(rank.ops)
        for number, value in rank.values.items():
            claimed, rows = truth.of(value), numbers[number]
            assert claimed.keys() == rows.keys(), value
            expected, computed = list(claimed.values()), [rows[place] for place in claimed]
            if trace.setting.steps > 1 or not np.array_equal(computed, expected):
                np.testing.assert_allclose(computed, expected, rtol=1e-9, atol=1e-9, err_msg=f"{value}")
            values.append(value)
    return values


@pytest.mark.parametrize("classic", CLASSICS[:-1], ids=lambda classic: classic.slug)
def test_every_value_of_the_classics_is_what_it_says(classic: Classic) -> None:
    assert len(labels_are_true(run(classic.solution, *classic.size).trace)) > 10


class Chaos:
    """A player who calls anything with anything that mostly fits by layer, and goes on when it is refused."""

    def __init__(self, seed: int, calls: int) -> None:
        self.seed = seed
        self.calls = calls

    async def __call__(self, model: Model) -> None:
        mine, together = random.Random(self.seed * 31 + model.rank), random.Random(self.seed)
        setting = model.dist.setting
        pool: list[Any] = [*model.load_weights(0, tier="host")] if setting.costs.tiers else []
        for layer in range(model.LAYERS):
            pool += model.load_weights(layer)
            pool += model.load_weights(layer, model.rank, model.RANKS)
        for step in range(setting.steps):
            pool += [inputs_of(model, step), model.get_activation(range(model.BATCHES), step)]
        calls = 14 if setting.costs.tiers else 10
        for _ in range(self.calls):
            await attempt(pool, anything, model, pool, mine, mine.randrange(calls))
            if together.random() < 0.3:
                group = together.choice([None, *dict(setting.mesh)])
                step = together.randrange(setting.steps)
                await attempt(pool, meet, model, pool, mine, together.randrange(8), step, group)


def inputs_of(model: Model, step: int) -> Activation:
    """The inputs of this rank's batches."""
    return model.get_activation(range(model.rank % model.BATCHES, model.BATCHES, model.RANKS), step)


async def attempt(pool: list[Any], call: Any, *args: Any) -> None:
    """Adds what a call yields to the pool, unless it is refused."""
    try:
        made = call(*args)
        if hasattr(made, "__await__"):
            made = await made
    except (PuzzleError, AttributeError, TypeError):
        return
    pool += made if isinstance(made, tuple) else [made]


def anything(model: Model, pool: list[Any], draw: random.Random, which: int) -> Any:
    """Some call with some values of the kinds that it takes."""
    layer, wants_a_layer = draw.randrange(model.LAYERS), draw.random() < 0.8

    def pick(*kinds: type, of: int = layer) -> Any:
        fit = [v for v in pool if isinstance(v, kinds) and (v.layer == of or not wants_a_layer)]
        return draw.choice(fit[-6:] if draw.random() < 0.5 and fit else fit or pool)

    sharded = (Weight, OptState, WeightGrad)
    match which:
        case 0 | 1:
            return model.forward(layer, pick(Activation), pick(Weight))
        case 2:
            return model.loss(pick(Activation, of=model.LAYERS))
        case 3 | 4 | 5:
            return model.backward(layer, pick(Activation), pick(ActivationGrad), pick(Weight))
        case 6:
            return pick(WeightGrad) + pick(WeightGrad)
        case 7:
            return pick(*sharded).combine(pick(*sharded))
        case 8:
            return pick(*sharded, Activation, ActivationGrad).shard(draw.randrange(3), draw.randint(1, 4))
        case 9:
            return model.update(layer, pick(WeightGrad), pick(Weight), pick(OptState))
        case 10:
            return model.backward_input(layer, pick(Activation), pick(ActivationGrad), pick(Weight))
        case 11:
            weight = [] if model.dist.setting.layer == "dense" else [pick(Weight)]
            return model.backward_weight(layer, pick(Activation), pick(ActivationGrad), *weight)
        case 12:
            return model.offload(pick(Weight, Activation, WeightGrad))
        case _:
            return model.fetch(pick(Parked))


def meet(model: Model, pool: list[Any], draw: random.Random, which: int, step: int, group: str | None) -> Any:
    """A collective that every rank joins, if only with a zero or a shard: otherwise the others would wait."""
    setting, layer = model.dist.setting, which % model.LAYERS

    def any_of(kind: type, spare: Any) -> Any:
        return draw.choice([*[v for v in pool if isinstance(v, kind) and v.layer == spare.layer][-6:], spare])

    zero, weight = model.fake_grad(layer, [], step), model.load_weights(layer, model.rank, model.RANKS)[0]
    if which < 2:
        return model.allreduce(any_of(WeightGrad, zero), layer, group=group)
    if which == 2:
        return model.scatterreduce(any_of(WeightGrad, zero), layer, group=group)
    if which == 3:
        return model.allgather(any_of(Weight, weight), layer, group=group)
    if setting.layer == "dense":
        full = model.load_weights(layer)[0]
        return model.allreduce(any_of(Weight, full), layer) if setting.task == "local" else None
    inputs = inputs_of(model, step)
    if setting.layer == "experts" and which > 4:
        value = any_of(Activation, inputs)
        back = list(range(model.rank % model.BATCHES, model.BATCHES, model.RANKS))
        return model.dispatch(value, layer) if which < 7 else model.collect(value, layer, back)
    name = ("allreduce", "allgather", "scatterreduce", "allreduce")[which - 4]
    late = max((value.layer for value in pool if isinstance(value, Activation)), default=0)
    spares = [value for value in pool if isinstance(value, Activation) and value.layer == late]
    return getattr(model, name)(draw.choice([*spares, inputs]), late)


MESH = (("dp", 2), ("tp", 2))


class Nested:
    """A player who sums gradients along one axis after the other, cuts them on the way and gathers them again: in
    buckets, with handles in place of values, and with awaits wherever chance has them."""

    def __init__(self, seed: int) -> None:
        self.seed = seed

    async def __call__(self, model: Model) -> None:
        mine, together = random.Random(self.seed * 31 + model.rank), random.Random(self.seed)
        weights = [model.load_weights(layer)[0] for layer in range(model.LAYERS)]
        late: list[Any] = []
        for _ in range(3):
            layers = together.sample(range(model.LAYERS), together.randint(1, model.LAYERS))
            values: Any = [self.gradient(model, weights, layer, mine) for layer in layers]
            done, cut = set[str](), list[str]()
            for _ in range(together.randint(2, 6)):
                axis = together.choice(["dp", "tp"])
                name = together.choice(["allreduce", "scatterreduce"])
                if axis in done:
                    if not cut:
                        break
                    name, axis = "allgather", cut.pop()
                elif name == "scatterreduce":
                    cut.append(axis)
                done.add(axis)
                call: Any = getattr(model, name)(*self.bucket(values, layers, mine), group=axis)
                if mine.random() < 0.5:
                    late.append(call)
                    values = call
                else:
                    made = await call
                    values = made if isinstance(made, list) else [made]
                if mine.random() < 0.5:
                    model.forward(0, model.get_activation(range(mine.randint(1, model.BATCHES))), weights[0])
            await self.letters(model, together)
        mine.shuffle(late)
        for call in late:
            await call

    def gradient(self, model: Model, weights: list[Weight], layer: int, draw: random.Random) -> WeightGrad:
        """That of this rank's batches; or a zero."""
        batches = range(model.rank, model.BATCHES, model.RANKS)
        if not batches or draw.random() < 0.3:
            return model.fake_grad(layer, [])
        inputs = [model.get_activation(batches)]
        for weight in weights:
            inputs.append(model.forward(weight.layer, inputs[-1], weight))
        grad = model.loss(inputs[-1])
        for at in reversed(range(layer, model.LAYERS)):
            found, grad = model.backward(at, inputs[at], grad, weights[at])
        return found

    def bucket(self, values: Any, layers: list[int], draw: random.Random) -> tuple[Any, Any]:
        if not isinstance(values, list):
            return (values, layers) if values.listed else (values, layers[0])
        return (values[0], layers[0]) if len(layers) == 1 else (values, layers)

    async def letters(self, model: Model, together: random.Random) -> None:
        """Each rank sends weights to the next with different tags, which reads them in another order."""
        tags = range(3)
        sent = [
            model.pass_to((model.rank + 1) % model.RANKS, model.load_weights(0, tag, 4), tag)
            for tag in together.sample(tags, 3)
        ]
        for handle in sent:
            await handle
        for tag in together.sample(tags, 3):
            weight, state = await model.receive((model.rank - 1) % model.RANKS, tag)
            assert (weight.shards, state.shards) == (frozenset((tag,)),) * 2


OVERLAPPING = [replace(COSTS["overlap"], name="streams", lanes=lanes) for lanes in ("one", "group")]


@examples(40)
@given(st.integers(1, 3), st.integers(1, 5), st.integers(0, 10**9), st.sampled_from(OVERLAPPING))
def test_every_value_of_a_random_program_with_overlap_is_what_it_says(
    layers: int, batches: int, seed: int, costs: Costs
) -> None:
    traces = [run(Nested(seed), layers, batches, 4, order, setting=Setting(costs, MESH)) for order in ORDERS]
    assert [outcome.error for outcome in traces] == [None] * len(ORDERS)
    assert len({trace_to_json(outcome.trace) for outcome in traces}) == 1
    assert labels_are_true(traces[0].trace)


@examples(30)
@given(st.integers(1, 2), st.integers(1, 3), st.integers(0, 10**9))
def test_every_value_of_a_random_program_in_groups_is_what_it_says(layers: int, batches: int, seed: int) -> None:
    assert labels_are_true(finished(Chaos(seed, calls=60), layers, batches, 4, setting=Setting(mesh=MESH)).trace)


GAMES = [
    Setting(),
    Setting(ALL, steps=2),
    Setting(ALL, layer="block", steps=2),
    Setting(ALL, layer="experts"),
    Setting(ALL, steps=3, task="local"),
]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("setting", GAMES, ids=lambda setting: f"{setting.layer}, {setting.task}, {setting.steps}")
@examples(40)
@given(st.integers(1, 2), st.sampled_from([1, 2, 3, 4]), st.sampled_from([1, 2, 4]), st.integers(0, 10**9))
def test_every_value_of_a_random_program_is_what_it_says(
    setting: Setting, layers: int, batches: int, ranks: int, seed: int
) -> None:
    outcome = finished(Chaos(seed, calls=70), layers, batches, ranks, setting=setting)
    assert labels_are_true(outcome.trace)
    assert trace_from_json(trace_to_json(outcome.trace)) == outcome.trace


SCHEDULES = [
    (pipeline(zb_h1), Size(2, 3, 2), Setting(COSTS["parts"], steps=2)),
    (tensor_parallel, Size(2, 2, 4), Setting(ALL, layer="block")),
    (sequence_parallel, Size(2, 2, 4), Setting(ALL, layer="block")),
    (shards.experts_in_turn, Size(2, 4, 2), Setting(ALL, layer="experts")),
    (shards.local_sgd(2), Size(2, 2, 2), Setting(ALL, steps=4, task="local")),
    (shards.data_parallel_steps, Size(2, 2, 2), Setting(ALL, steps=3)),
    (tiers.stream_inference_in_turn, Size(3, 2, 1), Setting(ALL, task="infer")),
]


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("schedule", "size", "setting"), SCHEDULES)
def test_every_value_of_a_schedule_is_what_it_says(schedule: Any, size: Size, setting: Setting) -> None:
    labels_are_true(finished(schedule, *size, setting=setting).trace)


@pytest.mark.slow
def test_random_programs_with_overlap_get_somewhere() -> None:
    seen: set[str] = set()
    for seed in range(20):
        trace = run(Nested(seed), 3, 4, 4, setting=Setting(OVERLAPPING[0], MESH)).trace
        for ops in trace.ranks:
            awaited = {op.args[0]: i for i, op in enumerate(ops) if op.name == "await"}
            late = {number for i, op in enumerate(ops) if i in awaited for number in op.outputs if awaited[i] > i + 1}
            seen |= {op.name for op in ops}
            seen |= {"bucket" for op in ops if op.name == "allgather" and len(op.outputs) > 1}
            seen |= {"chain" for i, op in enumerate(ops) if i in awaited and late & {*op.inputs}}
            seen |= {"tag" for op in ops if op.name == "receive" and len(op.args) > 1}
        shards = {value.total for value in labels_are_true(trace) if isinstance(value, WeightGrad)}
        seen |= {"nested"} if 4 in shards else set()
    assert {"bucket", "chain", "tag", "nested", "allreduce", "scatterreduce", "allgather", "await"} <= seen


@pytest.mark.slow
def test_schedules_and_random_programs_get_somewhere() -> None:
    values = [
        v for schedule, size, game in SCHEDULES for v in labels_are_true(run(schedule, *size, setting=game).trace)
    ]
    words = ("part", "tokens", "step 1", "replica", "averaged", "host")
    assert [word for word in words if not any(word in str(value) for value in values)] == []
    done: set[str] = set()
    for setting in GAMES:
        for seed in range(8 if setting.costs == ALL else 40):
            trace = run(Chaos(seed, calls=100), 1, 2, 2, setting=setting).trace
            game = setting.layer if setting.costs == ALL else "classic"
            done |= {f"{op.name} in {game}" for ops in trace.ranks for op in ops}
    plain = ("backward", "add", "combine", "shard", "update", "allreduce", "allgather", "scatterreduce")
    assert {f"{name} in classic" for name in plain} <= done
    halves = {f"{half} in {layer}" for half in ("backward_input", "backward_weight") for layer in ("dense", "block")}
    assert {*halves, "update in dense", "update in block", "fetch in experts", "offload in dense"} <= done
    assert {"dispatch in experts", "collect in experts", "allreduce in block", "scatterreduce in block"} <= done
