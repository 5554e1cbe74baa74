"""Chapters `layers` and `inference`, and the race: clocks of busy and waiting devices, bytes stored, formulas."""

import inspect
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib.engine import ShardedEngine, launch
from puzzles.catalog.engine import ENGINE_PUZZLES, trials_of
from puzzles.catalog.engine.models import ROUNDING, numbers
from puzzles.catalog.engine.puzzle import FIGURES
from puzzles.catalog.engine.trial import Performed, Trial, WrongResultError
from puzzles.content.engine.experts import trials
from puzzles.content.engine.inference.trials import chain_calls
from puzzles.content.engine.layers import trials as layer_trials
from puzzles.content.engine.layers.trials import (
    chain_forward_backward,
    gpipe_remat,
    gpipe_targets,
    random_layers,
)
from puzzles.judge.starters import starter_file
from puzzles.tracks.engine.judge import require_right
from solutions.engine.exact_dispatch import ExactDispatch
from solutions.engine.find_the_race import FindTheRace
from solutions.engine.gpipe_remat import GPipeRemat, relu
from solutions.engine.host_cache import HostCache
from solutions.engine.layer_split import LayerSplit
from solutions.engine.prefetch import Prefetch
from solutions.engine.stream import Stream
from tests.support.engine_trials import perform, score_class, verdict_on
from tests.support.examples import examples

# --- Chapter `layers`: clocks of busy and waiting devices, and bytes stored while a device waits ---


def performed(trial: Trial, cls: type) -> Performed:
    result = perform(trial, cls)
    require_right(trial, result)
    return result


def figures(trial: Trial, cls: type, *names: str) -> tuple[int, ...]:
    result = performed(trial, cls)
    return tuple(FIGURES[name].of(result) for name in names)


def test_without_overlap_the_clock_is_the_work_of_all_devices() -> None:
    readings = performed(layer_trials.layer_split(), LayerSplit).readings[-1]
    assert [meter.flops for meter in readings] == [12_288] * 4
    assert max(meter.clock for meter in readings) == sum(meter.flops for meter in readings) == 49_152
    assert [meter.sent for meter in readings] == [520, 1_040, 1_040, 520]


class Eager(LayerSplit):
    """Sends the gradient on, and makes that of its own weight afterwards."""

    def backward(self, grads: Any) -> Any:
        grads = grads if self.last else self.receive(self.device_id + 1)
        x = self.tape.pop()
        dx = (grads @ self.w.T) * (x > 0)
        if not self.first:
            self.send(self.device_id - 1, dx)
        result = {f"layer_{self.device_id}/weights": relu(x).T @ grads}
        return {**result, "x": dx} if self.first else result


def test_who_sends_the_gradient_on_first_hides_a_product_of_each_other_device() -> None:
    assert figures(layer_trials.layer_split(), Eager, "clock", "flops") == (36_864, 12_288)


class Lean(GPipeRemat):
    """Makes only again what backward needs: not the output of the last layer."""

    def stage(self, x: Any) -> Any:
        if not self.__dict__.setdefault("forward_done", False):
            return super().stage(x)
        inputs = [x]
        for weight in self.weights[:-1]:
            inputs.append(relu(inputs[-1]) @ weight)
        return inputs, None

    def backward(self, grads: Any) -> Any:
        self.forward_done = True
        return super().backward(grads)


@pytest.mark.parametrize(
    ("cls", "stored", "flops", "clock"),
    [(GPipeRemat, 896, 65_536, 102_400), (Lean, 896, 61_440, 98_304)],
)
def test_memory_for_flops(cls: type, stored: int, flops: int, clock: int) -> None:
    assert figures(layer_trials.gpipe_remat(), cls, "stored", "flops", "clock") == (stored, flops, clock)


def test_a_better_solution_passes() -> None:
    assert score_class(ENGINE_PUZZLES["GPipeRemat"], Lean).missed == ()


def clock_of(n: int, microbatches: int, forward: int) -> int:
    """Time when the first device is done, by simulation: forward in waves, then recompute, wait, go backward."""
    done = [0] * n
    for _ in range(microbatches):
        came = 0
        for device in range(n):
            came = done[device] = max(done[device], came) + forward
    for _ in range(microbatches):
        came = 0
        for device in reversed(range(n)):
            came = done[device] = max(done[device] + forward, came) + 2 * forward
    return max(done)


sizes = st.tuples(st.integers(2, 4), st.integers(1, 4), st.integers(1, 3), st.integers(1, 2))


@examples(25)
@given(sizes)
def test_gpipe_of_any_size_is_right_and_as_fast_as_the_formula_says(size: tuple[int, int, int, int]) -> None:
    n, microbatches, each, rows = size
    trial = gpipe_remat(rows * microbatches, 4, n * each, n, microbatches)
    targets = gpipe_targets(rows, 4, each, n, microbatches)
    result = performed(trial, GPipeRemat)
    assert FIGURES["clock"].of(result) == clock_of(n, microbatches, each * 2 * rows * 16) == targets["clock"]
    for name in ("flops", "weights"):
        assert FIGURES[name].of(result) == targets[name]
    if n > 2:
        assert (FIGURES["sent"].of(result), FIGURES["messages"].of(result)) == (targets["sent"], targets["messages"])
    if 2 * (microbatches - 1) <= microbatches + each - 1:  # else the last device's outputs are more than that
        assert FIGURES["stored"].of(result) == targets["stored"]


def test_no_relu_is_near_its_kink_and_no_gradient_is_zero() -> None:
    """So rounding cannot change which numbers a relu passes."""
    for dim, layers, batch in ((16, 4, 8), (16, 16, 8), (8, 12, 6)):
        params = random_layers(74, dim, layers)
        x, g = numbers(80, batch, dim), numbers(90, batch, dim)
        _, grads = chain_forward_backward(params, x, g)
        for weight in params.values():
            assert np.abs(x).min() > 2 * ROUNDING * np.abs(x).max()
            x = np.maximum(x, 0) @ weight.astype(np.float64)
        for name, grad in grads.items():
            assert np.count_nonzero(grad) > grad.size / 20, name


class Holder(ShardedEngine):
    """Has 40 bytes while it waits for 80."""

    def load_checkpoint(self, params: Any) -> None: ...

    def forward(self, x: Any) -> Any:
        if self.device_id:
            self.send(0, np.zeros(20, np.float32))
            return None
        here = np.zeros(10, np.float32)
        return self.receive(1)[:10] + here

    def backward(self, grads: Any) -> Any: ...


def test_stored_is_what_is_there_during_a_wait_without_what_comes() -> None:
    with launch(Holder, 2) as run:
        run.forward(0)
        assert [meter.stored for meter in run.meters] == [40, 0]
        assert run.meters[0].peak >= 120


# --- Chapter `inference`: the targets' formulas, derived in other ways than the references use ---


def elapsed(cls: type, batch: int) -> float:
    """Time of 8 layers with so many rows on each device, in units of 512 flops: a fetch takes 4, a layer `batch`."""
    params, (call,) = chain_calls(batch=batch)
    with launch(cls, 4, layers=8, model_dim=16, byte_time={"host": 8}) as run:
        run.load_checkpoint(params)
        loaded = run.meters[0].clock
        run.forward(list(call.arguments))
        return (run.meters[0].clock - loaded) / 512


@pytest.mark.parametrize(("c", "ahead", "in_turn"), [(1, 33, 40), (2, 34, 48), (4, 36, 64), (8, 68, 96)])
def test_a_layer_ahead_takes_the_longer_of_fetch_and_product(c: int, ahead: int, in_turn: int) -> None:
    f, layers = 4, 8
    assert (f + (layers - 1) * max(f, c) + c, layers * (f + c)) == (ahead, in_turn)
    assert (elapsed(Prefetch, c), elapsed(Stream, c)) == (ahead, in_turn)


def test_more_layers_ahead_gain_nothing() -> None:
    class TwoAhead(Prefetch):
        def forward(self, x: Any) -> Any:
            coming = [self.host.fetch_async(name) for name in self.names[:2]]
            for i in range(len(self.names)):
                shard = coming.pop(0).wait()
                coming += [self.host.fetch_async(name) for name in self.names[i + 2 : i + 3]]
                x = np.maximum(x @ self.all_gather(shard), 0)
            return x

    assert [elapsed(TwoAhead, c) for c in (1, 2, 4, 8)] == [33, 34, 36, 68]


def fewest_misses(layers: int, passes: int, fits: int) -> int:
    """By trying every cache: how often a shard is not there, if each use may leave any of what it saw in the cache."""
    states = {frozenset[int](): 0}
    for layer in list(range(layers)) * passes:
        after: dict[frozenset[int], int] = {}
        for held, misses in states.items():
            now = misses + (layer not in held)
            choices = [held, *((held - {out}) | {layer} for out in held)]
            choices += [held | {layer}] if len(held) < fits else []
            for kept in choices:
                after[kept] = min(now, after.get(kept, now))
        states = after
    return min(states.values())


@pytest.mark.sampled(4)
@pytest.mark.parametrize(("layers", "passes", "fits"), list(product((3, 5, 6), (1, 3), (1, 2))))
def test_no_cache_misses_less_often_than_one_that_keeps_what_came_first(layers: int, passes: int, fits: int) -> None:
    params, calls = chain_calls(layers, passes=passes)
    with launch(HostCache, 4, layers=layers, model_dim=16, host_bytes=256 * fits) as run:
        run.load_checkpoint(params)
        for call in calls:
            run.forward(list(call.arguments))
        misses = {meter.disk["read"] // 256 for meter in run.meters}
    assert misses == {fewest_misses(layers, passes, fits)} == {layers + (passes - 1) * (layers - fits)}


@pytest.mark.parametrize("slug", ["Stream", "Prefetch", "HostCache"])
def test_sums_are_exact_in_every_trial(slug: str) -> None:
    """In float64 the same comes out: no sum of whole numbers was too large for float32. And it is not all zeros."""
    for make in trials_of(ENGINE_PUZZLES[slug]):
        trial = make()
        for call in trial.calls:
            assert call.wanted is not None
            x = np.concatenate(call.arguments).astype(np.float64)
            for weight in trial.params.values():
                x = np.maximum(x @ weight, 0)
                assert np.abs(x).max() < 2**20
            assert np.array_equal(x, np.concatenate(call.wanted))
            assert np.count_nonzero(x) > x.size // 8


# --- FindTheRace: the race is hidden if puts land immediately, and shows in every run where one device's land late ---


N = 4


def run(cls: type, late: Any) -> tuple[list[Any], Any]:
    """Every device's outputs for five tokens each, and the meters."""
    params = trials.expert_parameters(3, 8, 16)
    xs = trials.token_groups(53, 5, params)
    with launch(cls, N, late_puts=late, model_dim=8, hidden_dim=16, tokens=5) as devices:
        devices.load_checkpoint(params)
        results = devices.forward(xs)
        return [r if isinstance(r, np.ndarray) else r["out"] for r in results], devices.meters


@pytest.mark.parametrize("cls", [ExactDispatch, FindTheRace])
@pytest.mark.parametrize("late", [(), (0,), (2,), (1, 3), (0, 1, 2, 3)])
def test_a_right_program_is_the_same_under_every_schedule(cls: type, late: Any) -> None:
    (as_ever, meters), (under, under_meters) = run(cls, None), run(cls, late)
    assert under_meters == meters
    assert all(map(np.array_equal, as_ever, under))


def starter(tmp_path: Path) -> Path:
    """FindTheRace as it is handed out, begun."""
    text = starter_file([ENGINE_PUZZLES["FindTheRace"]], "mine.py")
    path = tmp_path / "mine.py"
    path.write_text(text.replace("        raise NotImplementedError  # take this line out to begin\n", ""))
    assert path.read_text() != text
    return path


def racing(tmp_path: Path) -> type:
    names: dict[str, Any] = {"__name__": "racing"}
    exec(starter(tmp_path).read_text(), names)
    cls: type = names["FindTheRace"]
    return cls


def test_the_race_is_hidden_if_all_puts_land_immediately(tmp_path: Path) -> None:
    trial = trials.find_the_race(())
    require_right(trial, perform(trial, racing(tmp_path)))


@pytest.mark.parametrize("late", range(N))
def test_a_late_device_finds_its_rows_missing_every_time(late: int, tmp_path: Path) -> None:
    trial = trials.find_the_race((late,))
    told = []
    for _ in range(3):
        with pytest.raises(WrongResultError, match=f"device {late}, forward.*; the experts read") as why:
            require_right(trial, perform(trial, racing(tmp_path)))
        told.append(str(why.value))
    assert len(set(told)) == 1
    assert f"what device {late} puts lands at" in told[0]


@pytest.mark.slow
def test_one_barrier_fixes_it(tmp_path: Path) -> None:
    """The reference is the starter and one line more."""
    path = starter(tmp_path)
    path.write_text(path.read_text().replace("        made =", "        self.barrier()\n        made ="))
    verdict = verdict_on("FindTheRace", path)
    assert (verdict.status, verdict.message) == ("passed", "")
    assert path.read_text().partition("class")[2] == inspect.getsource(FindTheRace).partition("class")[2]
