"""Runs on the engine: their results, and one device of a redistribution."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lib.engine import Reading, ShardedEngine, launch
from lib.layout.layouts.pieces import Array, Pieces, join
from lib.layout.layouts.tensor_layout import TensorLayout
from lib.layout.redistribution.steps import Step

from .engine_steps import take_step


@dataclass(frozen=True, eq=False)
class Executed:
    """The result of a run on the engine: every tensor's pieces, and the meters' readings, by device."""

    layouts: Mapping[str, TensorLayout]
    pieces: Mapping[str, Pieces]
    meters: tuple[Reading, ...]

    def value(self, tensor: str) -> Array:
        """One tensor, joined from its pieces."""
        return join(self.pieces[tensor], self.layouts[tensor])

    @property
    def sent(self) -> tuple[int, ...]:
        """Bytes that each device has sent."""
        return tuple(reading.sent for reading in self.meters)

    @property
    def peaks(self) -> tuple[int, ...]:
        """Most bytes that each device has held at the same time."""
        return tuple(reading.peak for reading in self.meters)

    @property
    def bytes(self) -> int:
        """Bytes moved in total."""
        return sum(self.sent)


class MovingDevice(ShardedEngine):
    """One device of a redistribution."""

    def __init__(self, steps: Sequence[Step]) -> None:
        self.steps = steps

    def load_checkpoint(self, params: Any) -> None:
        """Nothing: the piece to move comes with the call."""

    def forward(self, x: Array) -> Array:
        """Maps this device's piece under the source layout to its piece under the target layout."""
        piece = x
        for step in self.steps:
            piece = take_step(self, step, piece)
        return piece

    def backward(self, grads: Any) -> Any:
        """Nothing: a redistribution has no parameters."""


def execute_steps(steps: Sequence[Step], target: TensorLayout, pieces: Pieces, on: str | None = None) -> Executed:
    """Moves one tensor, called "tensor", to its layout `target`."""
    for step in steps:
        step.prepare()
    with launch(MovingDevice, target.devices, steps, on=on) as run:
        moved = run.forward([pieces[device] for device in range(target.devices)])
        return Executed({"tensor": target}, {"tensor": dict(enumerate(moved))}, run.meters)


__all__ = ["Executed", "execute_steps"]
