"""Performs the operations of attention layers and of outer steps in a replay."""

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from operator import add

from lib.engine.collectives import Array
from lib.errors import TraceError
from lib.trace.ops import Op
from lib.values.kinds import Delta, KeyValue

from .attention import Attention
from .tensor_device import TensorDevice


def attend(engine: TensorDevice, op: Op, used: list[Array]) -> Sequence[Array]:
    """Attends to each block of keys. The result is added to a tensor that is no block."""
    layer, (inp, *more) = _layer(engine, op), used
    queries, *contents = [engine.contents[number] for number in op.inputs]
    parts = [
        layer.attend(inp, queries.places, tensor, content.places) if isinstance(content.value, KeyValue) else tensor
        for tensor, content in zip(more, contents)
    ]
    return [reduce(add, parts)]


def attend_backward(engine: TensorDevice, op: Op, used: list[Array]) -> Sequence[Array]:
    layer, (inp, *blocks, grad) = _layer(engine, op), used
    queries, *places = [engine.contents[number].places for number in op.inputs[:-1]]
    pairs = [layer.attend_backward(inp, queries, block, keys, grad) for block, keys in zip(blocks, places)]
    return [reduce(add, [through for through, _ in pairs]), *[of_keys for _, of_keys in pairs]]


def _layer(engine: TensorDevice, op: Op) -> Attention:
    layer = engine.workload.layers[op.layer or 0]
    if isinstance(layer, Attention):
        return layer
    raise TraceError(f"layer {op.layer} is not an attention layer")


def outer_update(engine: TensorDevice, op: Op, used: list[Array]) -> Sequence[Array]:
    before, change, state = used
    delta = engine.contents[op.inputs[1]].value
    assert isinstance(delta, Delta)
    return engine.workload.outer_update(before, change, len(delta.copies), state)


ATTENTION_AND_OUTER: Mapping[str, Callable[[TensorDevice, Op, list[Array]], Sequence[Array]]] = {
    "keys": lambda engine, op, used: [_layer(engine, op).keys(*used)],
    "attend": attend,
    "attend_backward": attend_backward,
    "keys_backward": lambda engine, op, used: _layer(engine, op).keys_backward(*used),
    "delta": lambda engine, op, used: [used[0] - used[1]],
    "outer_update": outer_update,
    "merge": lambda engine, op, used: [engine.workload.mixed(*used)],
}
"""Each of these operations by name: maps the tensors it uses to those it creates."""
