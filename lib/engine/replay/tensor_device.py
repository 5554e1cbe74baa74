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
from lib.values.kinds import Value, Weight

from .contents import Content, Result, TensorExchange, index_of, joined, taken
from .workload import Workload

TIERS = ("host", "disk")


class TensorDevice(ShardedEngine):
    """A device whose tensors belong to a workload."""

    workload: Workload
    contents: Mapping[int, Content]
    """What each tensor holds, by the number of its value."""
    results: list[Result]

    def load_checkpoint(self, params: Any) -> None:
        """Does nothing: `load_weights` in the trace determines which part is loaded, and when."""

    def backward(self, grads: Any) -> Any:
        """Does nothing: the trace determines when."""

    def zeros(self, shape: tuple[int, ...]) -> Array:
        library = self._port.library
        array = library.zeros(shape, self.workload.dtype)
        return array if current.meter is None else library.charged(array, current.meter)

    def tier(self, number: int) -> MemoryTier:
        """The tier on which a value is parked."""
        memory: MemoryTier = getattr(self, self.contents[number].tier)
        return memory

    def live_bytes(self) -> tuple[int, ...]:
        """Bytes on the device, and on each of TIERS."""
        meter = self._port.meter
        return (0,) * 3 if meter is None else (meter.live, *(getattr(meter, tier)["live"] for tier in TIERS))

    def declared(self) -> list[Result]:
        return self.results

    def declare(self, op: Op, used: list[Array]) -> Sequence[Array]:
        """Keeps a copy of a result, which is not charged to the device."""
        with unmetered():
            number = op.layer if op.name != "set_final_copy" else ~(op.layer or 0)
            self.results.append((number, self.contents[op.inputs[0]], self._port.library.on_host(used[0])))
        return ()

    def of_each_batch(self, draw: Callable[[int, int], Array], content: Content) -> Array:
        step: int = content.value.step  # type: ignore[attr-defined]  # activations have steps
        with unmetered():
            if self.workload.shapes.lengths:
                length = self.workload.shapes.length
                own = [[at % length for at in content.places if at // length == i] for i in range(len(content.batches))]
                drawn = np.concatenate([draw(batch, step)[at] for batch, at in zip(content.batches, own)])[None]
            else:
                drawn = np.array([draw(batch, step)[list(content.places)] for batch in content.batches])
        return copy_in(drawn, self._port)

    def bundle(self, tensors: list[Array]) -> Array:
        """Several tensors as one message; an empty message for no tensors."""
        flat: Array = self.xp.concatenate([t.reshape(-1) for t in tensors]) if tensors else self.zeros((0,))
        return flat


def summed(engine: TensorDevice, tensor: Array, exchange: TensorExchange) -> Array:
    """The sum of all inputs; for the weights of replicas, their average."""
    total = engine.all_reduce(tensor, group=exchange.group)
    return averaged(engine, total, exchange.inputs[exchange.place].value, len(exchange.group))


def averaged(engine: TensorDevice, total: Array, value: Value, ranks: int) -> Array:
    """A sum over some ranks; for the weights of replicas, their average."""
    return engine.workload.average(total, ranks) if isinstance(value, Weight) else total


def scattered(engine: TensorDevice, tensor: Array, exchange: TensorExchange) -> Array:
    content = exchange.inputs[exchange.place]
    tensor = taken(tensor, content, _in_order(exchange.results))
    return engine.reduce_scatter(tensor, axis=content.axis, group=exchange.group)


def gathered(engine: TensorDevice, tensor: Array, exchange: TensorExchange) -> Array:
    """The rows or tokens of all ranks, in order. Shorter inputs are padded to the longest."""
    inputs, result = exchange.inputs, exchange.results[exchange.place]
    axis, most = result.axis, max(len(content.places) for content in inputs)
    whole = engine.all_gather(padded(engine, tensor, axis, most), axis, group=exchange.group)
    if all(len(content.places) == most for content in inputs) and _in_order(inputs) == result.places:
        return whole
    parts = pieces(whole, len(inputs), axis)
    short = [part[(*[slice(None)] * axis, slice(len(content.places)))] for part, content in zip(parts, inputs)]
    return joined(short, inputs, result, engine.zeros(result.shape))


def dispatched(engine: TensorDevice, tensor: Array, exchange: TensorExchange) -> Array:
    """This rank's share of the tokens of all batches. Inputs with fewer batches are padded to the most."""
    inputs, result = exchange.inputs, exchange.results[exchange.place]
    n, most = len(inputs), max(len(content.batches) for content in inputs)
    sent = engine.xp.stack(pieces(padded(engine, tensor, 0, most), n, 1))
    came = engine.all_to_all(sent, group=exchange.group)
    place = {batch: (i, k) for i, content in enumerate(inputs) for k, batch in enumerate(content.batches)}
    ranks, within = zip(*[place[batch] for batch in result.batches])
    arrived: Array = came[list(ranks), list(within)]
    return arrived


def collected(engine: TensorDevice, tensor: Array, exchange: TensorExchange) -> Array:
    """All tokens of the batches that this rank wants. Results with fewer batches are padded to the most."""
    batches, result = exchange.inputs[exchange.place].batches, exchange.results[exchange.place]
    most = max(len(content.batches) for content in exchange.results)
    sent = engine.zeros((len(exchange.results), most, *tensor.shape[1:]))
    for part, content in zip(sent, exchange.results):
        part[: len(content.batches)] = tensor[index_of((*batches,), (*content.batches,))]
    came = engine.all_to_all(sent, group=exchange.group)
    short = [part[: len(result.batches)] for part in came]
    return joined(short, exchange.inputs, result, engine.zeros(result.shape))


TOKENS, COLUMNS = 1, 2
"""Axes of an activation."""


def exchanged(engine: TensorDevice, tensor: Array, exchange: TensorExchange, whole: int, cut: int) -> Array:
    """All tokens with this rank's columns, or its tokens with all columns: the axis that becomes whole, and the one
    that is cut."""
    inputs, results, own = exchange.inputs, exchange.results, exchange.place
    if cut == TOKENS:
        tensor = taken(tensor, inputs[own], _in_order(results))
    came = engine.all_to_all(engine.xp.stack(pieces(tensor, len(inputs), cut)), group=exchange.group)
    result: Array = engine.xp.concatenate([*came], whole)
    order = index_of(_in_order(inputs), results[own].places) if whole == TOKENS else slice(None)
    return result if order == slice(None) else result[:, order]


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
    length, before = tensor.shape[axis] // n, [slice(None)] * axis
    return [tensor[(*before, slice(i * length, (i + 1) * length))] for i in range(n)]


def _in_order(contents: Sequence[Content]) -> tuple[int, ...]:
    return tuple([place for content in contents for place in content.places])
