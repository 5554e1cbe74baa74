"""Runs that end in a refusal, a deadlock or a raise, and leave nothing behind."""

import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from lib import RuleError
from tests.oracles.collective_arrays import N

from .script import all_equal, facts_of, on_each, refused


def mismatches_of_groups_that_have_met(on: str) -> None:
    """They are named at once too, whichever of the devices comes first."""

    def does(me: Any, order: tuple[int, ...]) -> None:
        half = [0, 1] if me.device_id < 2 else [2, 3]
        for group in (None, half, half[::-1], None):
            me.barrier(group)
            me.all_reduce(np.ones(2), group=group)
        sum(range(300_000 * order.index(int(me.device_id))))
        if me.device_id % 2:
            me.all_gather(np.ones(2))
        else:
            me.all_reduce(np.ones(2), group=half)

    for order in ((0, 1, 2, 3), (3, 2, 1, 0)):
        text = refused(on, lambda me, _, order=order: does(me, order))
        assert text.startswith("MismatchError: device "), text


def late_devices_of_several_groups(on: str) -> None:
    """They are awaited for longer than it takes to tell that they are."""

    def does(me: Any, _: Any) -> list[float]:
        device, sums = int(me.device_id), []
        for turn in range(4):
            if device == turn:
                sum(range(2_000_000))
            for group in (None, [0, 1] if device < 2 else [3, 2], [0, 3] if device in (0, 3) else [1, 2]):
                sums.append(float(me.all_reduce(np.ones(1) * device, group=group)[0]))
        return sums

    halves = {0: (1.0, 3.0), 1: (1.0, 3.0), 2: (5.0, 3.0), 3: (5.0, 3.0)}
    assert on_each(on, does) == [[6.0, *halves[device]] * 4 for device in range(N)]


def waits_of(on: str, does: Callable[..., Any]) -> dict[str, list[int]]:
    """The devices of a deadlock by what they do, without its line."""
    return {state.partition(", line ")[0]: devices for state, devices in facts_of(on, does)["devices"].items()}


def deadlocks(on: str) -> None:
    text = refused(on, lambda me, _: me.receive((me.device_id + 1) % N))
    assert text.startswith("DeadlockError: nobody can move: "), text
    for i in range(N):
        assert f"device {i} waits in receive({(i + 1) % N}), line " in text, text
    assert "endings.py" in text
    ring = {i: (i, (i + 1) % N) for i in range(N)}
    states = waits_of(on, lambda me, _: me.all_reduce(np.ones(2), group=ring[me.device_id]))
    assert states["waits in all_reduce(float64 (2,), op='sum') in group (3, 0)"] == [3]
    states = waits_of(on, lambda me, _: me.barrier() if me.device_id else None)
    assert states == {"has returned": [0], "waits in barrier()": [1, 2, 3]}


def calls_of_another_thread(on: str) -> None:
    calls: list[Callable[[Any], Any]] = [
        lambda me: me.all_reduce(np.ones(1)),
        lambda me: me.barrier(),
        lambda me: me.send(0, np.ones(1)),
        lambda me: me.receive(0),
    ]
    for call in calls:

        def does(me: Any, _: Any, call: Any = call) -> None:
            if me.device_id == 1:
                with ThreadPoolExecutor(1) as pool:
                    pool.submit(call, me).result()

        text = refused(on, does)
        assert ("device 1 of 4" in text, "communicates from a thread" in text) == (True, True), text


class UnpicklableError(Exception):
    def __init__(self, one: str, two: str) -> None:
        super().__init__(one + two)


def _raise(error: Exception) -> Any:
    raise error


MISTAKES: dict[str, tuple[Callable[[], Any], str]] = {
    "of Python": (lambda: 1 / 0, "division by zero"),
    "of the player": (lambda: _raise(KeyError("the player's own")), "the player's own"),
    "of numpy": (lambda: np.linalg.inv(np.zeros((2, 2))), "Singular matrix"),
    "of the engine's caller": (lambda: np.ones(2) @ np.ones(3), "mismatch in its core dimension"),
    "not to be sent": (lambda: _raise(UnpicklableError("a", "b")), "ab"),
    "a refusal": (lambda: _raise(RuleError("the player's refusal")), "the player's refusal"),
}


def a_raise_ends_all(on: str) -> None:
    """All processes raise the error; those of other devices are told the player's lines, and none of the engine's."""
    for metered in (True, False):
        for what, (mistake, words) in MISTAKES.items():

            def does(me: Any, x: Any, mistake: Callable[[], Any] = mistake) -> Any:
                if me.device_id == 2:
                    return mistake()
                return me.receive(3) if me.device_id == 0 else me.barrier()

            caught: BaseException = AssertionError("this was not raised")
            try:
                on_each(on, does, metered=metered)
            except Exception as why:
                caught = why
            assert words in str(caught), (what, caught)
            first, *others = getattr(caught, "__notes__", []) or ["device 2 of 4, in forward"]
            assert "device 2 of 4," in first, first
            is_other = on == "mpi" and _process() != 2 and what != "a refusal"
            assert len(others) == is_other, (what, others)
            for note in others:
                files = re.findall(r'File ".*?(\w+/\w+\.py)"', note)
                assert set(files) == {"engine_bodies/script.py", "engine_bodies/endings.py"}, note
                assert "return mistake()" in note


def _process() -> int:
    from mpi4py import MPI

    return MPI.COMM_WORLD.rank


def many_launches(on: str) -> None:
    """Runs that fail, and clean ones with groups and large arrays, leave no communicator behind: few are left."""

    def fails(me: Any, x: Any) -> Any:
        if me.device_id == 2:
            raise KeyError(int(x))
        me.send((me.device_id + 1) % N, x)
        return me.barrier()

    pair = {0: (0, 1), 1: (0, 1), 2: (2, 3), 3: (2, 3)}

    def launches(times: int) -> None:
        for number in range(times):
            caught: list[Any] = []
            try:
                on_each(on, fails, np.array(number))
            except KeyError as why:
                caught.extend(why.args)
            assert caught == [number]
            got = on_each(on, lambda me, x: me.all_gather(x, group=pair[me.device_id]), np.full(600, number))
            assert all_equal(got, [np.full(1200, number)] * N)

    launches(1)  # what all runs share is made
    taken = _communicators_but(SPARE) if on == "mpi" else []
    launches(2 * SPARE)
    for comm in taken:
        comm.Free()


SPARE = 12
MOST_COMMUNICATORS = 5000


def _communicators_but(spare: int) -> list[Any]:
    """All communicators that this MPI still has but a few, and none if it has very many."""
    from mpi4py import MPI

    taken: list[Any] = []
    try:
        while len(taken) < MOST_COMMUNICATORS:
            taken.append(MPI.COMM_SELF.Dup())
    except MPI.Exception:
        for _ in range(spare):
            taken.pop().Free()
    return taken
