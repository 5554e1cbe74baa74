"""Memory tiers: updates on them and copies between them: refusals, times, memory, and tensors."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from lib import Model, RuleError, Setting, TraceError, referee, run, trace_from_json, trace_to_json
from lib.engine.replay.rank import ReplayEngine
from lib.engine.replay.replay import replay
from lib.ledger.costs import Tier
from lib.ledger.named_costs import COSTS
from lib.ledger.setting import Size
from lib.pipelines.bounds import memory_bound, time_bound
from puzzles.catalog.schedule import PUZZLES
from solutions.host_update import host_update
from tests.support.refusals import Refused
from tests.support.schedules.tiers import TWO_TIERS, moved

# === Updates on a memory tier ===


COSTS_HERE = COSTS["host_updates"]
UPDATES_IN_TURN = replace(COSTS_HERE, name="in turn", overlap=False)
GAME = Setting("host_updates", steps=3, lag=1)


async def gradient(model: Model, batches: Any = (0,)) -> Any:
    """The gradient of layer 0, with some microbatches."""
    weight, _ = model.load_weights(0)
    inp = model.get_activation(batches)
    grad, _ = model.backward(0, inp, model.loss(model.forward(0, inp, weight)), weight)
    return grad


async def state_on_device(model: Model) -> None:
    _, state = model.load_weights(0)
    weight, _ = model.load_weights(0, tier="host")
    await model.update(0, await model.offload(await gradient(model)), weight, state, on="host")


async def gradient_on_device(model: Model) -> None:
    await model.update(0, await gradient(model), *model.load_weights(0, tier="host"), on="host")


async def gradient_on_device_later(model: Model) -> None:
    weight, state = model.load_weights(0, tier="host")
    new = await gradient(model)
    await model.update(0, model.fetch(model.offload(new)), weight, state, on="host")


async def another_tier(model: Model) -> None:
    weight, state = model.load_weights(0, tier="disk")
    await model.update(0, await model.offload(await gradient(model)), weight, state, on="host")


async def no_processor(model: Model) -> None:
    weight, state = model.load_weights(0, tier="disk")
    await model.update(0, await model.offload(await gradient(model), "disk"), weight, state, on="disk")


async def no_such_tier(model: Model) -> None:
    await model.update(0, await gradient(model), *model.load_weights(0), on="cloud")


async def part_of_the_batches(model: Model) -> None:
    weight, state = model.load_weights(0, tier="host")
    await model.update(0, await model.offload(await gradient(model, [0])), weight, state, on="host")


async def updated_twice(model: Model) -> None:
    weight, state = model.load_weights(0, tier="host")
    there = await model.offload(await gradient(model, [0, 1]))
    weight, state = await model.update(0, there, weight, state, on="host")
    await model.update(0, there, weight, state, on="host")


async def parked_on_the_device(model: Model) -> None:
    model.update(0, await gradient(model, [0, 1]), *model.load_weights(0, tier="host"))  # type: ignore[arg-type]


async def pending_update(model: Model, batches: Any = (0, 1)) -> Any:
    """The handle of an update on the host."""
    weight, state = model.load_weights(0, tier="host")
    return model.update(0, model.offload(await gradient(model, batches)), weight, state, on="host")


async def stored_too_early(model: Model) -> None:
    model.parked["weight"] = (await pending_update(model))[0]


async def declared_too_early(model: Model) -> None:
    model.set_final_weight(0, (await pending_update(model))[0])


async def unpacked_too_early(model: Model) -> None:
    _, _ = await pending_update(model)


async def one_result_awaited(model: Model) -> None:
    await (await pending_update(model))[1]


async def refused_before(model: Model) -> None:
    update = await pending_update(model, [0])
    await model.fetch(update[0])


REFUSED_UPDATES: dict[Callable[[Model], Any], Refused] = {
    state_on_device: Refused("not on the tier", tier="host"),
    gradient_on_device: Refused("not on the tier", tier="host"),
    gradient_on_device_later: Refused("not on the tier", tier="host"),
    another_tier: Refused("value not on tier", tier="host", value="weight of layer 0, unsharded, step 0, on the disk"),
    no_processor: Refused("tier without update", tier="disk"),
    no_such_tier: Refused("no such tier", tier="cloud", costs="two tiers", known="host, disk"),
    part_of_the_batches: Refused("batches missing", batches="batch 0 of 2", missing="batch 1"),
    updated_twice: Refused("updated twice"),
    parked_on_the_device: Refused(
        "update on the tier", weight="weight of layer 0, unsharded, step 0, on the host", tier="host"
    ),
}
HOST_AND_DISK = {"host": Tier(0, 0, None, 30), "disk": Tier(0, 0)}


@pytest.mark.parametrize("overlap", [True, False])
@pytest.mark.parametrize("wrong", REFUSED_UPDATES)
def test_what_an_update_on_a_tier_cannot_be_is_refused_in_words(wrong: Callable[[Model], Any], overlap: bool) -> None:
    if not overlap and wrong is gradient_on_device_later:
        pytest.skip("there are no handles to pass on")
    setting = Setting(replace(COSTS_HERE, name="two tiers", tiers=HOST_AND_DISK, overlap=overlap))
    error = run(wrong, 1, 2, 1, setting=setting).error
    REFUSED_UPDATES[wrong].require(error)


def test_without_a_processor_there_is_no_such_call() -> None:
    error = run(gradient_on_device, 1, 1, 1, setting=Setting("copies")).error
    Refused("no price", operation="tier_update", costs="copies").require(error)


PENDING: dict[Callable[[Model], Any], Refused] = {
    stored_too_early: Refused("wrong dictionary", dictionary="parked"),
    declared_too_early: Refused("wrong kind for use", use="weight", kind="a weight"),
    unpacked_too_early: Refused("handle not awaited"),
    one_result_awaited: Refused("result not awaited", result="result 1 of update(layer=0)"),
    refused_before: Refused("batches missing", batches="batch 0 of 2", missing="batch 1"),
}


@pytest.mark.parametrize("wrong", PENDING)
def test_what_is_done_too_early_with_a_pending_update_is_refused(wrong: Callable[[Model], Any]) -> None:
    PENDING[wrong].require(run(wrong, 1, 2, 1, setting=Setting(COSTS_HERE)).error)


def test_only_the_rank_that_made_a_handle_passes_on_what_it_makes() -> None:
    handles: list[Any] = []

    async def schedule(model: Model) -> None:
        weight, state = model.load_weights(0, tier="host")
        if model.rank == 0:
            leaving = model.offload(await gradient(model))
            handles.append(model.update(0, leaving, weight, state, on="host"))
        else:
            model.fetch(handles[0][0])

    error = run(schedule, 1, 1, 2, setting=Setting(COSTS_HERE)).error
    Refused("handle used elsewhere").require(error)


# --- Time and memory ---


async def one_step(model: Model) -> None:
    """Trains layer 0 with its update on the host, one call after the other."""
    parked = model.parked
    parked["weight"], parked["state"] = model.load_weights(0, tier="host")
    parked["grad"] = await model.offload(await gradient(model))
    updated = model.update(0, parked["grad"], parked["weight"], parked["state"], on="host")
    parked["weight"], parked["state"] = await updated
    del parked["grad"]
    model.weights[0] = await model.fetch(parked["weight"])
    model.set_final_weight(0, model.weights[0])


@pytest.mark.parametrize("costs", [COSTS_HERE, UPDATES_IN_TURN])
def test_an_update_takes_the_time_of_its_tier(costs: Any) -> None:
    report = referee(run(one_step, 1, 1, 1, setting=Setting(costs)).trace)
    assert report.error is None
    assert report.makespan == 3 + 1 + 3 + 1
    weight = 512 * 512
    assert report.peaks["host"].memory == (1 + 2 + 1) * weight  # the weight, a state of two moments, and the gradient
    assert referee(run(one_step, 1, 1, 1, setting=Setting(costs)).trace).ranks[0].busy == (
        0.375 if costs.overlap else 1
    )


def test_the_host_updates_while_the_device_computes() -> None:
    report = referee(run(host_update, 6, 2, 1, setting=GAME).trace, PUZZLES["host_update"].goal)
    assert report.error is None
    assert (report.timesteps, report.peak.memory, report.peaks["host"].memory) == (113, 3_407_872, 5_767_168)
    assert report.staleness == 1
    assert report.timesteps >= time_bound(Size(6, 2, 1), GAME).least == 108
    assert report.peak.memory >= memory_bound(Size(6, 2, 1), GAME).least


def test_an_update_counts_toward_what_the_host_holds() -> None:
    costs = replace(COSTS_HERE, tiers={"host": Tier(0, 0, 6 * 512 * 512, 30)})
    error = run(one_step, 1, 1, 1, setting=Setting(costs)).error
    Refused("tier full", tier="host", there=1048576, capacity=1572864).require(error)


# --- The record ---


def test_impossible_prices_of_a_tier_are_refused() -> None:
    with Refused("no number in bounds", name="Costs: update of the tier host", got=-1):
        replace(COSTS_HERE, tiers={"host": Tier(0, 0, None, -1)})
    with Refused("no number in bounds", name="Costs: moments", got=0):
        replace(COSTS_HERE, moments=0)
    data = json.loads(trace_to_json(run(one_step, 1, 1, 1, setting=Setting(UPDATES_IN_TURN)).trace))
    data["costs"]["tiers"]["host"] = [0, 0]
    with Refused("unreadable tier", fields="offload, fetch, capacity, update", error=TraceError):
        trace_from_json(json.dumps(data))


# --- On tensors ---


def test_a_replay_of_an_update_on_the_host_says_how_large_a_state_is() -> None:
    result = replay(run(host_update, 3, 2, 1, setting=GAME).trace, small=True)
    assert "count 2 times a" in " ".join(result.notes)


def test_a_device_that_makes_no_updates_says_where_to_make_them() -> None:
    """So no layer can be kept on the device, where no weight would be late."""

    def on_the_device(model: Model) -> None:
        weight, state = model.load_weights(0)
        inp = model.get_activation(range(model.BATCHES))
        grad, _ = model.backward(0, inp, model.loss(model.forward(0, inp, weight)), weight)
        model.update(0, grad, weight, state)

    error = run(on_the_device, 1, 2, 1, setting=GAME).error
    assert isinstance(error, RuleError)
    Refused("no price").require(error)


# === Copies from one memory tier to another ===


MOVES_IN_TURN = replace(TWO_TIERS, name="in turn", overlap=False)
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


REFUSED_MOVES: dict[Callable[[Model], Any], tuple[Setting, Refused]] = {
    to_where_it_is: (tiers(), Refused("moved already", value="weight of layer 0, unsharded, step 0, on the host")),
    to_no_tier: (tiers(), Refused("no such tier", tier="cloud", costs="two tiers", known="host, disk")),
    from_the_device: (tiers(), Refused("wrong kind for use", use="the value to move", kind="a parked value")),
}


@pytest.mark.parametrize("wrong", REFUSED_MOVES)
def test_what_cannot_be_moved_is_refused_in_words(wrong: Callable[[Model], Any]) -> None:
    setting, expected = REFUSED_MOVES[wrong]
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


@pytest.mark.parametrize("costs", [TWO_TIERS, MOVES_IN_TURN], ids=["beside", "in turn"])
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
