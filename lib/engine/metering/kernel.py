"""A computation that counts as one kernel of a device: its flops and its result, but no memory in between."""

from collections.abc import Callable, Iterable

import numpy as np

from lib.engine.collectives import Array

from .arrays import as_metered, plain_view
from .meter import Meter, current


class KernelMeter(Meter):
    """Counts matrix products only, as plans predict them: a compiler fuses other products into neighbouring
    operations."""

    def multiply(self, flops: int) -> None:
        """Counts nothing."""


def run_kernel(compute: Callable[[], Array], inputs: Iterable[Array] = ()) -> Array:
    """The result of a computation, in new memory. The meter counts flops and this memory, as if the computation were
    fused: numpy's intermediate arrays differ between versions, and a compiled kernel has none.

    A result that is a view of one of the `inputs` is copied.
    """
    meter = current.meter
    if meter is None:
        return compute()
    current.meter = scratch = KernelMeter()
    try:
        result = np.asarray(plain_view(compute()))
        current.meter = None
        if any(np.may_share_memory(result, plain_view(given)) for given in inputs):
            result = result.copy()
    finally:
        current.meter = meter
    meter.compute(scratch.flops)
    return as_metered(result, meter)


__all__ = ["run_kernel"]
