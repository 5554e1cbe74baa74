"""Broadcasts and reduces on tensors: each rank of a chain passes on what has come, or adds its own to it."""

from collections.abc import Sequence
from typing import Any

from lib.engine.collectives import Array
from lib.engine.executors.copies import copy_in
from lib.rules.collectives import is_last, next_member
from lib.trace.ops import Op, group_of

from .script import CHAIN
from .tensor_device import averaged


def pass_along(engine: Any, op: Op, used: list[Array]) -> Sequence[Array]:
    """One rank's part: the result, if it gets one."""
    members, device, root = group_of(op) or range(engine.num_devices), engine.device_id, op.args[2]
    is_sum, content = op.name == "reduce", engine.contents[(op.inputs or op.outputs)[0]]
    if device != (next_member(root, members) if is_sum else root):
        came = engine.next_message(next_member(device, members, -1), CHAIN)
        came = came.reshape(content.shape)
        used = [came + used[0]] if is_sum else [came]
    if not is_last(op.name, device, members, root):
        engine.send(next_member(device, members), used[0].reshape(-1))
    if not op.outputs:
        return ()
    return [averaged(engine, used[0], content.value, len(members)) if is_sum else copy_in(used[0], engine._port)]
