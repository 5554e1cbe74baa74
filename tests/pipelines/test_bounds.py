"""No legal schedule beats a bound: references, records, random ones under random prices, and those that do least."""

import random
from collections.abc import Callable, Iterable
from dataclasses import replace
from fractions import Fraction
from functools import partial
from typing import Any

import pytest

from lib import COLLECTIVES, Costs, Goal, Model, Record, Report, RuleError, Setting, Size, Trace, referee, run
from lib.ledger.costs import CLASSIC_TICKS, COMPUTING
from lib.pipelines import (
    chimera,
    dualpipe,
    gpipe,
    interleaved,
    one_f_one_b,
    pipeline,
    recognize,
    sequence_parallel,
    zb_h1,
    zb_h2,
    zb_v,
)
from lib.pipelines.bounds import (
    Bound,
    memory_bound,
    pipeline_memory_bound,
    pipeline_time_bound,
    time_bound,
    traffic_bound,
)
from puzzles.catalog.schedule import PUZZLES
from tests.ledger.test_random_programs import Choices
from tests.support import finished
from tests.support.schedules import shards
from tests.support.schedules.grouped import grouped
from tests.support.schedules.groups import hybrid_shard, hybrid_shard_keeping_the_last
from tests.support.schedules.random_pipelines import random_pipeline
from tests.support.solved import SOME_PUZZLES, SOME_RECORDS, played, record_name, reference_of, solved_by

Schedule = Callable[[Model], Any]
BLOCK, EXPERTS = "block", "experts"


def require_within(trace: Trace) -> tuple[Report, Bound, Bound]:
    """The report on a legal run by the rules of a puzzle, with its bounds, which it does not beat."""
    size, setting = trace.size, trace.setting
    report = referee(trace, Goal("any", size, 10**9, 10**12, setting=setting))
    assert report.error is None, report.error
    time, memory = time_bound(size, setting), memory_bound(size, setting)
    assert report.timesteps >= time.least, (size, setting, time)
    assert report.peak.memory >= memory.least, (size, setting, memory)
    sent = traffic_bound(size, setting, report.timesteps)
    assert report.traffic >= sent.least, (size, setting, sent)
    found = recognize(trace)
    if found is not None and found.stages:
        own = pipeline_time_bound(size, setting, found.stages)
        assert report.timesteps >= own.least, (size, setting, own)
        if all(len(op.batches) < 2 for rank in trace.ranks for op in rank if op.name in COMPUTING):
            kept = pipeline_memory_bound(size, setting, found.stages, report.timesteps)
            assert report.peak.memory >= kept.least, (size, setting, kept)
    return report, time, memory


def within(schedule: Schedule, size: Iterable[int], setting: Setting | None = None) -> Report:
    outcome = finished(schedule, *Size(*size), setting=setting or Setting())
    return require_within(outcome.trace)[0]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("slug", SOME_PUZZLES)
def test_references_are_within_the_bounds_at_every_size(slug: str) -> None:
    puzzle = PUZZLES[slug]
    solution = reference_of(slug)
    for size in (puzzle.goal.size, *puzzle.other_sizes):
        within(solution, size, puzzle.goal.setting)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("record", SOME_RECORDS, ids=record_name)
def test_records_are_within_the_bounds(record: Record) -> None:
    for puzzle, function in solved_by(record):
        report, time, memory = require_within(played(puzzle, function).trace)
        assert Record(report.timesteps, report.peak.memory)[:2] == record[:2]
        assert time.least > 0 < memory.least


def stages_of(layers: int, ranks: int, v: int = 1) -> list[tuple[list[int], int]]:
    """Layers dealt out in turn to ranks, in v stages each."""
    depth = layers // (ranks * v)
    return [([layer for layer in range(layers) if layer // depth % ranks == r], 1) for r in range(ranks)]


@pytest.mark.parametrize(
    ("schedule", "size", "setting", "stages"),
    [
        (pipeline(one_f_one_b), (4, 8, 4), Setting("stages"), stages_of(4, 4)),
        (pipeline(gpipe), (4, 8, 4), Setting("stages"), stages_of(4, 4)),
        (pipeline(interleaved), (8, 8, 4), Setting("stages"), stages_of(8, 4, 2)),
        (pipeline(zb_h1), (4, 8, 4), Setting("parts"), stages_of(4, 4)),
        (pipeline(zb_h2), (4, 8, 4), Setting("parts", steps=2), stages_of(4, 4)),
        (pipeline(zb_v), (8, 8, 4), Setting("parts"), [([r, 7 - r], 1) for r in range(4)]),
    ],
)
def test_the_bound_of_a_pipeline_is_reached_by_the_textbook(
    schedule: Schedule, size: tuple[int, int, int], setting: Setting, stages: Any
) -> None:
    assert pipeline_time_bound(Size(*size), setting, stages).least == within(schedule, size, setting).timesteps


FAR = Costs(
    "far", ticks={**CLASSIC_TICKS, **dict.fromkeys((*COLLECTIVES, "pass_to", "receive"), 1000)},
    flops_per_tick=2 * 512 * 512 * 256 * 100 // 55,
)  # fmt: skip
"""A product takes 0.55 ticks."""


@pytest.mark.parametrize(
    ("size", "setting", "least"),
    [
        ((2, 4, 1), Setting(), 16.5),  # 16 of computing, one update before the last one
        ((9, 1, 1), Setting("long"), 22),
        ((8, 1, 1), Setting("copies"), 19.5),
        ((2, 4, 4), Setting(), 4.3),  # four of computing, and an exchange before the update
        ((4, 8, 4), Setting("stages"), 24),
        ((4, 8, 4), Setting("parts"), 22),  # rank 0 needs no gradient of the model's input
        ((4, 8, 4), Setting("parts", steps=2), 44),
        ((3, 1, 4), Setting(), 6),  # one microbatch cannot be shared
        ((8, 2, 1), Setting("streams", task="infer"), 14),  # the last forward only has to start
        ((1, 4, 2), Setting(task="infer"), 0),
        ((1, 64, 4), Setting(FAR), 10.6),  # 105.6 ticks of computing on one rank; an exchange takes 1,000
        ((2, 4, 4), Setting(replace(FAR, flops_per_tick=0)), 16),
        ((4, 4, 4), Setting("ring"), 8.2),  # half of a gradient is exchanged: 2 ticks after 80
        ((4, 8, 4), Setting("ring"), 16.2),  # three of four ranks send an activation's gradient, 6 ticks
        ((4, 4, 4), Setting("slow"), 9),  # to compute a backward twice takes less than to send its gradient
        ((4, 1, 4), Setting("quarters", layer=BLOCK), 3.4),  # seven times 10 and a sum, 8 between two ranks; and 10
    ],
)  # fmt: skip
def test_bounds_by_hand(size: tuple[int, int, int], setting: Setting, least: float) -> None:
    bound = time_bound(Size(*size), setting)
    assert bound.least == least
    assert bound.reason


def test_steps_follow_each_other_only_where_they_must() -> None:
    """Without halves, layer 0 is updated after all of a step; a local replica waits for nobody."""
    one, two = (time_bound(Size(2, 4, 4), Setting(steps=steps)).least for steps in (1, 2))
    assert two == 2 * one + 0.5
    local = time_bound(Size(2, 4, 4), Setting(steps=2, task="local"))
    assert local.least == 2 * 4 + 0.5


PRICED = ("update", "allreduce", "allgather", "scatterreduce", "pass_to", "receive")


def random_costs(choice: random.Random, halves: bool = False, overlap: bool = False) -> Costs:
    """Any prices, many of them 0, in ticks of which a step has ten."""
    products = ("forward", "backward", *(("backward_input", "backward_weight") if halves else ()))
    ticks = {name: choice.randint(1, 20) for name in products}
    ticks |= {name: choice.choice((0, 0, 1, 3, 10, 30)) for name in (*PRICED, "loss", "dispatch", "collect")}
    more: dict[str, Any] = {}
    if choice.random() < 0.3:
        more["calls"] = {"allreduce": choice.randint(0, 9)}
        more["alpha"] = {"pass_to": choice.randint(0, 9)}
    if choice.random() < 0.4:
        beta = Fraction(choice.choice((1, 1, 5, 40)), 65536)
        more["beta"] = dict.fromkeys(choice.choice((PRICED[1:5], PRICED[3:5])), beta)
    if choice.random() < 0.2:
        more["flops_per_tick"] = choice.choice((10**6, 7 * 10**6, 10**8, 4 * 10**8, 10**9))
    return Costs("any", ticks=ticks, overlap=overlap, gradient=choice.choice((None, 1024)), **more)


def inference(seed: int) -> Schedule:
    """Each rank takes some microbatches through all layers, in groups of random sizes."""

    def schedule(model: Model) -> None:
        choice = random.Random(seed)
        owner = [choice.randrange(model.RANKS) for _ in range(model.BATCHES)]
        group = choice.randint(1, 3)
        mine = [batch for batch in range(model.BATCHES) if owner[batch] == model.rank]
        for first in range(0, len(mine), group):
            out = model.get_activation(mine[first : first + group])
            for layer in range(model.LAYERS):
                out = model.forward(layer, out, model.load_weights(layer)[0])
            model.set_output(out)

    return schedule


def random_run(seed: int) -> Trace:
    """A random legal schedule of some kind, under random prices."""
    choice = random.Random(seed)
    kind = choice.randrange(9)
    overlap = choice.random() < 0.4
    steps = choice.randint(1, 3)
    if kind < 2:
        ranks = choice.randint(1, 4)
        size = Size(choice.randint(1, 3), choice.randint(1, 4), ranks)
        return run(Choices(ranks, seed), *size, setting=Setting(random_costs(choice, overlap=overlap))).trace
    if kind < 4:
        table = random_pipeline(seed)
        size = Size(table.stages * choice.randint(1, 2), table.batches, table.ranks)
        costs = random_costs(choice, halves=True, overlap=overlap)
        return run(pipeline(table), *size, setting=Setting(costs, steps=steps)).trace
    if kind == 7:
        size = Size(choice.randint(1, 4), choice.randint(1, 5), choice.randint(1, 3))
        costs = random_costs(choice, overlap=overlap)
        return run(inference(seed), *size, setting=Setting(costs, task="infer")).trace
    if kind == 8:
        costs = replace(random_costs(choice, overlap=overlap), islands=2, ticks_between=random_costs(choice).ticks)
        setting = Setting(costs, mesh={"replica": 2, "shard": 2})
        split = choice.choice((hybrid_shard, hybrid_shard_keeping_the_last))
        return run(split, choice.randint(1, 3), 4, 4, setting=setting).trace
    ranks = choice.choice((1, 2, 4))
    if kind == 4:
        size, setting = Size(choice.randint(1, 3), ranks, ranks), Setting(random_costs(choice), steps=steps)
        return run(shards.data_parallel_steps, *size, setting=setting).trace
    if kind == 5:
        size = Size(choice.randint(1, 3), choice.randint(1, 2), choice.choice((2, 4)))
        split = choice.choice((shards.tensor_parallel_record, sequence_parallel))
        return run(split, *size, setting=Setting(random_costs(choice), layer=BLOCK)).trace
    if choice.random() < 0.5:
        size = Size(choice.randint(1, 3), 2 * ranks, ranks)
        return run(shards.experts_in_turn, *size, setting=Setting(random_costs(choice), layer=EXPERTS)).trace
    size, setting = Size(choice.randint(1, 3), 4, 4), Setting(random_costs(choice), steps=2, task="local")
    return run(shards.local_sgd(choice.choice((1, 2))), *size, setting=setting).trace


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 1040, 20))
def test_random_schedules_under_random_prices_are_within_the_bounds(first: int) -> None:
    for seed in range(first, first + 20):
        require_within(random_run(seed))


def fractions_of_a_tick(choice: random.Random) -> Costs:
    """A product takes a fraction of a tick, or some; communication is cheap, or dearer than all computing."""
    halves = ("backward_input", "backward_weight") if choice.random() < 0.5 else ()
    dear = choice.choice(((0, 0, 0, 1, 3, 10), (30, 300, 1000)))
    ticks = dict.fromkeys(("forward", "backward", *halves), 1) | {name: choice.choice(dear) for name in PRICED}
    ticks |= {"loss": choice.choice((0, 0, 0, 1)), "update": choice.choice((0, 0, 1, 5))}
    product = Fraction(choice.randint(3, 30), choice.choice((8, 9, 20)))
    flops = min(10**9, int(2 * 512 * 512 * 256 / product))
    return Costs("any", ticks=ticks, overlap=choice.random() < 0.3, flops_per_tick=flops)


def require_groups_within(seed: int) -> None:
    choice = random.Random(seed)
    layer, ranks = (BLOCK, (2, 4)) if choice.random() < 0.2 else ("dense", (1, 2, 3, 4))
    size = Size(choice.choice((1, 1, 2, 3)), choice.choice((1, 2, 3, 5, 9, 24)), choice.choice(ranks))
    within(grouped(seed), size, Setting(fractions_of_a_tick(choice), steps=choice.choice((1, 1, 2)), layer=layer))


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 3100, 100))
def test_operations_on_any_groups_of_microbatches_are_within_the_bounds(first: int) -> None:
    for seed in range(first, first + 100):
        require_groups_within(seed)


# --- Schedules that do as little as they may -----------------------------------------------------


async def all_at_once(model: Model) -> None:
    """One rank, all microbatches in one operation, weights read when they are needed; updates at the end."""
    if model.rank:
        return
    every = range(model.BATCHES)
    grads: dict[int, Any] = {}
    inputs = {0: model.get_activation(every)}
    for layer in range(model.LAYERS):
        inputs[layer + 1] = model.forward(layer, inputs[layer], model.load_weights(layer)[0])
    grad = model.loss(inputs.pop(model.LAYERS))
    for layer in reversed(range(model.LAYERS)):
        grads[layer], grad = model.backward(layer, inputs.pop(layer), grad, model.load_weights(layer)[0])
    for layer in range(model.LAYERS):
        model.set_final_weight(layer, model.update(layer, grads.pop(layer), *model.load_weights(layer))[0])


async def in_tiny_shards(model: Model) -> None:
    """The same, but each layer is updated in 64 shards, one after the other, as soon as its gradient is there."""
    if model.rank:
        return
    inputs = {0: model.get_activation(range(model.BATCHES))}
    for layer in range(model.LAYERS):
        inputs[layer + 1] = model.forward(layer, inputs[layer], model.load_weights(layer)[0])
    grad = model.loss(inputs.pop(model.LAYERS))
    for layer in reversed(range(model.LAYERS)):
        new, grad = model.backward(layer, inputs.pop(layer), grad, model.load_weights(layer)[0])
        for part in range(64):
            weight, state = model.load_weights(layer, part, 64)
            model.set_final_weight(layer, model.update(layer, new.shard(part, 64), weight, state)[0])


async def hidden_in_messages(model: Model) -> None:
    """Rank 0 computes, and its gradients wait in messages to the other rank, where they weigh nothing."""
    weights, layers = {layer: model.load_weights(layer) for layer in range(model.LAYERS)}, range(model.LAYERS)
    if model.rank:
        for layer in reversed(layers):
            model.set_final_weight(layer, model.update(layer, await model.receive(0, tag=layer), *weights[layer])[0])
        return
    inputs = {0: model.get_activation(range(model.BATCHES))}
    for layer in layers:
        inputs[layer + 1] = model.forward(layer, inputs[layer], weights[layer][0])
    grad = model.loss(inputs.pop(model.LAYERS))
    for layer in reversed(layers):
        new, grad = model.backward(layer, inputs.pop(layer), grad, weights[layer][0])
        await model.pass_to(1, new, tag=layer)


async def halves_without_the_first(model: Model) -> None:
    """In halves, without the gradient of the model's input; all weight gradients come last."""
    if model.rank:
        return
    weights = {layer: model.load_weights(layer) for layer in range(model.LAYERS)}
    inputs = {0: model.get_activation(range(model.BATCHES))}
    for layer in range(model.LAYERS):
        inputs[layer + 1] = model.forward(layer, inputs[layer], weights[layer][0])
    grads = {model.LAYERS - 1: model.loss(inputs.pop(model.LAYERS))}
    for layer in range(model.LAYERS - 1, 0, -1):
        grads[layer - 1] = model.backward_input(layer, inputs[layer], grads[layer], weights[layer][0])
    for layer in range(model.LAYERS):
        new = model.backward_weight(layer, inputs[layer], grads[layer])
        model.set_final_weight(layer, model.update(layer, new, *weights[layer])[0])


def one_forward(model: Model) -> None:
    """Inference of one layer: each rank does one operation, at time 0."""
    mine = range(model.rank, model.BATCHES, model.RANKS)
    if mine:
        model.set_output(model.forward(0, model.get_activation(mine), model.load_weights(0)[0]))


async def a_rank_for_each_microbatch(model: Model) -> None:
    """Each rank takes one microbatch, and one rank, which got the gradients in messages, updates everything."""
    weights = {layer: model.load_weights(layer) for layer in range(model.LAYERS)}
    inputs = {0: model.get_activation([model.rank])}
    for layer in range(model.LAYERS):
        inputs[layer + 1] = model.forward(layer, inputs[layer], weights[layer][0])
    grad = model.loss(inputs.pop(model.LAYERS))
    for layer in reversed(range(model.LAYERS)):
        new, grad = model.backward(layer, inputs.pop(layer), grad, weights[layer][0])
        if model.rank:
            await model.pass_to(0, new, tag=layer)
            continue
        for other in range(1, model.RANKS):
            new = new + await model.receive(other, tag=layer)
        model.set_final_weight(layer, model.update(layer, new, *weights[layer])[0])


FREE_MESSAGES = Costs("free messages", ticks={**Setting().costs.ticks, "pass_to": 0, "receive": 0})
TAGGED = Costs("tagged", ticks=Setting().costs.ticks)


@pytest.mark.parametrize(
    ("schedule", "size", "setting"),
    [
        (all_at_once, (1, 1, 1), Setting()),
        (all_at_once, (3, 5, 1), Setting()),
        (all_at_once, (2, 3, 4), Setting()),
        (all_at_once, (1, 64, 4), Setting(FAR)),
        (all_at_once, (2, 3, 2), Setting(steps=1, task="local")),
        (in_tiny_shards, (1, 1, 1), Setting()),
        (in_tiny_shards, (3, 2, 1), Setting()),
        (in_tiny_shards, (3, 2, 3), Setting("stages")),
        (hidden_in_messages, (3, 2, 2), Setting(TAGGED)),
        (hidden_in_messages, (3, 2, 2), Setting(FREE_MESSAGES)),
        (halves_without_the_first, (1, 4, 1), Setting("parts")),
        (halves_without_the_first, (4, 2, 2), Setting("parts")),
        (one_forward, (1, 4, 1), Setting(task="infer")),
        (one_forward, (1, 4, 3), Setting(task="infer")),
        (a_rank_for_each_microbatch, (2, 4, 4), Setting(TAGGED)),
        (a_rank_for_each_microbatch, (1, 3, 3), Setting(FREE_MESSAGES)),
        (a_rank_for_each_microbatch, (3, 2, 2), Setting("overlap")),
    ],
)
def test_schedules_that_do_as_little_as_they_may(schedule: Schedule, size: Any, setting: Setting) -> None:
    within(schedule, size, setting)


def test_a_bound_that_is_one_tick_higher_is_beaten() -> None:
    """What is reached is the bound itself, so these tests would find one that is too high."""
    for schedule, size, setting in (
        (all_at_once, (3, 5, 1), Setting()),
        (a_rank_for_each_microbatch, (1, 3, 3), Setting(FREE_MESSAGES)),
        (one_forward, (1, 4, 3), Setting(task="infer")),
    ):
        outcome = run(schedule, *size, setting=setting)
        _, time, _ = require_within(outcome.trace)
        assert referee(outcome.trace).timesteps == time.least


def test_operations_without_a_price_leave_no_bound_on_time() -> None:
    setting = Setting(Costs("none", ticks={}))
    assert time_bound(Size(2, 2, 2), setting).least == 0
    assert memory_bound(Size(2, 2, 2), setting).least == 0


@pytest.mark.parametrize("size", [(2, 2), (0, 1, 1), (1, 1.5, 1), (1, True, 1)])
def test_an_impossible_size_is_refused(size: Any) -> None:
    for bound in (time_bound, memory_bound, partial(traffic_bound, timesteps=1)):
        with pytest.raises(RuleError, match="layers, batches and ranks"):
            bound(size, Setting())


@pytest.mark.parametrize("stages", [[([0, 1], 1)], [([0, 1], 1), ([1, 2], 1)], [([0, 1, 2], 0)], []])
def test_stages_that_are_not_the_layers_are_refused(stages: Any) -> None:
    for bound in (pipeline_time_bound, partial(pipeline_memory_bound, timesteps=10)):
        with pytest.raises(RuleError, match="layers 0 to 2"):
            bound(Size(3, 2, 2), Setting(), stages)


# --- Memory of pipelines ---


@pytest.mark.parametrize(("timesteps", "held"), [(33, 3), (40, 3), (41, 2), (67, 2), (68, 1)])
def test_the_microbatches_that_a_rank_keeps_follow_from_the_time(timesteps: float, held: int) -> None:
    """1F1B of 4 ranks and 8 microbatches, F = 1 and B = 2, on rank 1: a microbatch is away for 7 and back after 2 more.
    With c of them the eighth backward begins at 10 + 9 (6 // c) + 2 (6 % c), and the step ends 4 later."""
    costs = Setting("stages").costs
    bound = pipeline_memory_bound(Size(4, 8, 4), Setting("stages"), stages_of(4, 4), timesteps)
    ends = {c: 10 + 9 * (6 // c) + 2 * (6 % c) + 4 for c in range(1, 7)}
    assert held == min((c for c, end in ends.items() if end <= timesteps), default=7)
    assert bound.least == 2 * costs.weight + held * costs.activation + costs.activation_grad


def test_the_bound_on_memory_falls_with_time_and_is_below_the_textbook() -> None:
    for order, v, name in ((one_f_one_b, 1, "stages"), (interleaved, 2, "stages"), (zb_h2, 1, "parts")):
        size, setting, stages = Size(4 * v, 8, 4), Setting(name), stages_of(4 * v, 4, v)
        report = within(pipeline(order), size, setting)
        least = [pipeline_memory_bound(size, setting, stages, report.timesteps + n).least for n in range(0, 60, 6)]
        assert least == sorted(least, reverse=True)
        assert len({*least}) > 1
        assert memory_bound(size, setting).least < least[0] <= report.peak.memory


@pytest.mark.parametrize("setting", [
    Setting("quarters", layer=BLOCK), Setting("streams", task="infer"), Setting("copies"),
    Setting("slow", steps=4, task="local"),
])  # fmt: skip
def test_where_no_memory_of_pipelines_is_known_the_bound_is_zero(setting: Setting) -> None:
    assert pipeline_memory_bound(Size(4, 8, 4), setting, stages_of(4, 4), 100).least == 0


def require_pipeline_within(seed: int) -> float:
    """A random order of a pipeline, and of one without flushes or in two directions: its peak over the bound."""
    choice = random.Random(seed)
    table, flush = random_pipeline(seed), True
    if (kind := choice.randrange(4)) == 0:
        p = choice.choice((2, 4))
        table = choice.choice((chimera, dualpipe))(p, 2 * p)
    elif kind == 1:
        table, flush = one_f_one_b(choice.randint(2, 4), 2 * choice.randint(4, 6), choice.randint(0, 2)), False
    ticks = {name: choice.randint(1, 9) for name in ("forward", "backward", "backward_input", "backward_weight")}
    ticks |= {name: choice.choice((0, 0, 2)) for name in ("loss", "update", "pass_to", "receive")}
    costs = Costs("any", ticks=ticks, gradient=choice.choice((None, 1024)))
    if choice.random() < 0.3:
        costs = replace(costs, slow={choice.randrange(table.ranks): Fraction(3, 2)})
    size = Size(table.stages * choice.randint(1, 2), table.batches // (1 if flush else 2), table.ranks)
    setting = Setting(costs, steps=choice.randint(1, 2) if flush else 2, lag=0 if flush else 1)
    outcome = finished(pipeline(table, flush=flush), *size, setting=setting)
    report, found = referee(outcome.trace), recognize(outcome.trace)
    assert report.error is None
    assert found is not None
    return report.peak.memory / max(1, pipeline_memory_bound(size, setting, found.stages, report.timesteps).least)


@pytest.mark.slow
def test_random_pipelines_are_within_the_bound_on_their_memory() -> None:
    assert 1 <= min(require_pipeline_within(seed) for seed in range(25)) < 3


# --- Traffic ---


def test_one_rank_in_all_the_time_of_the_world_sends_nothing() -> None:
    assert traffic_bound(Size(2, 4, 4), Setting(), 16).least == 0, "one rank computes for 16 steps"
    assert traffic_bound(Size(2, 4, 4), Setting(), 15.9).least > 0


@pytest.mark.parametrize(("timesteps", "received"), [(15.9, 1), (12.9, 2), (9.9, 3), (6.9, 4)])
def test_each_microbatch_that_is_not_computed_alone_is_received(timesteps: float, received: int) -> None:
    """A rank takes four steps for a microbatch alone and one with a gradient that it is sent: 16, 13, 10, 7 or 4. The
    gradients of two layers are as large as four activations."""
    costs = Setting().costs
    assert traffic_bound(Size(2, 4, 4), Setting(), timesteps).least == received * costs.activation // 4


def test_the_gradient_of_every_layer_is_the_most_that_has_to_be_sent() -> None:
    costs = Setting().costs
    assert traffic_bound(Size(2, 64, 4), Setting(), 66).least == 2 * costs.weight // 4
    assert traffic_bound(Size(2, 64, 3), Setting(), 66).least == -(-2 * costs.weight // 3), "rounded up"


@pytest.mark.parametrize("setting", [
    Setting("parts"), Setting("quarters", layer=BLOCK), Setting("experts", layer=EXPERTS),
    Setting("slow", steps=4, task="local"), Setting("streams", task="infer"),
])  # fmt: skip
def test_where_nothing_is_known_the_bound_is_zero(setting: Setting) -> None:
    assert traffic_bound(Size(2, 4, 4), setting, 1).least == 0
    assert traffic_bound(Size(2, 4, 1), Setting(), 1).least == 0


def test_where_a_forward_and_a_backward_can_be_paired_no_traffic_is_known() -> None:
    size, plain = Size(4, 4, 4), Costs()
    paired = replace(plain, name="paired", ticks={**plain.ticks, "pair": 10})
    assert traffic_bound(size, Setting(plain), 20).least > 0
    assert traffic_bound(size, Setting(paired), 20).least == 0, "a rank does more alone than the prices apart say"
