"""Copies from one memory tier to another: what is refused, how long they take, what they hold, and what they carry."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from lib import Model, Setting, referee, run
from lib.engine.replay.rank import ReplayEngine
from lib.engine.replay.replay import replay
from lib.ledger.costs import Tier
from tests.support.refusals import Refused
from tests.support.schedules.tiers import TWO_TIERS, moved

IN_TURN = replace(TWO_TIERS, name="in turn", overlap=False)
WEIGHT = 512 * 512


def tiers(**changed: Tier) -> Setting:
    return Setting(replace(TWO_TIERS, tiers={**TWO_TIERS.tiers, **changed}))


# --- Refusals ---


async def to_where_it_is(model: Model) -> None:
    await model.move(model.load_weights(0, tier="host")[0], to="host")


async def to_no_tier(model: Model) -> None:
    await model.move(model.load_weights(0, tier="host")[0], to="cloud")


async def from_the_device(model: Model) -> None:
    await model.move(model.load_weights(0)[0], to="disk")


async def to_the_disk(model: Model) -> None:
    model.parked[0] = await model.move(model.load_weights(0, tier="host")[0], to="disk")


REFUSED: dict[Callable[[Model], Any], tuple[Setting, Refused]] = {
    to_where_it_is: (tiers(), Refused("moved already", value="weight of layer 0, unsharded, step 0, on the host")),
    to_no_tier: (tiers(), Refused("no such tier", tier="cloud", costs="two tiers", known="host, disk")),
    from_the_device: (tiers(), Refused("wrong kind for use", use="the value to move", kind="a parked value")),
}


@pytest.mark.parametrize("wrong", REFUSED)
def test_what_cannot_be_moved_is_refused_in_words(wrong: Callable[[Model], Any]) -> None:
    setting, expected = REFUSED[wrong]
    expected.require(run(wrong, 1, 1, 1, setting=setting).error)


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        (Setting("host_updates"), Refused("no price", operation="move", costs="host_updates")),
        (tiers(host=Tier(10, None)), Refused("no price", operation="fetch for the tier 'host'")),
        (tiers(disk=Tier(None, 50)), Refused("no price", operation="offload for the tier 'disk'")),
        (tiers(disk=Tier(40, 50, 100)), Refused("tier full", tier="disk", there=0, capacity=100)),
    ],
)
def test_a_move_needs_two_tiers_with_prices_and_room(setting: Setting, expected: Refused) -> None:
    expected.require(run(to_the_disk, 1, 1, 1, setting=setting).error)


def test_a_pending_move_is_not_stored() -> None:
    async def schedule(model: Model) -> None:
        model.parked[0] = model.move(model.load_weights(0, tier="host")[0], to="disk")  # type: ignore[assignment]

    error = run(schedule, 1, 1, 1, setting=Setting(TWO_TIERS)).error
    pending = "the result of move() on line 74, which is still pending; await it first"
    Refused("wrong dictionary", dictionary="parked", got=pending).require(error)


# --- Time and memory, by hand: a fetch from one tier and an offload to the other, and 10 ticks a weight for each ---


@pytest.mark.parametrize("costs", [TWO_TIERS, IN_TURN], ids=["beside", "in turn"])
def test_a_move_takes_a_fetch_and_an_offload(costs: Any) -> None:
    trace = run(moved, 1, 1, 1, setting=Setting(costs)).trace
    times = [(op.end or 0) - (op.start or 0) for op in trace.ranks[0] if op.name == "move"]
    assert times == [50 + 10 + 10 + 10, 50 + 20 + 10 + 20, 20 + 10 + 40 + 10]
    report = referee(trace)
    assert report.error is None
    assert report.makespan * 10 == 80 + 100 + 30 + 30 + 20 + 30 + 80 + 60
    assert report.peaks["disk"].memory == (1 + 2) * WEIGHT
    assert report.peaks["host"].memory == (1 + 2 + 1) * WEIGHT


def test_moves_run_beside_copies_to_and_from_the_device() -> None:
    async def schedule(model: Model) -> None:
        held = [model.load_weights(layer)[0] for layer in range(3)]
        coming = [model.fetch(model.move(model.offload(weight), to="disk")) for weight in held]
        for handle in coming:
            await handle

    (ops,) = run(schedule, 3, 1, 1, setting=Setting(TWO_TIERS)).trace.ranks
    times = {name: [(op.start, op.end) for op in ops if op.name == name] for name in ("offload", "move", "fetch")}
    assert times == {
        "offload": [(0, 20), (20, 40), (40, 60)],
        "move": [(20, 100), (100, 180), (180, 260)],
        "fetch": [(100, 160), (180, 240), (260, 320)],
    }


# --- On tensors ---


@pytest.mark.parametrize("nth", [1, 2, 3])
def test_zeroing_a_moved_tensor_changes_the_weights(nth: int, monkeypatch: pytest.MonkeyPatch) -> None:
    trace = run(moved, 1, 2, 1, setting=Setting(TWO_TIERS)).trace
    right, calls = ReplayEngine.without_device, [0]

    def wrong(engine: ReplayEngine, op: Any, make: Any) -> Any:
        calls[0] += op.name == "move"
        zero = op.name == "move" and calls[0] % 3 == nth % 3
        return right(engine, op, (lambda op, there: [array * 0 for array in there]) if zero else make)

    monkeypatch.setattr(ReplayEngine, "without_device", wrong)
    assert not replay(trace, small=True).same_weights
    assert calls[0] == 2 * 3, "the warm-up, and the replay that is measured"
