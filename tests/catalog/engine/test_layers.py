"""Chapter `layers`: clocks of busy and waiting devices, and bytes stored while a device waits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib.engine import ShardedEngine, launch
from puzzles.catalog.engine import ENGINE_PUZZLES
from puzzles.catalog.engine.models import ROUNDING, numbers
from puzzles.catalog.engine.puzzle import FIGURES
from puzzles.catalog.engine.trial import Performed, Trial
from puzzles.content.engine.layers import trials as layer_trials
from puzzles.content.engine.layers.trials import (
    chain_forward_backward,
    gpipe_remat,
    gpipe_targets,
    random_layers,
)
from puzzles.tracks.engine.judge import require_right
from solutions.engine.gpipe_remat import GPipeRemat, relu
from solutions.engine.layer_split import LayerSplit
from tests.support.engine_trials import perform, score_class
from tests.support.examples import examples


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
