"""Execution on the engine: every device holds only its own pieces, and gets all others by engine calls.

All devices run the same operators, each on its own pieces (SPMD). The meters count what the plan predicts: bytes sent,
flops, and peak memory. A tensor is freed after its last reader; what is compared afterwards are copies that belong to
no device.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from lib.engine import ShardedEngine, launch, unmetered
from lib.engine.metering.kernel import run_kernel
from lib.layout.engine_steps import take_step
from lib.layout.errors import LayoutError
from lib.layout.layouts.pieces import Array, piece_of
from lib.layout.on_engine import Executed

from .peak import OperandFetch
from .placed_graph import PlacedGraph


class PlannedDevice(ShardedEngine):
    """One device of a plan. Its pieces of parameters come from the checkpoint, its pieces of inputs from the call."""

    def __init__(self, plan: PlacedGraph) -> None:
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


def execute(plan: PlacedGraph, values: Mapping[str, Array], on: str | None = None) -> Executed:
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
    device: ShardedEngine, plan: PlacedGraph, name: str, pieces: dict[str, Array], copies: dict[int, Array]
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
