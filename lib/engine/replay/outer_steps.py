"""Outer steps on real tensors: changes of copies, outer updates, and copies that are merged with an average."""

from collections.abc import Callable, Mapping, Sequence

from lib.engine.collectives import Array
from lib.trace.ops import Op

from .labels import as_rows, held
from .tensor_device import TensorDevice


def _updated(engine: TensorDevice, op: Op, used: list[Array]) -> Sequence[Array]:
    before, change, state = used
    copies = as_rows(held(engine.labels[op.inputs[1]])).copies
    return engine.workload.outer_update(before, change, copies, state)


OUTER: Mapping[str, Callable[[TensorDevice, Op, list[Array]], Sequence[Array]]] = {
    "delta": lambda engine, op, used: [used[0] - used[1]],
    "outer_update": _updated,
    "merge": lambda engine, op, used: [engine.workload.mixed(*used)],
}
"""Each of these operations by name: maps the tensors it uses to those it creates."""
