"""A device of a replay: its tensors of numpy or torch, and the game's collectives on them."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from lib.engine.collectives import Array
from lib.engine.engine import ShardedEngine
from lib.engine.executors.copies import copy_in
from lib.engine.memory_tiers import MemoryTier
from lib.engine.metering.meter import current, unmetered
from lib.trace.ops import Op

from .label_walk import TensorExchange
from .labels import Content, Found, Label, OnTier, Rows, Tokens, as_tokens, axis_of, held, index_of, joined, shape_of
from .workload import Workload

TIERS = ("host", "disk")


class TensorDevice(ShardedEngine):
    """A device whose tensors belong to a workload."""

    workload: Workload
    labels: Mapping[int, Label]
    """What each tensor holds, by the number of its value."""
    results: list[Found]

    def load_checkpoint(self, params: Any) -> None:
        """Does nothing: `load_weights` in the trace determines which part is loaded, and when."""

    def backward(self, grads: Any) -> Any:
        """Does nothing: the trace determines when."""

    def zeros(self, like: Content | tuple[int, ...]) -> Array:
        """Zeros for a label or of a shape."""
        shape = shape_of(like, self.workload.shapes.hidden) if isinstance(like, Rows | Tokens) else like
        library = self._port.library
        made = library.zeros(shape, self.workload.dtype)
        return made if current.meter is None else library.charged(made, current.meter)

    def tier(self, number: int) -> MemoryTier:
        """The tier on which a value is parked."""
        label = self.labels[number]
        assert isinstance(label, OnTier)
        memory: MemoryTier = getattr(self, label.tier)
        return memory

    def live_bytes(self) -> tuple[int, ...]:
        """Bytes on the device, and on each of TIERS."""
        meter = self._port.meter
        return (0,) * 3 if meter is None else (meter.live, *(getattr(meter, tier)["live"] for tier in TIERS))

    def found(self) -> list[Found]:
        return self.results

    def declare(self, op: Op, used: list[Array]) -> Sequence[Array]:
        """Keeps a copy of a result, which is not charged to the device."""
        with unmetered():
            number = op.layer if op.name != "set_final_copy" else ~(op.layer or 0)
            self.results.append((number, held(self.labels[op.inputs[0]]), self._port.library.on_host(used[0])))
        return ()

    def of_each_batch(self, draw: Callable[[int, int], Array], label: Tokens) -> Array:
        with unmetered():
            if label.in_a_row:
                drawn = np.concatenate([draw(batch, label.step) for batch in label.batches])[None]
            else:
                drawn = np.array([draw(batch, label.step)[list(label.places)] for batch in label.batches])
        return copy_in(drawn, self._port)

    def bundle(self, tensors: list[Array]) -> Array:
        """Several tensors as one message; an empty message for no tensors."""
        flat: Array = self.xp.concatenate([t.reshape(-1) for t in tensors]) if tensors else self.zeros((0,))
        return flat


def summed(engine: TensorDevice, tensor: Array, exchange: TensorExchange) -> Array:
    """The sum of all inputs; for the weights of replicas, their average."""
    total = engine.all_reduce(tensor, group=exchange.group)
    return averaged(engine, total, exchange.brought[exchange.place], len(exchange.group))


def averaged(engine: TensorDevice, total: Array, label: Content, ranks: int) -> Array:
    """A sum over some ranks; for the weights of replicas, their average."""
    averages = isinstance(label, Rows) and label.kind == "weight"
    return engine.workload.average(total, ranks) if averages else total


def scattered(engine: TensorDevice, tensor: Array, exchange: TensorExchange) -> Array:
    mine = exchange.brought[exchange.place]
    if isinstance(mine, Tokens) and mine.queries:  # to each rank the tokens of its own queries
        order = [place for label in exchange.made for place in label.places]
        tensor = tensor[:, index_of(mine.places, tuple(order))]
    return engine.reduce_scatter(tensor, axis=axis_of(mine), group=exchange.group)


def gathered(engine: TensorDevice, tensor: Array, exchange: TensorExchange) -> Array:
    """The rows or tokens of all ranks, in order. Shorter inputs are padded to the longest."""
    brought, made = exchange.brought, exchange.made[exchange.place]
    axis, most = axis_of(made), max(len(label.places) for label in brought)
    whole = engine.all_gather(padded(engine, tensor, axis, most), axis, group=exchange.group)
    if all(len(label.places) == most for label in brought) and _in_order(brought) == made.places:
        return whole
    parts = pieces(whole, len(brought), axis)
    short = [part[(*[slice(None)] * axis, slice(len(label.places)))] for part, label in zip(parts, brought)]
    return joined(short, brought, made, engine.zeros(made))


def dispatched(engine: TensorDevice, tensor: Array, exchange: TensorExchange) -> Array:
    """This rank's share of the tokens of all batches. Inputs with fewer batches are padded to the most."""
    brought, made = exchange.brought, exchange.made[exchange.place]
    n, most = len(brought), max(len(as_tokens(label).batches) for label in brought)
    sent = engine.xp.stack(pieces(padded(engine, tensor, 0, most), n, 1))
    came = engine.all_to_all(sent, group=exchange.group)
    place = {batch: (i, k) for i, label in enumerate(brought) for k, batch in enumerate(as_tokens(label).batches)}
    ranks, within = zip(*[place[batch] for batch in as_tokens(made).batches])
    arrived: Array = came[list(ranks), list(within)]
    return arrived


def collected(engine: TensorDevice, tensor: Array, exchange: TensorExchange) -> Array:
    """All tokens of the batches that this rank wants. Results with fewer batches are padded to the most."""
    mine, made = exchange.brought[exchange.place], exchange.made[exchange.place]
    most = max(len(as_tokens(label).batches) for label in exchange.made)
    sent = engine.zeros((len(exchange.made), most, *tensor.shape[1:]))
    for part, label in zip(sent, exchange.made):
        part[: len(as_tokens(label).batches)] = tensor[index_of(as_tokens(mine).batches, as_tokens(label).batches)]
    came = engine.all_to_all(sent, group=exchange.group)
    short = [part[: len(as_tokens(made).batches)] for part in came]
    return joined(short, exchange.brought, made, engine.zeros(made))


TOKENS, COLUMNS = 1, 2
"""Axes of an activation."""


def exchanged(engine: TensorDevice, tensor: Array, exchange: TensorExchange, whole: int, cut: int) -> Array:
    """All tokens with this rank's columns, or its tokens with all columns: the axis that becomes whole, and the one
    that is cut."""
    came = engine.all_to_all(engine.xp.stack(pieces(tensor, len(exchange.brought), cut)), group=exchange.group)
    made: Array = engine.xp.concatenate([*came], whole)
    return made


TENSOR_COLLECTIVES: Mapping[str, Callable[[TensorDevice, Array, TensorExchange], Array]] = {
    "allreduce": summed,
    "scatterreduce": scattered,
    "allgather": gathered,
    "dispatch": dispatched,
    "collect": collected,
    "heads": partial(exchanged, whole=TOKENS, cut=COLUMNS),
    "tokens": partial(exchanged, whole=COLUMNS, cut=TOKENS),
}
"""Each collective, from a rank's input tensor to its result."""


def padded(engine: TensorDevice, tensor: Array, axis: int, length: int) -> Array:
    """A tensor with zeros appended up to a length."""
    missing = length - tensor.shape[axis]
    if not missing:
        return tensor
    shape = (*tensor.shape[:axis], missing, *tensor.shape[axis + 1 :])
    longer: Array = engine.xp.concatenate([tensor, engine.zeros(shape)], axis)
    return longer


def pieces(tensor: Array, n: int, axis: int) -> list[Array]:
    each, before = tensor.shape[axis] // n, [slice(None)] * axis
    return [tensor[(*before, slice(i * each, (i + 1) * each))] for i in range(n)]


def _in_order(brought: Sequence[Content]) -> tuple[int, ...]:
    return tuple([place for label in brought for place in label.places])
