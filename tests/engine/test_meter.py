"""The meter of one device: what each call adds to its figures."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from lib.engine import ShardedEngine, launch
from lib.engine.metering import MAX_NUMBERS_OUT, Meter


def test_stored_are_the_most_bytes_that_were_live_when_a_message_arrived() -> None:
    meter = Meter()
    first = meter.hold(10)
    meter.record_stored()
    meter.hold(5)
    meter.record_stored()
    meter.release(first)
    meter.record_stored()
    assert (meter.stored, meter.live, meter.peak) == (15, 5, 15)


def test_the_first_numbers_that_leave_arrays_are_free() -> None:
    meter = Meter()
    meter.take_out(MAX_NUMBERS_OUT)
    assert (meter.flops, meter.clock) == (0, 0)
    meter.take_out(3)
    assert (meter.flops, meter.clock) == (3, 3)
    other = Meter()
    other.take_out(MAX_NUMBERS_OUT + 2)
    assert other.flops == 2, "those beyond the free ones"


def test_transfers_on_one_link_run_one_after_the_other() -> None:
    meter = Meter({"host": 3, "disk": 5})
    first, second, disk = meter.transfer("host", 10), meter.transfer("host", 10), meter.transfer("disk", 4)
    for transfer, clock in ((disk, 20), (first, 30), (second, 60), (first, 60)):
        meter.wait_for(transfer)
        assert meter.clock == clock
    meter.compute(40)
    meter.wait_for(meter.transfer("host", 1))
    assert meter.clock == 103


def test_only_products_of_a_fused_kernel_are_counted_by_their_shapes() -> None:
    kernel = Meter().within_kernel()
    kernel.multiply(7)
    assert kernel.flops == 0
    kernel.compute(7)
    assert kernel.flops == 7


class Scales(ShardedEngine):
    def __init__(self, factor: Any) -> None:
        self.factor = factor

    def load_checkpoint(self, params: Any) -> None:
        """There are no parameters."""

    def forward(self, x: Any) -> Any:
        return x / self.factor

    def backward(self, grads: Any) -> None:
        """Not called."""


@pytest.mark.parametrize(
    ("dtype", "factor", "is_widened"),
    [
        (np.float32, 4, False),
        (np.float32, 16**0.5, False),
        (np.float32, np.float32(4), False),
        (np.float32, np.sqrt(16), True),
        (np.float64, np.sqrt(16), False),
    ],
)
def test_a_float64_number_doubles_the_bytes_of_float32_arrays_at_a_line(
    dtype: Any, factor: Any, is_widened: bool
) -> None:
    x = np.ones(6, dtype)
    with launch(Scales, 1, factor=factor) as run:
        (result,) = run.forward(x)
        (reading,) = run.meters
    assert (result.nbytes == 2 * x.nbytes) == is_widened
    assert reading.widened_line == (Scales.forward.__code__.co_firstlineno + 1 if is_widened else 0)
