"""`run_nested` is `run` from within a running loop: the same traces, the same errors, and the loop goes on after it."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest

from lib import DeadlockError, Model, PuzzleError, Setting, run, trace_to_json
from lib.runtime.nested import run_nested
from lib.schedules import one_f_one_b, pipeline
from tests.support import CLASSICS, Classic


@pytest.mark.parametrize("classic", CLASSICS, ids=lambda classic: classic.slug)
async def test_the_trace_is_the_same(classic: Classic) -> None:
    outcome = run_nested(classic.solution, *classic.size)
    alone = await asyncio.to_thread(run, classic.solution, *classic.size)
    assert outcome.error is None
    assert trace_to_json(outcome.trace) == trace_to_json(alone.trace)


def test_it_runs_where_no_loop_is_running() -> None:
    assert run_nested(pipeline(one_f_one_b), 2, 3, 2).trace == run(pipeline(one_f_one_b), 2, 3, 2).trace


async def test_it_takes_a_setting() -> None:
    async def averaged(model: Model) -> None:
        await model.allreduce(model.fake_grad(0, [model.index("dp")]), 0, group="dp")

    setting = Setting(mesh={"dp": 8})
    outcome = run_nested(averaged, 1, 8, 8, setting=setting)
    alone = await asyncio.to_thread(run, averaged, 1, 8, 8, setting=setting)
    assert (len(outcome.models), outcome.trace) == (8, alone.trace)


async def deadlocked(model: Model) -> None:
    if model.rank == 1:
        raise ValueError("not today")
    await model.receive(1)


async def waits_outside(model: Model) -> None:
    if model.rank == 0:
        await asyncio.Event().wait()
    await model.receive(0)


@pytest.mark.parametrize("schedule", [deadlocked, waits_outside])
async def test_the_errors_are_the_same(schedule: Any) -> None:
    outcome = run_nested(schedule, 1, 1, 3)
    alone = await asyncio.to_thread(run, schedule, 1, 1, 3)
    assert list(map(str, outcome.errors)) == list(map(str, alone.errors))
    assert isinstance(outcome.errors[2], DeadlockError)


async def test_a_size_that_there_is_not_is_refused_and_the_loop_goes_on() -> None:
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    with pytest.raises(PuzzleError, match="ranks"):
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
