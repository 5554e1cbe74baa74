"""A schedule's family is read from its trace: right for all references and records, and for altered ones."""

from collections.abc import Callable
from typing import Any

import pytest

from lib import COSTS, Model, Setting, Size, referee, run
from lib.ledger.family import (
    DATA_PARALLEL,
    FAMILIES,
    MIXED,
    ONE_RANK,
    OWNERS_SEND,
    PIPELINE,
    REPEATED,
    SHARDED,
    SHARDED_PIPELINE,
    TENSOR_PIPELINE,
    VOCABULARY_PIPELINE,
)
from puzzles.catalog.schedule import PUZZLES
from solutions.vocab_parallel import vocab_parallel
from tests.ledger.test_random_programs import Choices
from tests.support import CLASSICS, finished
from tests.support.solved import SOME_PUZZLES, records_of, reference_of

OF_REFERENCE = {
    "basic": ONE_RANK,
    "grad_accum": ONE_RANK,
    "ddp": DATA_PARALLEL,
    "wsdp": SHARDED,
    "fsdp": SHARDED,
    "pipeline": PIPELINE,
    "gpipe": PIPELINE,
    "pipeline_fsdp": SHARDED_PIPELINE,
}


def family(schedule: Callable[[Model], Any], size: tuple[int, int, int], setting: Setting | None = None) -> str:
    outcome = finished(schedule, *size, setting=setting or Setting())
    report = referee(outcome.trace)
    assert report.error is None
    return report.family


def solution(slug: str) -> Callable[[Model], Any]:
    return next(classic.solution for classic in CLASSICS if classic.slug == slug)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("slug", SOME_PUZZLES)
def test_a_reference_is_of_its_family_at_every_size(slug: str) -> None:
    puzzle = PUZZLES[slug]
    assert puzzle.goal.family == OF_REFERENCE.get(slug, puzzle.goal.family)
    for size in (puzzle.goal.size, *puzzle.other_sizes):
        assert family(reference_of(slug), size, puzzle.goal.setting) == puzzle.goal.family


@pytest.mark.sampled(3)
@pytest.mark.parametrize("slug", SOME_PUZZLES)
def test_a_record_is_of_its_family_at_every_size(slug: str) -> None:
    puzzle = PUZZLES[slug]
    for record, function in records_of(slug):
        for size in puzzle.other_sizes:
            found = family(function, size, puzzle.goal.setting)
            assert found in (record.family, WITHOUT_SHARDS.get(record.by.partition(":")[0]))


WITHOUT_SHARDS = {
    "solutions/records/pipeline_fsdp_replicas.py": "a pipeline",
    "solutions/records/fsdp_layer_by_layer.py": "data parallelism",
}
"""By file of records that shard some weights: their kind at a size at which no weight is left to shard, since there is
one replica, or only layers that stay whole."""


class Altered:
    """A schedule with one thing done before or after it on some ranks."""

    def __init__(self, slug: str, before: Callable[[Model], Any] | None, after: Callable[[Model], Any] | None) -> None:
        self.schedule, self.before, self.after = solution(slug), before, after

    async def __call__(self, model: Model) -> None:
        if self.before is not None:
            await self.before(model)
        done = self.schedule(model)
        if hasattr(done, "__await__"):
            await done
        if self.after is not None:
            await self.after(model)


async def pass_an_activation_on(model: Model) -> None:
    """A message that nobody computes with."""
    if model.rank == 0:
        await model.pass_to(1, model.get_activation([0]))
    elif model.rank == 1:
        await model.receive(0)


async def compute_with_a_message(model: Model) -> None:
    if model.rank == 0:
        await model.pass_to(1, model.get_activation([0]))
    elif model.rank == 1:
        inp = await model.receive(0)
        model.forward(0, inp, model.load_weights(0)[0])


async def gather_a_weight(model: Model) -> None:
    await model.allgather(model.load_weights(0, model.rank, model.RANKS)[0], 0)


async def send_a_weight(model: Model) -> None:
    if model.rank == 0:
        await model.pass_to(1, model.load_weights(0)[0])
    elif model.rank == 1:
        await model.receive(0)


async def work_on_another_batch(model: Model) -> None:
    if model.rank == 1:
        model.forward(0, model.get_activation([0]), model.load_weights(0)[0])


async def work_on_another_layer(model: Model) -> None:
    """Rank 0 of a pipeline computes the second layer of rank 1 as well."""
    if model.rank == 0:
        inp = model.get_activation([0])
        for layer in range(4):
            inp = model.forward(layer, inp, model.load_weights(layer)[0])


SIZES = {classic.slug: classic.size for classic in CLASSICS}


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("slug", "change", "expected"),
    [
        ("ddp", pass_an_activation_on, DATA_PARALLEL),
        ("ddp", compute_with_a_message, MIXED),
        ("ddp", work_on_another_batch, MIXED),
        ("ddp", gather_a_weight, SHARDED),
        ("ddp", send_a_weight, OWNERS_SEND),
        ("fsdp", pass_an_activation_on, SHARDED),
        ("fsdp", send_a_weight, OWNERS_SEND),
        ("fsdp", compute_with_a_message, MIXED),
        ("gpipe", pass_an_activation_on, PIPELINE),
        ("gpipe", gather_a_weight, SHARDED_PIPELINE),
        ("gpipe", send_a_weight, SHARDED_PIPELINE),
        ("gpipe", work_on_another_layer, REPEATED),
        ("pipeline", compute_with_a_message, REPEATED),
        ("basic", None, ONE_RANK),
    ],
)
def test_an_altered_schedule_is_what_it_then_is(slug: str, change: Any, expected: str) -> None:
    assert family(Altered(slug, None, change), SIZES[slug]) == expected
    if change is not None:
        assert family(Altered(slug, change, None), SIZES[slug]) == expected


def test_one_rank_that_does_all_is_no_pipeline() -> None:
    async def alone(model: Model) -> None:
        if model.rank == 0:
            solution("basic")(model)

    assert family(alone, (2, 4, 3)) == ONE_RANK


def test_ranks_that_all_do_the_same_are_no_data_parallelism() -> None:
    assert family(lambda model: solution("basic")(model), (2, 4, 3)) == MIXED


def test_a_sharded_update_is_sharded_though_no_weight_is_gathered() -> None:
    """ZeRO-1: whole weights, optimizer states in shards; the updated parts are gathered at the end, or not at all."""

    async def zero_1(model: Model) -> None:
        weights, states, _, _, _ = model.storage()
        weight, state = model.load_weights(0)
        states[0] = state.shard(model.rank, model.RANKS)
        inp = model.get_activation([model.rank])
        grad, _ = model.backward(0, inp, model.loss(model.forward(0, inp, weight)), weight)
        part = await model.scatterreduce(grad, 0)
        weights[0], states[0] = model.update(0, part, weight.shard(model.rank, model.RANKS), states[0])
        model.set_final_weight(0, weights[0])

    assert family(zero_1, (1, 2, 2)) == SHARDED


def test_two_pipelines_side_by_side_are_a_pipeline() -> None:
    """Ranks 0 and 1 take batch 0, ranks 2 and 3 batch 1: equal stages on several ranks are replicas of one stage."""

    async def side_by_side(model: Model) -> None:
        first, batch = model.rank % 2 == 0, model.rank // 2
        layer = 0 if first else 1
        weight, state = model.load_weights(layer)
        inp = model.get_activation([batch]) if first else await model.receive()
        out = model.forward(layer, inp, weight)
        if first:
            await model.pass_to(model.rank + 1, out)
            out_grad = await model.receive()
        else:
            out_grad = model.loss(out)
        grad, inp_grad = model.backward(layer, inp, out_grad, weight)
        if not first:
            await model.pass_to(model.rank - 1, inp_grad)
        grads = [grad if layer == each else model.fake_grad(each, []) for each in (0, 1)]
        sums = [await model.allreduce(each, at) for at, each in enumerate(grads)]
        weight, state = model.update(layer, sums[layer], weight, state)
        model.set_final_weight(layer, weight)

    assert family(side_by_side, (2, 2, 4)) == PIPELINE


@pytest.mark.sampled(20)
@pytest.mark.parametrize("seed", range(60))
def test_random_data_parallel_schedules_are_never_called_a_pipeline(seed: int) -> None:
    size = Size(1 + seed % 3, 1 + seed % 4, 1 + seed % 4)
    trace = run(Choices(size.ranks, seed), *size).trace
    working = {rank for rank, ops in enumerate(trace.ranks) if any(op.name == "forward" for op in ops)}
    sharded = any(op.name == "allgather" for ops in trace.ranks for op in ops)
    found = referee(trace).family
    assert found in FAMILIES
    assert found == (ONE_RANK if len(working) < 2 else SHARDED if sharded else DATA_PARALLEL)


async def infer_in_stages(model: Model) -> None:
    """Each rank has one layer."""
    inp = model.get_activation([0]) if model.rank == 0 else await model.receive(model.rank - 1)
    out = model.forward(model.rank, inp, model.load_weights(model.rank)[0])
    if model.rank < model.RANKS - 1:
        await model.pass_to(model.rank + 1, out)
    else:
        model.set_output(out)


def test_a_pipeline_that_only_infers_is_a_pipeline() -> None:
    assert family(infer_in_stages, (3, 1, 3), Setting(task="infer")) == PIPELINE


async def stages_of_two_ranks(model: Model) -> None:
    """Each stage is one block, in two shards; in a stage both ranks have the whole activations."""
    stage, place = model.index("pp"), model.index("tp")
    first = stage == 0
    inp = model.get_activation([0]) if first else await model.receive(model.rank - 2)
    weight, state = model.load_weights(stage, place, 2)
    out = await model.allreduce(model.forward(stage, inp, weight), stage + 1, group="tp")
    if first:
        await model.pass_to(model.rank + 2, out)
    out_grad = await model.receive(model.rank + 2) if first else model.loss(out)
    grad, inp_grad = model.backward(stage, inp, out_grad, weight)
    if not first:
        await model.pass_to(model.rank - 2, await model.allreduce(inp_grad, 0, group="tp"))
    model.set_final_weight(stage, model.update(stage, grad, weight, state)[0])


def test_a_pipeline_whose_ranks_share_the_head_is_one_with_a_cut_head() -> None:
    setting = Setting("vocabulary_shards", kinds=("block", "block", "head"))
    assert family(vocab_parallel, (3, 2, 2), setting) == VOCABULARY_PIPELINE


def test_a_pipeline_of_tensor_parallel_stages_is_both() -> None:
    setting = Setting(COSTS["quarters"], mesh=(("pp", 2), ("tp", 2)), layer="block")
    assert family(stages_of_two_ranks, (2, 1, 4), setting) == TENSOR_PIPELINE


def test_batches_that_change_ranks_from_step_to_step_are_data_parallelism() -> None:
    async def rotating(model: Model) -> None:
        weight, state = model.load_weights(0)
        for step in range(2):
            inp = model.get_activation([(model.rank + step) % 2], step)
            grad, _ = model.backward(0, inp, model.loss(model.forward(0, inp, weight)), weight)
            weight, state = model.update(0, await model.allreduce(grad, 0), weight, state)
        model.set_final_weight(0, weight)

    assert family(rotating, (1, 2, 2), Setting(steps=2)) == DATA_PARALLEL
