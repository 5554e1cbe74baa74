"""The game's collectives on tensors, each by one of the engine's collectives."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from lib.engine.collectives import Array
from lib.engine.engine import ShardedEngine

from .label_walk import TensorExchange
from .labels import Content, Rows, as_tokens, axis_of, index_of, joined
from .workload import Workload


def summed(engine: ShardedEngine, workload: Workload, tensor: Array, exchange: TensorExchange) -> Array:
    """The sum of all; of weights, which only replicas bring, the average."""
    total = engine.all_reduce(tensor, group=exchange.group)
    mine = exchange.brought[exchange.place]
    averages = isinstance(mine, Rows) and mine.kind == "weight"
    return workload.average(total, len(exchange.group)) if averages else total


def scattered(engine: ShardedEngine, workload: Workload, tensor: Array, exchange: TensorExchange) -> Array:
    axis = axis_of(exchange.brought[exchange.place])
    return engine.reduce_scatter(tensor, axis=axis, group=exchange.group)


def gathered(engine: ShardedEngine, workload: Workload, tensor: Array, exchange: TensorExchange) -> Array:
    """The rows or tokens of all in order. Where some bring fewer than others, all send as many as the most."""
    brought, made = exchange.brought, exchange.made[exchange.place]
    axis, most = axis_of(made), max(len(label.places) for label in brought)
    whole = engine.all_gather(padded(tensor, axis, most), axis, group=exchange.group)
    if all(len(label.places) == most for label in brought) and _in_order(brought) == made.places:
        return whole
    parts = np.split(whole, len(brought), axis)
    short = [part[(*[slice(None)] * axis, slice(len(label.places)))] for part, label in zip(parts, brought)]
    return joined(short, brought, made)


def dispatched(engine: ShardedEngine, workload: Workload, tensor: Array, exchange: TensorExchange) -> Array:
    """This rank's share of the tokens of all batches. Where some bring fewer batches, all send as many as the most."""
    brought, made = exchange.brought, exchange.made[exchange.place]
    n, most = len(brought), max(len(as_tokens(label).batches) for label in brought)
    sent = np.stack(np.split(padded(tensor, 0, most), n, axis=1))
    came = engine.all_to_all(sent, group=exchange.group)
    place = {batch: (i, k) for i, label in enumerate(brought) for k, batch in enumerate(as_tokens(label).batches)}
    ranks, within = zip(*[place[batch] for batch in as_tokens(made).batches])
    return np.asanyarray(came[list(ranks), list(within)])


def collected(engine: ShardedEngine, workload: Workload, tensor: Array, exchange: TensorExchange) -> Array:
    """All tokens of the batches that this rank wants. Where some want fewer, all send as many as the most."""
    mine, made = exchange.brought[exchange.place], exchange.made[exchange.place]
    most = max(len(as_tokens(label).batches) for label in exchange.made)
    sent = np.zeros((len(exchange.made), most, *tensor.shape[1:]), tensor.dtype)
    for part, label in zip(sent, exchange.made):
        part[: len(as_tokens(label).batches)] = tensor[index_of(as_tokens(mine).batches, as_tokens(label).batches)]
    came = engine.all_to_all(sent, group=exchange.group)
    return joined([part[: len(as_tokens(made).batches)] for part in came], exchange.brought, made)


TENSOR_COLLECTIVES: Mapping[str, Callable[[ShardedEngine, Workload, Array, TensorExchange], Array]] = {
    "allreduce": summed,
    "scatterreduce": scattered,
    "allgather": gathered,
    "dispatch": dispatched,
    "collect": collected,
}
"""Each collective by name: from a rank's tensor to what it gets."""


def padded(tensor: Array, axis: int, length: int) -> Array:
    """A tensor with zeros at its end, so that it is as long as another."""
    missing = length - tensor.shape[axis]
    if not missing:
        return tensor
    shape = (*tensor.shape[:axis], missing, *tensor.shape[axis + 1 :])
    return np.concatenate([tensor, np.zeros(shape, tensor.dtype)], axis)


def _in_order(brought: Sequence[Content]) -> tuple[int, ...]:
    return tuple([place for label in brought for place in label.places])
