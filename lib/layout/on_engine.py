"""Plans on the engine: every device holds its own pieces, and gets all others by engine calls.

A reduce-scatter, all-reduce, all-gather or all-to-all of a plan is the engine's collective of that name, in groups;
a permute and a general exchange are messages; a slice is none. What the meters count is what the plan foretells.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from lib.engine import Reading, ShardedEngine, launch
from lib.layout.errors import LayoutError
from lib.layout.layouts.pieces import Array, Pieces, join
from lib.layout.layouts.tensor_layout import TensorLayout, parts
from lib.layout.planning.plan import GraphPlan
from lib.layout.redistribution.redistribution import Redistribution
from lib.layout.redistribution.steps import Step


@dataclass(frozen=True, eq=False)
class Executed:
    """What a run on the engine leaves behind: every tensor's pieces, and what the meters read, device by device."""

    layouts: Mapping[str, TensorLayout]
    pieces: Mapping[str, Pieces]
    meters: tuple[Reading, ...]

    def value(self, tensor: str) -> Array:
        """One tensor, put together."""
        return join(self.pieces[tensor], self.layouts[tensor])

    @property
    def sent(self) -> tuple[int, ...]:
        """Bytes that each device has sent."""
        return tuple(reading.sent for reading in self.meters)

    @property
    def bytes(self) -> int:
        """Bytes moved in all."""
        return sum(self.sent)


class PlannedDevice(ShardedEngine):
    """One device of a plan. Its pieces of parameters come from the checkpoint, those of inputs with the call."""

    def __init__(self, plan: GraphPlan) -> None:
        self.plan = plan
        self.pieces: dict[str, Array] = {}

    def load_checkpoint(self, params: Mapping[str, Any]) -> None:
        for name, whole in params.items():
            self.pieces[name] = whole[self.plan.homes[name].box(self.device_id)].copy()

    def forward(self, x: Mapping[str, Array]) -> dict[str, Array]:
        """From this device's pieces of the inputs: its pieces of every tensor."""
        self.pieces.update(x)
        for name, op in self.plan.operators.items():
            inputs = []
            for move, tensor in zip(self.plan.moves[name], op.operator.inputs):
                inputs.append(moved(self, move.told, self.pieces[tensor]))
            self.pieces[name] = moved(self, op.reduction, op.compute(self.device_id, inputs))
        return self.pieces

    def backward(self, grads: Any) -> Any:
        raise LayoutError("a plan runs forward only; what a gradient needs has to be in its graph")


class MovingDevice(ShardedEngine):
    """One device of a redistribution."""

    def __init__(self, plan: Redistribution) -> None:
        self.plan = plan

    def load_checkpoint(self, params: Any) -> None:
        """Nothing: the piece to move comes with the call."""

    def forward(self, x: Array) -> Array:
        return moved(self, self.plan.told, x)

    def backward(self, grads: Any) -> Any:
        """Nothing is learnt."""


def executed(plan: GraphPlan, values: Mapping[str, Array], on: str | None = None) -> Executed:
    """A whole program. `values` are of all sources, in their shapes."""
    graph, devices = plan.graph, range(plan.graph.devices)
    roles = {role: [name for name in graph.sources if graph.sources[name] == role] for role in ("input", "parameter")}
    whole = {name: np.asarray(values[name]) for name in graph.sources}
    inputs = [{name: whole[name][plan.homes[name].box(device)] for name in roles["input"]} for device in devices]
    prepare(plan)
    with launch(PlannedDevice, graph.devices, plan, on=on) as run:
        run.load_checkpoint({name: whole[name] for name in roles["parameter"]})
        held = run.forward(inputs)
        meters = run.meters
    pieces = {name: {device: held[device][name] for device in devices} for name in graph.shapes}
    return Executed({name: plan.layout(name) for name in graph.shapes}, pieces, meters)


def prepare(plan: GraphPlan) -> None:
    """Works out what devices look up in the plan: the first of them to do so would be charged for the tables."""
    for layout in (*plan.homes.values(), *(layout for op in plan.operators.values() for layout in op.inputs)):
        parts(layout)
    for name, op in plan.operators.items():
        for step in (*op.reduction, *(step for move in plan.moves[name] for step in move.told)):
            step.prepare()


def redistributed(plan: Redistribution, pieces: Pieces, on: str | None = None) -> Executed:
    """One tensor, called "tensor"."""
    with launch(MovingDevice, plan.source.devices, plan, on=on) as run:
        held = run.forward([pieces[device] for device in range(plan.source.devices)])
        return Executed({"tensor": plan.target}, {"tensor": dict(enumerate(held))}, run.meters)


def moved(device: ShardedEngine, steps: tuple[Step, ...], piece: Array) -> Array:
    """A device's piece after steps that all devices take together."""
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
    """The new piece, from what each member of the group gave to it."""
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


_BY_NAME = {
    "all-reduce": _all_reduce,
    "reduce-scatter": _reduce_scatter,
    "all-gather": _all_gather,
    "all-to-all": _all_to_all,
    "permute": _messages,
    "exchange": _messages,
    "slice": _messages,
}


def _common(a: tuple[slice, ...], b: tuple[slice, ...], origin: tuple[slice, ...]) -> tuple[slice, ...]:
    """Where two boxes of a tensor overlap, in coordinates of a piece that begins at `origin`."""
    return tuple(slice(max(x.start, y.start) - o.start, min(x.stop, y.stop) - o.start) for x, y, o in zip(a, b, origin))


__all__ = ["Executed", "executed", "redistributed"]
