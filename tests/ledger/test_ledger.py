"""Memory by kind adds up to what the referee measures, and tells what is stored from what is not."""

from __future__ import annotations

import pytest

from lib import Model, Share, memory_by_kind, referee, run
from tests.support import CLASSICS, Classic

WEIGHT, ACTIVATION = 512 * 512, 512 * 256


@pytest.mark.parametrize("classic", CLASSICS, ids=lambda classic: classic.slug)
def test_the_kinds_add_up_to_the_referees_memory(classic: Classic) -> None:
    trace = run(classic.solution, *classic.size).trace
    added = [tuple(sum(sum(share) for share in sample) for sample in rank) for rank in memory_by_kind(trace)]
    assert added == [rank.memory for rank in referee(trace).ranks]


def test_what_is_kept_in_a_local_variable_is_hidden() -> None:
    def schedule(model: Model) -> None:
        model.weights[0], state = model.load_weights(0)
        model.activations[0] = model.get_activation([0])
        model.activations[1] = model.forward(0, model.activations[0], model.weights[0])
        grad = model.loss(model.activations[1])
        model.grad_weights[0], _ = model.backward(0, model.activations[0], grad, model.weights[0])
        model.update(0, model.grad_weights[0], model.weights[0], state)

    (samples,) = memory_by_kind(run(schedule, 1, 1, 1).trace)
    assert [sample.opt_states for sample in samples] == [Share(0, WEIGHT)] * 4 + [Share(0, 0)]
    assert [sample.gradients for sample in samples] == [
        Share(0, 0), Share(0, 0), Share(0, ACTIVATION), Share(WEIGHT, 0), Share(WEIGHT, 0)
    ]  # fmt: skip
    assert samples[0] == (Share(WEIGHT, 0), Share(0, WEIGHT), Share(ACTIVATION, 0), Share(0, 0))


def test_an_illegal_trace_is_measured_as_far_as_it_goes() -> None:
    async def schedule(model: Model) -> None:
        model.weights[0], _ = model.load_weights(0)
        model.forward(0, model.get_activation([0]), model.weights[0])
        await model.receive()

    trace = run(schedule, 1, 1, 1).trace
    assert [len(rank) for rank in memory_by_kind(trace)] == [len(rank.memory) for rank in referee(trace).ranks] == [2]


def test_each_wait_names_what_it_waited_for() -> None:
    async def schedule(model: Model) -> None:
        weight, _ = model.load_weights(0)
        if model.rank == 0:
            out = model.forward(0, model.get_activation([0]), weight)
            await model.pass_to(1, out)
        else:
            await model.receive()
        await model.allgather(weight.shard(model.rank, 2), 0)

    trace = run(schedule, 1, 1, 2).trace
    named = [
        {ops[i].name: (rank, trace.ranks[rank][j].name) for i, (rank, j) in waits.items()}
        for ops, waits in zip(trace.ranks, referee(trace).waits, strict=True)
    ]
    assert named == [{"allgather": (1, "allgather")}, {"receive": (0, "pass_to")}]
