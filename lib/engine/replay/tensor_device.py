"""A device of a replay: the tensors that it makes itself, of numpy or torch, and the bytes that it holds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from lib.engine.collectives import Array
from lib.engine.engine import ShardedEngine
from lib.engine.executors.copies import copy_in
from lib.engine.memory_tiers import MemoryTier
from lib.engine.metering.meter import current, unmetered

from .labels import Content, Label, OnTier, Rows, Tokens, shape_of
from .workload import Workload

TIERS = ("host", "disk")
"""The memory tiers of a device."""


class TensorDevice(ShardedEngine):
    """Tensors are those of a workload."""

    workload: Workload
    labels: Mapping[int, Label]
    """What each tensor holds, by the number of its value."""

    def load_checkpoint(self, params: Any) -> None:
        """Does nothing: `load_weights` in the trace determines which part is loaded, and when."""

    def backward(self, grads: Any) -> Any:
        """Does nothing: the trace determines when."""

    def zeros(self, like: Content | tuple[int, ...]) -> Array:
        """A tensor of zeros, for what it shall hold or of a shape."""
        shape = shape_of(like, self.workload.shapes.hidden) if isinstance(like, Rows | Tokens) else like
        library = self._port.library
        made = library.zeros(shape, self.workload.dtype)
        return made if current.meter is None else library.charged(made, current.meter)

    def tier(self, label: OnTier) -> MemoryTier:
        memory: MemoryTier = getattr(self, label.tier)
        return memory

    def live_bytes(self) -> tuple[int, ...]:
        """Bytes on the device, and on each of TIERS."""
        meter = self._port.meter
        return (0,) * 3 if meter is None else (meter.live, *(getattr(meter, tier)["live"] for tier in TIERS))

    def of_each_batch(self, draw: Callable[[int, int], Array], label: Tokens) -> Array:
        with unmetered():
            if label.in_a_row:
                drawn = np.concatenate([draw(batch, label.step) for batch in label.batches])[None]
            else:
                drawn = np.array([draw(batch, label.step)[list(label.places)] for batch in label.batches])
        return copy_in(drawn, self._port)

    def bundle(self, tensors: list[Array]) -> Array:
        """Several tensors as one message; no tensors as an empty one."""
        flat: Array = self.xp.concatenate([t.reshape(-1) for t in tensors]) if tensors else self.zeros((0,))
        return flat
