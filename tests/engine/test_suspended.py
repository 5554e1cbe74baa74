"""Devices as tasks that a browser suspends: the same results, figures and messages as with greenlets."""

from collections.abc import Callable
from typing import Any

import pytest

from puzzles.catalog.engine import ENGINE_PUZZLES
from tests.support.engine_bodies import BODIES, EXHAUSTIVE
from tests.support.engine_bodies.script import refused
from tests.support.engine_trials import reference, score_class
from tests.support.suspending import with_suspended_tasks


def suspended(work: Callable[[], Any]) -> Any:
    """What a function returns, with devices as tasks that a browser suspends."""

    async def main() -> Any:
        return work()

    return with_suspended_tasks(main)


def both(work: Callable[[], Any]) -> Any:
    """The same, if it is the same with greenlets."""
    found = suspended(work)
    assert found == work()
    return found


@pytest.mark.sampled(6)
@pytest.mark.parametrize("body", [name for name in BODIES if name not in EXHAUSTIVE])
def test_a_body_passes(body: str) -> None:
    suspended(lambda: BODIES[body]("inprocess"))


def test_a_deadlock_is_told_alike_and_ends_its_devices() -> None:
    ended: list[int] = []

    def waits(me: Any, x: Any) -> Any:
        try:
            return me.receive((me.device_id + 1) % me.num_devices)
        finally:
            ended.append(int(me.device_id))

    said = both(lambda: refused("inprocess", waits))
    assert said.count("test_suspended.py") == 4
    assert sorted(ended) == sorted([0, 1, 2, 3] * 2)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("slug", ENGINE_PUZZLES)
def test_references_have_the_same_score(slug: str) -> None:
    puzzle = ENGINE_PUZZLES[slug]
    assert both(lambda: score_class(puzzle, reference(slug))).stars >= 2
