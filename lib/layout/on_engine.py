"""Execution on the engine: every device holds only its own pieces, and gets all others by engine calls.

The meters count what the plan predicts: bytes sent, flops, and peak memory. A tensor is freed after its last reader;
what is compared afterwards are copies that belong to no device.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lib.engine import Reading, ShardedEngine, launch, unmetered
from lib.engine.metering.kernel import run_kernel
from lib.layout.layouts.pieces import Array, Pieces, join, piece_of
from lib.layout.layouts.tensor_layout import TensorLayout
from lib.layout.redistribution.steps import Step

from .engine_steps import take_step
from .errors import LayoutError
from .instructions import DeviceProgram, Instruction, OperandFetch


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


class PlannedDevice(ShardedEngine):
    """One device of a plan. Its pieces of parameters come from the checkpoint, its pieces of inputs from the call."""

    def __init__(self, program: DeviceProgram) -> None:
        self.program = program
        self.pieces: dict[str, Array] = {}

    def load_checkpoint(self, params: Mapping[str, Any]) -> None:
        """Copies this device's pieces of the parameters, whole arrays by name."""
        for name, whole in params.items():
            with unmetered():  # a piece with padding is made from a part of the array
                piece = piece_of(whole, self.program.parameters[name], int(self.device_id))
            self.pieces[name] = np.array(piece)

    def forward(self, x: Mapping[str, Array]) -> dict[str, Array]:
        """Maps this device's pieces of the inputs to copies of its pieces of every tensor."""
        self.pieces.update(x)
        seen = {name: _plain_copy(piece) for name, piece in self.pieces.items()}
        copies: dict[int, Array] = {}
        for each in self.program.instructions:
            run_instruction(self, each, self.pieces, copies)
            seen[each.output] = _plain_copy(self.pieces[each.output])
        return seen

    def backward(self, grads: Any) -> Any:
        """Refused: a plan has no gradients."""
        raise LayoutError("a plan only runs forward; to compute a gradient, put it into the graph")


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


def execute(
    program: DeviceProgram, layouts: Mapping[str, TensorLayout], values: Mapping[str, Array], on: str | None = None
) -> Executed:
    """Runs a program. `values` are full arrays of all sources; `layouts` has every tensor's layout at the end."""
    devices = range(program.devices)
    whole = {name: np.asarray(values[name]) for name in (*program.inputs, *program.parameters)}
    inputs = [{name: piece_of(whole[name], layout, d) for name, layout in program.inputs.items()} for d in devices]
    program.prepare()
    with launch(PlannedDevice, program.devices, program, on=on) as run:
        run.load_checkpoint({name: whole[name] for name in program.parameters})
        held = run.forward(inputs)
        meters = run.meters
    return Executed(layouts, {name: {d: held[d][name] for d in devices} for name in layouts}, meters)


def execute_steps(steps: Sequence[Step], target: TensorLayout, pieces: Pieces, on: str | None = None) -> Executed:
    """Moves one tensor, called "tensor", to its layout `target`."""
    for step in steps:
        step.prepare()
    with launch(MovingDevice, target.devices, steps, on=on) as run:
        held = run.forward([pieces[device] for device in range(target.devices)])
        return Executed({"tensor": target}, {"tensor": dict(enumerate(held))}, run.meters)


def run_instruction(
    device: ShardedEngine,
    instruction: Instruction,
    pieces: dict[str, Array],
    copies: dict[int, Array],
) -> None:
    """One instruction: adds its output to `pieces`, and frees what nobody reads afterwards.

    `copies` are moved pieces that a later instruction takes again.
    """
    arrays = [
        _fetched(device, fetch, pieces[name], copies) for name, fetch in zip(instruction.inputs, instruction.fetches)
    ]
    piece = run_kernel(lambda: instruction.compute(int(device.device_id), arrays))
    arrays.clear()
    for name in instruction.ends:
        del pieces[name]
    for step in instruction.reduction:
        piece = take_step(device, step, piece)
    pieces[instruction.output] = piece


def _fetched(device: ShardedEngine, fetch: OperandFetch, piece: Array, copies: dict[int, Array]) -> Array:
    if fetch.copy in copies:
        return copies.pop(fetch.copy) if fetch.last else copies[fetch.copy]
    source = piece if fetch.source is None else copies[fetch.source]
    piece = source
    for step in fetch.steps:
        piece = take_step(device, step, piece)
    if fetch.source is not None and fetch.source_ends:
        del copies[fetch.source]
    if fetch.copy is not None and not fetch.last:
        copies[fetch.copy] = piece
    return piece


def _plain_copy(piece: Array) -> Array:
    with unmetered():
        return np.array(piece, subok=False)


__all__ = ["Executed", "execute", "execute_steps", "run_instruction"]
