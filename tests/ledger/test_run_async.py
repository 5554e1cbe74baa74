"""`run_async` is `run` on somebody else's loop, and `run_nested` within one: the same traces, the same errors, and
nothing stays on the loop."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest

from lib import DeadlockError, Model, Setting, run, run_async, trace_to_json
from lib.ledger.runner import run_nested
from lib.pipelines import one_f_one_b, pipeline
from tests.support import CLASSICS, Classic
from tests.support.refusals import Refused


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
