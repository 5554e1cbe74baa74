"""Buffers: memory of a redistribution step on each device, beside the piece that it starts from.

The new piece counts, and so do the parts that are packed to be sent and what arrives. `engine_steps` executes the steps
with these buffers.
"""

from collections.abc import Sequence
from functools import lru_cache
from math import prod

import numpy as np

from lib.layout.layouts.device_matrix import Ints
from lib.layout.redistribution.exchange import Exchange
from lib.layout.redistribution.steps import SUM_EXCHANGE, Step
from lib.layout.redistribution.sum_exchange import Messages, SumExchange


def most_elements(steps: Sequence[Step], freed: bool = False) -> Ints:
    """The most elements that steps take at the same time, by device, beside the piece that the first one starts from.

    A step's source is freed when the next piece is complete. The first one's belongs to whoever has it, unless it is
    `freed` as well, as an operator's own piece is.
    """
    most = np.zeros(steps[0].source.devices, dtype=np.int64)
    for i, step in enumerate(steps):
        gone = steps[0].source.elements if freed and i else 0
        most = np.maximum(most, buffer_elements(step) + (step.source.elements if i else 0) - gone)
    return most


@lru_cache(maxsize=65536)
def buffer_elements(step: Step) -> Ints:
    """The elements of a step's buffers and of the new piece, by device, when they are most."""
    old, new = step.source.elements, step.target.elements
    if step.name == "all-reduce":
        most = new
    elif step.name == "reduce-scatter":  # the parts, and the sum of this device's
        most = len(step.group(0)) * new + new
    elif step.name == "all-gather":  # everyone's piece, and the new one in which they are put in place
        most = len(step.group(0)) * old + new
    elif step.name == "all-to-all":  # the parts, as many that arrive, and then the new piece
        group = step.group(0)
        packed = len(group) * prod(side.stop - side.start for side in step.meeting(0, group[0]))
        most = packed + max(packed, new)
    elif step.name == SUM_EXCHANGE:
        return new + _of_sums(step.sum_exchange)
    else:
        return new + _of_messages(step.exchange)
    return np.full(step.source.devices, most, dtype=np.int64)


def _of_messages(exchange: Exchange) -> Ints:
    """The largest message: each is packed when it is sent, and put in place when it arrives."""
    pairs = np.zeros((exchange.source.devices, exchange.source.devices), dtype=np.int64)
    np.add.at(pairs, (exchange.sender, exchange.receiver), exchange.hi - exchange.lo)
    return _largest(pairs)


def _of_sums(exchange: SumExchange) -> Ints:
    """All summands that arrive with the sums of this device's shares; or the sums with the largest message."""
    devices = exchange.source.devices
    sums = np.bincount(exchange.owner, weights=exchange.hi - exchange.lo, minlength=devices).astype(np.int64)
    packed, arrived = _pairs(exchange.summands).max(axis=1), _pairs(exchange.summands).sum(axis=0)
    most: Ints = np.maximum(packed, sums + np.maximum(arrived, _largest(_pairs(exchange.sums))))
    return most


def _pairs(messages: Messages) -> Ints:
    """Elements from each device (row) to each other (column)."""
    pairs = np.zeros((messages.devices, messages.devices), dtype=np.int64)
    np.add.at(pairs, (messages.sender, messages.receiver), messages.size[messages.share])
    return pairs


def _largest(pairs: Ints) -> Ints:
    """By device, the largest message that it sends or receives."""
    most: Ints = np.maximum(pairs.max(axis=1), pairs.max(axis=0))
    return most
