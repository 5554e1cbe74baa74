"""Performs the operations of layers of attention in a replay, with the tokens that their tensors hold."""

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from operator import add

from lib.engine.collectives import Array
from lib.errors import TraceError
from lib.trace.ops import Op

from .attention import Attention
from .labels import as_tokens
from .tensor_device import TensorDevice


def keys(engine: TensorDevice, op: Op, used: list[Array]) -> Sequence[Array]:
    return [_layer(engine, op).keys(*used)]


def attend(engine: TensorDevice, op: Op, used: list[Array]) -> Sequence[Array]:
    """Of each block of keys; what it is to be added to has no queries of its own."""
    layer, (inp, *more) = _layer(engine, op), used
    queries, *held = [as_tokens(engine.labels[number]) for number in op.inputs]
    parts = [
        one if there.queries is None else layer.attend(inp, queries.places, one, there.places)
        for one, there in zip(more, held)
    ]
    return [reduce(add, parts)]


def attend_backward(engine: TensorDevice, op: Op, used: list[Array]) -> Sequence[Array]:
    layer, (inp, *blocks, grad) = _layer(engine, op), used
    queries, *held = [as_tokens(engine.labels[number]).places for number in op.inputs[:-1]]
    pairs = [layer.attend_backward(inp, queries, one, there, grad) for one, there in zip(blocks, held)]
    return [reduce(add, [through for through, _ in pairs]), *[of_keys for _, of_keys in pairs]]


def keys_backward(engine: TensorDevice, op: Op, used: list[Array]) -> Sequence[Array]:
    return _layer(engine, op).keys_backward(*used)


def _layer(engine: TensorDevice, op: Op) -> Attention:
    layer = engine.workload.layers[op.layer or 0]
    if isinstance(layer, Attention):
        return layer
    raise TraceError(f"layer {op.layer} is no attention")


ATTEND: Mapping[str, Callable[[TensorDevice, Op, list[Array]], Sequence[Array]]] = {
    "keys": keys,
    "attend": attend,
    "attend_backward": attend_backward,
    "keys_backward": keys_backward,
}
"""Each of these operations by name: maps the tensors it uses to those it creates."""
