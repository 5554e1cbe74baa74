"""The runner: the same traces and errors on any loop, and no silent wait."""

import asyncio
import inspect
import socket
from collections.abc import Callable
from typing import Any

import pytest

from lib import DeadlockError, Dist, MismatchError, Model, PuzzleError, Setting, run, run_async, trace_to_json
from lib.ledger.runner import run_nested
from lib.pipelines import one_f_one_b, pipeline
from tests.support import CLASSICS, Classic
from tests.support.refusals import Refused

# === run_async and run_nested give what run gives ===


@pytest.mark.sampled(3)
@pytest.mark.parametrize("classic", CLASSICS, ids=lambda classic: classic.slug)
async def test_the_trace_is_the_same(classic: Classic) -> None:
    alone = await asyncio.to_thread(run, classic.solution, *classic.size)
    for outcome in (await run_async(classic.solution, *classic.size), run_nested(classic.solution, *classic.size)):
        assert outcome.error is None
        assert trace_to_json(outcome.trace) == trace_to_json(alone.trace)


async def deadlocked(model: Model) -> None:
    if model.rank == 1:
        raise ValueError("not today")
    await model.receive(1)


async def elsewhere(model: Model) -> None:
    if model.rank == 0:
        await asyncio.Event().wait()
    await model.receive(0)


async def all_elsewhere(model: Model) -> None:
    await asyncio.Event().wait()


@pytest.mark.parametrize("schedule", [deadlocked, elsewhere, all_elsewhere])
async def test_the_errors_are_the_same(schedule: Any) -> None:
    before = asyncio.all_tasks()
    alone = await asyncio.to_thread(run, schedule, 2, 2, 3)
    for outcome in (await run_async(schedule, 2, 2, 3, patience=0.03), run_nested(schedule, 2, 2, 3)):
        assert [(type(e), str(e)) for e in outcome.errors] == [(type(e), str(e)) for e in alone.errors]
        assert asyncio.all_tasks() == before


async def test_it_does_not_matter_who_else_is_on_the_loop() -> None:
    async def busy() -> None:
        while True:
            await asyncio.sleep(0)

    other = asyncio.create_task(busy())
    outcome = await run_async(elsewhere, 1, 1, 2, patience=0.03)
    assert isinstance(outcome.error, DeadlockError)
    assert "rank 0 waits on" in str(outcome.error)
    assert not other.done()
    other.cancel()
    await asyncio.wait([other])


async def test_a_wait_outside_that_ends_in_time_is_fine() -> None:
    ends = asyncio.get_running_loop().create_future()

    async def patient(model: Model) -> None:
        if model.rank == 0:
            asyncio.get_running_loop().call_later(0.01, ends.set_result, None)
            await ends
            await model.pass_to(1, "now")
        else:
            assert await model.receive() == "now"

    assert (await run_async(patient, 1, 1, 2)).error is None


async def test_cancelled_it_ends_its_ranks() -> None:
    started = asyncio.Event()

    async def waits(model: Model) -> None:
        started.set()
        await asyncio.Event().wait()

    before = asyncio.all_tasks()
    task = asyncio.create_task(run_async(waits, 1, 1, 4))
    await started.wait()
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    assert asyncio.all_tasks() == before


async def test_run_on_a_running_loop_names_run_async() -> None:
    async def nothing(model: Model) -> None:
        pass

    with Refused("loop is running"):
        run(nothing, 1, 1, 1)
    assert (await run_async(nothing, 1, 1, 1)).error is None


# --- Within a loop: `run_nested` ---


def test_it_runs_where_no_loop_is_running() -> None:
    assert run_nested(pipeline(one_f_one_b), 2, 3, 2).trace == run(pipeline(one_f_one_b), 2, 3, 2).trace


async def test_it_takes_a_setting() -> None:
    async def averaged(model: Model) -> None:
        await model.allreduce(model.fake_grad(0, [model.index("dp")]), 0, group="dp")

    setting = Setting(mesh={"dp": 8})
    outcome = run_nested(averaged, 1, 8, 8, setting=setting)
    alone = await asyncio.to_thread(run, averaged, 1, 8, 8, setting=setting)
    assert (len(outcome.models), outcome.trace) == (8, alone.trace)


async def test_a_size_that_there_is_not_is_refused_and_the_loop_goes_on() -> None:
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    with Refused("too small", thing="ranks"):
        run_nested(deadlocked, 1, 1, 0)
    assert (asyncio.get_running_loop(), asyncio.current_task()) == (loop, task)


async def test_others_on_the_loop_go_on_afterwards() -> None:
    """They do nothing meanwhile, and nothing of the run is left with them."""
    loop, task, others = asyncio.get_running_loop(), asyncio.current_task(), asyncio.all_tasks()
    seen: list[str] = []

    async def other() -> None:
        seen.append("before")
        await asyncio.sleep(0)
        seen.append("after")

    beside = asyncio.create_task(other())
    await asyncio.sleep(0)
    run_nested(pipeline(one_f_one_b), 4, 8, 4)
    assert seen == ["before"]
    await beside
    assert seen == ["before", "after"]
    assert (asyncio.get_running_loop(), asyncio.current_task(), asyncio.all_tasks()) == (loop, task, others)


async def test_it_needs_no_sockets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pyodide has none, of which asyncio's own loops make a pair."""

    def refuse(*args: object) -> None:
        raise OSError("no sockets here")

    monkeypatch.setattr(socket, "socketpair", refuse)
    assert run_nested(pipeline(one_f_one_b), 2, 3, 2).error is None


# === Every hang ends at once, and says who waits for what, and where ===


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
