"""Execution on the engine: every device holds only its own pieces, and gets all others by engine calls.

A reduce-scatter, all-reduce, all-gather or all-to-all uses the engine's collective of that name, in groups. A permute
or general exchange uses messages; a slice needs no call. The meters count what the plan predicts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lib.engine import Reading, ShardedEngine, launch
from lib.layout.layouts.pieces import Array, Pieces, join
from lib.layout.layouts.tensor_layout import TensorLayout
from lib.layout.redistribution.steps import SUM_EXCHANGE, Step
from lib.layout.redistribution.sum_exchange import Messages

from .errors import LayoutError
from .instructions import DeviceProgram, Instruction


@dataclass(frozen=True, eq=False)
class Executed:
    """The result of a run on the engine: every tensor's pieces, and the meters' readings, by device."""

    layouts: Mapping[str, TensorLayout]
    pieces: Mapping[str, Pieces]
    meters: tuple[Reading, ...]

    def value(self, tensor: str) -> Array:
        """One tensor, joined from its pieces.

        Raises:
            LayoutError: copies of a piece differ.
        """
        return join(self.pieces[tensor], self.layouts[tensor])

    @property
    def sent(self) -> tuple[int, ...]:
        """Bytes that each device has sent."""
        return tuple(reading.sent for reading in self.meters)

    @property
    def bytes(self) -> int:
        """Bytes moved in total."""
        return sum(self.sent)


class PlannedDevice(ShardedEngine):
    """One device of a plan. Its pieces of parameters come from the checkpoint, those of inputs from the call."""

    def __init__(self, program: DeviceProgram) -> None:
        self.program = program
        self.pieces: dict[str, Array] = {}

    def load_checkpoint(self, params: Mapping[str, Any]) -> None:
        """Copies this device's pieces of the parameters, whole arrays by name."""
        for name, whole in params.items():
            self.pieces[name] = whole[self.program.parameters[name].box(self.device_id)].copy()

    def forward(self, x: Mapping[str, Array]) -> dict[str, Array]:
        """Maps this device's pieces of the inputs to its pieces of every tensor."""
        self.pieces.update(x)
        copies: dict[int, Array] = {}
        for each in self.program.instructions:
            inputs = fetch_inputs(self, each, self.pieces, copies)
            self.pieces[each.output] = take_steps(self, each.reduction, each.compute(self.device_id, inputs))
        return self.pieces

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
        return take_steps(self, self.steps, x)

    def backward(self, grads: Any) -> Any:
        """Nothing: a redistribution has no parameters."""


def execute(
    program: DeviceProgram, layouts: Mapping[str, TensorLayout], values: Mapping[str, Array], on: str | None = None
) -> Executed:
    """Runs a program. `values` are full arrays of all sources; `layouts` are those of every tensor at the end."""
    devices = range(program.devices)
    whole = {name: np.asarray(values[name]) for name in (*program.inputs, *program.parameters)}
    inputs = [{name: whole[name][layout.box(d)] for name, layout in program.inputs.items()} for d in devices]
    program.prepare()
    with launch(PlannedDevice, program.devices, program, on=on) as run:
        run.load_checkpoint({name: whole[name] for name in program.parameters})
        held = run.forward(inputs)
        meters = run.meters
    return Executed(layouts, {name: {d: held[d][name] for d in devices} for name in layouts}, meters)


def execute_steps(steps: Sequence[Step], target: TensorLayout, pieces: Pieces, on: str | None = None) -> Executed:
    """Moves one tensor, called "tensor", to its layout `target`."""
    with launch(MovingDevice, target.devices, steps, on=on) as run:
        held = run.forward([pieces[device] for device in range(target.devices)])
        return Executed({"tensor": target}, {"tensor": dict(enumerate(held))}, run.meters)


def fetch_inputs(
    device: ShardedEngine, instruction: Instruction, pieces: Mapping[str, Array], copies: dict[int, Array]
) -> list[Array]:
    """A device's inputs of an instruction. `copies` are moved pieces that a later instruction takes again."""
    arrays = []
    for name, fetch in zip(instruction.inputs, instruction.fetches):
        if fetch.copy is None:
            arrays.append(take_steps(device, fetch.steps, pieces[name]))
            continue
        if fetch.copy not in copies:
            copies[fetch.copy] = take_steps(device, fetch.steps, pieces[name])
        arrays.append(copies.pop(fetch.copy) if fetch.last else copies[fetch.copy])
    return arrays


def take_steps(device: ShardedEngine, steps: Sequence[Step], piece: Array) -> Array:
    """A device's piece after steps that all devices execute together."""
    for step in steps:
        piece = _BY_NAME[step.name](device, step, piece)
    return piece


def _all_reduce(device: ShardedEngine, step: Step, piece: Array) -> Array:
    return device.all_reduce(piece, group=step.group(device.device_id))


def _reduce_scatter(device: ShardedEngine, step: Step, piece: Array) -> Array:
    group, mine = step.group(device.device_id), step.source.box(device.device_id)
    parts = [piece[_common(mine, step.target.box(member), mine)] for member in group]
    return device.reduce_scatter(np.stack(parts), group=group).reshape(step.target.local_shape)


def _all_gather(device: ShardedEngine, step: Step, piece: Array) -> Array:
    group = step.group(device.device_id)
    return _assembled(device, step, group, device.all_gather(piece[None], group=group))


def _all_to_all(device: ShardedEngine, step: Step, piece: Array) -> Array:
    group, mine = step.group(device.device_id), step.source.box(device.device_id)
    parts = [piece[_common(mine, step.target.box(member), mine)] for member in group]
    return _assembled(device, step, group, device.all_to_all(np.stack(parts), group=group))


def _assembled(device: ShardedEngine, step: Step, group: tuple[int, ...], arrived: Array) -> Array:
    """The new piece, assembled from what each member of the group sent."""
    mine = step.target.box(device.device_id)
    result = np.empty(step.target.local_shape, dtype=arrived.dtype)
    for member, part in zip(group, arrived):
        result[_common(step.source.box(member), mine, mine)] = part
    return result


def _messages(device: ShardedEngine, step: Step, piece: Array) -> Array:
    exchange, me = step.exchange, device.device_id
    piece = piece.reshape(exchange.source.local_shape)
    result = exchange.kept(me, piece)
    for receiver, numbers in exchange.sends[me].items():
        device.send(receiver, np.concatenate([exchange.take(i, piece) for i in numbers]))
    for sender, numbers in exchange.receives[me].items():
        arrived = device.receive(sender)
        ends = np.cumsum(exchange.hi[numbers] - exchange.lo[numbers])
        for i, elements in zip(numbers, np.split(arrived, ends[:-1])):
            exchange.put(i, result, elements)
    return result.reshape(step.target.local_shape)


def _sum_messages(device: ShardedEngine, step: Step, piece: Array) -> Array:
    exchange, me = step.sum_exchange, int(device.device_id)
    result = np.empty(step.target.local_shape, dtype=piece.dtype)
    mine = {share: exchange.take(share, me, piece) for share in exchange.owned[me]}
    _send(device, exchange.summands, lambda share: exchange.take(share, me, piece))
    summands = {share: {me: elements} for share, elements in mine.items()}
    for sender, share, elements in _received(device, exchange.summands):
        summands[share][sender] = elements
    sums = {share: exchange.add(share, each) for share, each in summands.items()}
    _send(device, exchange.sums, sums.__getitem__)
    for share, total in sums.items():
        if exchange.keeps[share]:
            exchange.put(share, me, result, total)
    for _, share, total in _received(device, exchange.sums):
        exchange.put(share, me, result, total)
    return result


def _send(device: ShardedEngine, messages: Messages, of: Callable[[int], Array]) -> None:
    """Sends each receiver all of its shares at once."""
    for receiver, shares in messages.sends[device.device_id].items():
        device.send(receiver, np.concatenate([of(share) for share in shares]))


def _received(device: ShardedEngine, messages: Messages) -> Iterator[tuple[int, int, Array]]:
    """What arrives in these messages: sender, share, elements."""
    for sender, shares in messages.receives[device.device_id].items():
        ends = np.cumsum(messages.size[shares])
        for share, elements in zip(shares, np.split(device.receive(sender), ends[:-1])):
            yield sender, share, elements


_BY_NAME = {
    "all-reduce": _all_reduce,
    "reduce-scatter": _reduce_scatter,
    "all-gather": _all_gather,
    "all-to-all": _all_to_all,
    "permute": _messages,
    "exchange": _messages,
    "slice": _messages,
    SUM_EXCHANGE: _sum_messages,
}


def _common(a: tuple[slice, ...], b: tuple[slice, ...], origin: tuple[slice, ...]) -> tuple[slice, ...]:
    """The overlap of two boxes of a tensor, in coordinates of a piece that starts at `origin`."""
    return tuple(slice(max(x.start, y.start) - o.start, min(x.stop, y.stop) - o.start) for x, y, o in zip(a, b, origin))


__all__ = ["Executed", "execute", "execute_steps"]
