"""Execution on the engine: every device holds only its own pieces, and gets all others by engine calls.

All devices run the same operators, each on its own pieces (SPMD). The meters count what the plan predicts: bytes sent,
flops, and peak memory. A tensor is freed after its last reader; what is compared afterwards are copies that belong to
no device.

Which steps there are, and what is held when, is left to `plans`. Rejected: metering every function of numpy within an
operator. Its intermediate arrays differ between versions, and a compiled kernel has none; so an operator is one kernel.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lib.engine import Reading, ShardedEngine, launch, unmetered
from lib.engine.metering import run_kernel
from lib.layout.exchanges import SUM_EXCHANGE, Messages, Step, SumExchange, TensorTransfer
from lib.layout.layouts import Array, Ints, LayoutError, Pieces, TensorLayout, blank, join, new_piece, piece_of
from lib.layout.plans import GraphPlan, OperandFetch

# --- Steps of redistributions on one device of the engine: buffers, calls, and what arrives ---
#
# A reduce-scatter, all-reduce, all-gather or all-to-all uses the engine's collective of that name, in groups. A permute
# or general exchange uses messages; a slice needs no call. The buffers that exist at the same time are those that
# `plans` predicts.


def take_step(device: ShardedEngine, step: Step, piece: Array) -> Array:
    """A device's piece after a step that all devices execute together."""
    return _BY_NAME[step.name](device, step, piece)


def _all_reduce(device: ShardedEngine, step: Step, piece: Array) -> Array:
    return device.all_reduce(piece, _operation(step), group=step.group(device.device_id))


def _reduce_scatter(device: ShardedEngine, step: Step, piece: Array) -> Array:
    group = step.group(device.device_id)
    parts = _parts(device, step, piece, group)
    return device.reduce_scatter(parts, _operation(step), group=group).reshape(step.target.local_shape)


def _operation(step: Step) -> str:
    return "max" if step.source.largest else "sum"


def _all_gather(device: ShardedEngine, step: Step, piece: Array) -> Array:
    group = step.group(device.device_id)
    return _assembled(device, step, group, device.all_gather(piece[None], group=group))


def _all_to_all(device: ShardedEngine, step: Step, piece: Array) -> Array:
    group = step.group(device.device_id)
    return _assembled(device, step, group, device.all_to_all(_parts(device, step, piece, group), group=group))


def _parts(device: ShardedEngine, step: Step, piece: Array, group: Sequence[int]) -> Array:
    """A buffer with what each member of the group gets of this device's piece, one after another."""
    boxes = [step.meeting(int(device.device_id), member) for member in group]
    buffer = blank((len(group), *(side.stop - side.start for side in boxes[0])), piece.dtype)
    for row, box in zip(buffer, boxes):
        part = piece[box]
        row[tuple(map(slice, part.shape))] = part
    return buffer


def _assembled(device: ShardedEngine, step: Step, group: Sequence[int], arrived: Array) -> Array:
    result = new_piece(step.target, arrived.dtype)
    for member, part in zip(group, arrived):
        given = result[step.meeting(member, int(device.device_id), of_receiver=True)]
        given[...] = part[tuple(map(slice, given.shape))]
    return result


def _messages(device: ShardedEngine, step: Step, piece: Array) -> Array:
    exchange, me = step.exchange, int(device.device_id)
    old = piece.reshape(exchange.source.local_shape)
    new = exchange.kept(me, old)
    _send(device, exchange, exchange.moves, piece.dtype, lambda share: exchange.take(share, me, old))
    _receive(device, exchange, exchange.moves, lambda share, elements: exchange.put(share, me, new, elements))
    return new.reshape(step.target.local_shape)


def _sum_messages(device: ShardedEngine, step: Step, piece: Array) -> Array:
    exchange, me = step.sum_exchange, int(device.device_id)
    result = new_piece(step.target, piece.dtype)
    _send(device, exchange, exchange.summands, piece.dtype, lambda share: exchange.take(share, me, piece))
    sums = _sums(device, exchange, piece)
    _send(device, exchange, exchange.sums, piece.dtype, sums.__getitem__)
    for share, total in sums.items():
        if exchange.keeps[share]:
            with unmetered():
                exchange.put(share, me, result, total)
    _receive(device, exchange, exchange.sums, lambda share, elements: exchange.put(share, me, result, elements))
    return result


def _sums(device: ShardedEngine, exchange: SumExchange, piece: Array) -> dict[int, Array]:
    """The sums of this device's shares, once all summands have arrived: views of one buffer."""
    me, arriving = int(device.device_id), exchange.summands
    summands: dict[int, dict[int, Array]] = {share: {} for share in exchange.owned[me]}
    for sender, shares in arriving.receives[me].items():
        for share, elements in zip(shares, _split(device.receive(sender), exchange.sizes(shares))):
            summands[share][sender] = elements
    sizes = exchange.sizes(exchange.owned[me])
    buffer = np.empty(int(sizes.sum()), piece.dtype)
    sums = dict(zip(exchange.owned[me], _split(buffer, sizes)))
    with unmetered():  # numpy copies a range of a box before it adds it up
        for share, total in sums.items():
            summands[share][me] = exchange.take(share, me, piece)
            total[...] = exchange.add(share, summands[share])
    return sums


def _send(
    device: ShardedEngine, transfer: TensorTransfer, messages: Messages, dtype: Any, take: Callable[[int], Array]
) -> None:
    """Sends this device's shares, each message packed into a buffer that is freed then."""
    for receiver, shares in messages.sends[int(device.device_id)].items():
        buffer = np.empty(int(transfer.sizes(shares).sum()), dtype)
        with unmetered():  # numpy copies a range of a box before it packs it
            np.concatenate([np.asarray(take(share)) for share in shares], out=buffer)
        device.send(receiver, buffer)
        del buffer


def _receive(
    device: ShardedEngine, transfer: TensorTransfer, messages: Messages, put: Callable[[int, Array], None]
) -> None:
    """Receives this device's shares and puts each in its place."""
    for sender, shares in messages.receives[int(device.device_id)].items():
        arrived = device.receive(sender)
        for share, elements in zip(shares, _split(arrived, transfer.sizes(shares))):
            with unmetered():  # numpy looks up the places of a range of a box that has padding
                put(share, elements)
        del arrived, elements


def _split(buffer: Array, sizes: Ints) -> list[Array]:
    """Views of consecutive parts of these sizes."""
    return np.split(buffer, np.cumsum(sizes)[:-1])


_BY_NAME: dict[str, Callable[[ShardedEngine, Step, Array], Array]] = {
    "all-reduce": _all_reduce,
    "reduce-scatter": _reduce_scatter,
    "all-gather": _all_gather,
    "all-to-all": _all_to_all,
    "permute": _messages,
    "exchange": _messages,
    "slice": _messages,
    SUM_EXCHANGE: _sum_messages,
}


# --- Runs on the engine: their results, and one device of a redistribution ---


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


def execute_steps(steps: Sequence[Step], target: TensorLayout, pieces: Pieces, on: str | None = None) -> Executed:
    """Moves one tensor, called "tensor", to its layout `target`."""
    for step in steps:
        step.prepare()
    with launch(MovingDevice, target.devices, steps, on=on) as run:
        moved = run.forward([pieces[device] for device in range(target.devices)])
        return Executed({"tensor": target}, {"tensor": dict(enumerate(moved))}, run.meters)


# --- A plan ---


class PlannedDevice(ShardedEngine):
    """One device of a plan. Its pieces of parameters come from the checkpoint, its pieces of inputs from the call."""

    def __init__(self, plan: GraphPlan) -> None:
        self.plan = plan
        self.pieces: dict[str, Array] = {}

    def load_checkpoint(self, params: Mapping[str, Any]) -> None:
        """Copies this device's pieces of the parameters, whole arrays by name."""
        for name, whole in params.items():
            with unmetered():  # a piece with padding is made from a part of the array
                piece = piece_of(whole, self.plan.storage_layouts[name], int(self.device_id))
            self.pieces[name] = np.array(piece)

    def forward(self, x: Mapping[str, Array]) -> dict[str, Array]:
        """Maps this device's pieces of the inputs to copies of its pieces of every tensor."""
        self.pieces.update(x)
        seen = {name: _plain_copy(piece) for name, piece in self.pieces.items()}
        copies: dict[int, Array] = {}
        for name in self.plan.operators:
            run_operator(self, self.plan, name, self.pieces, copies)
            seen[name] = _plain_copy(self.pieces[name])
        return seen

    def backward(self, grads: Any) -> Any:
        """Refused: a plan has no gradients."""
        raise LayoutError("a plan only runs forward; to compute a gradient, put it into the graph")


def execute(plan: GraphPlan, values: Mapping[str, Array], on: str | None = None) -> Executed:
    """Runs a plan. `values` are full arrays of all sources."""
    devices, stored = range(plan.graph.devices), plan.storage_layouts
    whole = {name: np.asarray(values[name]) for name in plan.graph.sources}
    given = [name for name, role in plan.graph.sources.items() if role == "input"]
    inputs = [{name: piece_of(whole[name], stored[name], d) for name in given} for d in devices]
    plan.prepare()
    with launch(PlannedDevice, plan.graph.devices, plan, on=on) as run:
        run.load_checkpoint({name: array for name, array in whole.items() if name not in given})
        tensors = run.forward(inputs)
        meters = run.meters
    layouts = {name: plan.layout(name) for name in plan.graph.shapes}
    return Executed(layouts, {name: {d: tensors[d][name] for d in devices} for name in layouts}, meters)


def run_operator(
    device: ShardedEngine, plan: GraphPlan, name: str, pieces: dict[str, Array], copies: dict[int, Array]
) -> None:
    """One operator: adds its output to `pieces`, and frees what nobody reads afterwards.

    `copies` are moved pieces that a later operator takes again.
    """
    op = plan.operators[name]
    arrays = [
        _fetched(device, fetch, pieces[tensor], copies) for tensor, fetch in zip(op.operator.inputs, plan.fetches[name])
    ]
    piece = run_kernel(lambda: op.compute(int(device.device_id), arrays))
    arrays.clear()
    for tensor in plan.freed[name]:
        del pieces[tensor]
    for step in op.reduction:
        piece = take_step(device, step, piece)
    pieces[name] = piece


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
