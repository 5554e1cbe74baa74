"""Waiting is never silent: every hang ends at once, and says who waits for what, and where."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

import pytest

from lib import DeadlockError, Dist, MismatchError, Model, PuzzleError, run
from tests.support.refusals import Refused

CASES: dict[str, tuple[Any, int, type[PuzzleError], Refused]] = {}


def hangs(ranks: int, error: type[PuzzleError], expected: Refused) -> Callable[[Any], Any]:
    """Registers a schedule on which `ranks` ranks wait for ever, and their refusal."""

    def register(schedule: Any) -> Any:
        CASES[schedule.__name__] = (schedule, ranks, error, expected)
        return schedule

    return register


def shard(model: Model, layer: int = 0) -> Any:
    return model.load_weights(layer, model.rank, model.RANKS)[0]


@hangs(
    2,
    MismatchError,
    Refused("other calls", first="rank 0 calls allreduce(layer=0)", other="rank 1 calls allgather(layer=0)"),
)
async def different_collectives(model: Model) -> None:
    if model.rank == 0:
        await model.allreduce(model.fake_grad(0, []), 0)
    else:
        await model.allgather(shard(model), 0)


@hangs(
    2,
    MismatchError,
    Refused("other calls", first="rank 0 calls allgather(layer=0)", other="rank 1 calls allgather(layer=1)"),
)
async def different_layers(model: Model) -> None:
    await model.allgather(shard(model, model.rank), model.rank)


@hangs(
    3,
    MismatchError,
    Refused("other calls", first="rank 0 calls allgather(layer=0)", other="rank 2 calls allgather(layer=1)"),
)
async def different_layers_and_one_is_missing(model: Model) -> None:
    if model.rank != 1:
        await model.allgather(shard(model, model.rank // 2), model.rank // 2)


@hangs(
    3,
    DeadlockError,
    Refused(
        "nobody can move",
        waits={0: "allgather(layer=0)", 2: "allgather(layer=0)"},
        of={0: (1,), 2: (1,)},
        absent={1: "has returned"},
    ),
)
async def one_returns_while_others_wait(model: Model) -> None:
    await model.allgather(shard(model, 1), 1)
    if model.rank != 1:
        await model.allgather(shard(model), 0)


@hangs(2, DeadlockError, Refused("nobody can move", waits={0: "allgather(layer=0)"}, of={0: (1,)}))
async def one_returns_without_any_meeting(model: Model) -> None:
    if model.rank == 0:
        await model.allgather(shard(model), 0)


@hangs(2, DeadlockError, Refused("nobody can move", waits={0: "receive()", 1: "receive(0)"}, of={0: (), 1: (0,)}))
async def both_receive(model: Model) -> None:
    await (model.receive() if model.rank == 0 else model.receive(0))


@hangs(
    2,
    DeadlockError,
    Refused(
        "nobody can move",
        waits={0: "pass_to(1)", 1: "pass_to(0)"},
        of={0: (1,), 1: (0,)},
        cycle=[(0, 1), (1, 0)],
    ),
)
async def both_send_twice_before_receiving(model: Model) -> None:
    other = 1 - model.rank
    await model.pass_to(other, "first")
    await model.pass_to(other, "second")
    await model.receive()
    await model.receive()


@hangs(
    3,
    DeadlockError,
    Refused(
        "nobody can move",
        of={0: (1,), 1: (2,), 2: (1,)},
        cycle=[(1, 2), (2, 1)],
        unsent={1: "input activation of layer 1, batch 0 of 2"},
    ),
)
async def goes_back_before_it_sends(model: Model) -> None:
    if model.rank != 1:
        return await model.receive(1)
    weight, _ = model.load_weights(0)
    out = model.forward(0, model.get_activation([0]), weight)
    gradient = await model.receive(2)
    await model.pass_to(2, out)
    await model.pass_to(0, gradient)


@hangs(
    2,
    DeadlockError,
    Refused(
        "nobody can move",
        waits={1: "receive()"},
        of={1: ()},
    ),
)
async def a_forgotten_await(model: Model) -> None:
    if model.rank == 0:
        model.pass_to(1, "hello")
        await asyncio.sleep(0)
    else:
        await model.receive()


@hangs(
    2,
    DeadlockError,
    Refused(
        "nobody can move",
        waits={0: "allgather(layer=1)"},
        of={0: (1,)},
        absent={1: "stopped with ZeroDivisionError (integer division or modulo by zero)"},
    ),
)
async def one_dies(model: Model) -> None:
    await model.allgather(shard(model), 0)
    if model.rank == 1:
        model.load_weights(1 // (1 - model.rank))
    await model.allgather(shard(model, 1), 1)


def waiting_errors(results: Any, error: type[PuzzleError]) -> list[PuzzleError]:
    return [result for result in results if isinstance(result, error)]


@pytest.mark.parametrize("name", CASES)
def test_ends_at_once_in_the_runner(name: str) -> None:
    schedule, ranks, error, expected = CASES[name]
    outcome = run(schedule, 2, 2, ranks)
    found = waiting_errors(outcome.errors, error)
    assert found, outcome.errors
    expected.require(found[0])
    assert all(
        str(why).startswith(f"rank {model.rank}, t=")
        for model, why in zip(outcome.models, outcome.errors)
        if why in found
    )


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", CASES)
async def test_ends_within_a_second_under_plain_gather(name: str) -> None:
    schedule, ranks, error, expected = CASES[name]
    dist = Dist(ranks)
    before = asyncio.all_tasks()
    running = asyncio.gather(*(schedule(Model(rank, dist, 2, 2)) for rank in range(ranks)), return_exceptions=True)
    results = await asyncio.wait_for(running, timeout=5)
    found = waiting_errors(results, error)
    assert found, results
    expected.require(found[0])
    assert asyncio.all_tasks() == before


@pytest.mark.parametrize("name", CASES)
def test_says_the_same_in_whatever_order_the_ranks_start(name: str) -> None:
    schedule, ranks, _, _ = CASES[name]
    told = [
        [str(error) for error in run(schedule, 2, 2, ranks, order).errors]
        for order in (range(ranks), reversed(range(ranks)))
    ]
    assert told[0] == told[1]


def test_names_the_line_in_the_players_file() -> None:
    lines, start = inspect.getsourcelines(both_receive)
    line = start + next(i for i, text in enumerate(lines) if "model.receive()" in text)
    error = run(both_receive, 2, 2, 2).errors[0]
    assert isinstance(error, DeadlockError)
    assert error.line == line
    assert f"on line {line}" in str(error)


def test_of_a_circle_the_rank_is_told_that_has_not_sent_its_result() -> None:
    outcome = run(goes_back_before_it_sends, 2, 2, 3)
    assert outcome.error is outcome.errors[1], "the others wait longer, and have nothing to send"


def test_the_cause_is_told_not_its_consequence() -> None:
    assert isinstance(run(one_dies, 2, 2, 2).error, ZeroDivisionError)


def test_a_wait_outside_the_game_ends_too() -> None:
    async def waits_for_an_event(model: Model) -> None:
        if model.rank == 0:
            await asyncio.Event().wait()
        await model.receive()

    errors = run(waits_for_an_event, 2, 2, 2).errors
    line = waits_for_an_event.__code__.co_firstlineno + 2
    assert all(isinstance(error, DeadlockError) for error in errors)
    outside = {0: "waits for something outside the game"}
    Refused("nobody can move", waits={1: "receive()"}, absent=outside).require(errors[1])
    assert all(f"on line {line} for something outside" in str(error) for error in errors)


async def test_one_rank_s_error_reaches_a_plain_gather_first() -> None:
    dist = Dist(2)
    with pytest.raises(ZeroDivisionError):
        await asyncio.gather(*(one_dies(Model(rank, dist, 2, 2)) for rank in range(2)))


async def test_a_missing_model_is_named() -> None:
    with Refused(
        "nobody can move",
        waits={0: "receive()"},
        of={0: ()},
        absent={1: "has no Model", 2: "has no Model", 3: "has no Model"},
        error=DeadlockError,
    ):
        await Model(0, Dist(4)).receive()


async def test_a_cancelled_rank_leaves_no_trace_of_its_wait() -> None:
    dist = Dist(2)
    models = [Model(rank, dist) for rank in range(2)]
    waiting = asyncio.create_task(models[0].allgather(shard(models[0]), 0))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    both = await asyncio.gather(*(model.allgather(shard(model), 0) for model in models))
    assert [weight.is_complete() for weight in both] == [True, True]


async def test_a_rank_may_wait_in_a_helper_task() -> None:
    async def patient(model: Model) -> Any:
        whole = await asyncio.wait_for(model.allgather(shard(model), 0), timeout=5)
        await asyncio.sleep(0)
        return await asyncio.wait_for(model.allgather(shard(model, 1), 1), timeout=5) if whole else None

    dist = Dist(3)
    results = await asyncio.gather(*(patient(Model(rank, dist)) for rank in range(3)))
    assert [weight.layer for weight in results] == [1, 1, 1]


async def test_a_rank_does_one_thing_at_a_time() -> None:
    async def hasty(model: Model) -> None:
        first = asyncio.create_task(model.allgather(shard(model), 0))
        await asyncio.sleep(0)
        try:
            await model.receive()
        finally:
            first.cancel()

    with Refused("rank still waits", call="allgather(layer=0)"):
        await hasty(Model(0, Dist(2)))


def test_a_new_model_for_a_rank_starts_a_new_run() -> None:
    dist = Dist(2)
    first = [Model(rank, dist) for rank in range(2)]
    first[0].get_activation([0])
    again = [Model(rank, dist) for rank in range(2)]
    assert again[0].run is again[1].run is not first[0].run


def test_ranks_of_one_dist_share_one_model() -> None:
    dist = Dist(2)
    Model(0, dist, layers=2)
    with Refused("sizes differ", rank=1, layers=6, batches=1, other=0, other_layers=2, other_batches=1):
        Model(1, dist, layers=6)
