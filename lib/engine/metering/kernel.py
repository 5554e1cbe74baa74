"""A computation that counts as one kernel of a device: its flops and its result, but no memory in between."""

from collections.abc import Callable

import numpy as np

from lib.engine.collectives import Array

from .meter import current


def run_kernel(compute: Callable[[], Array]) -> Array:
    """The result of a computation, in new memory. The meter counts flops and this memory, as if the computation were
    fused: numpy's intermediate arrays differ between versions, and a compiled kernel has none."""
    meter = current.meter
    if meter is None:
        return compute()
    current.meter = scratch = meter.within_kernel()
    try:
        result = compute()
    finally:
        current.meter = meter
    meter.compute(scratch.flops)
    return np.array(result)
