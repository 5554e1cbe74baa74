"""Steps of redistributions on one device of the engine: buffers, calls, and what arrives.

A reduce-scatter, all-reduce, all-gather or all-to-all uses the engine's collective of that name, in groups. A permute
or general exchange uses messages; a slice needs no call. The buffers that exist at the same time are those that
`planning/peak.py` predicts.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from lib.engine import ShardedEngine, unmetered
from lib.layout.layouts.device_matrix import Ints
from lib.layout.layouts.pieces import Array, blank, new_piece
from lib.layout.redistribution.messages import Messages, TensorTransfer
from lib.layout.redistribution.steps import SUM_EXCHANGE, Step
from lib.layout.redistribution.sum_exchange import SumExchange


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

__all__ = ["take_step"]
