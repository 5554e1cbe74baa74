"""Executes one rank's part of a trace on the engine, with real tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from time import perf_counter
from typing import Any

import numpy as np

from lib.engine.collectives import Array
from lib.engine.engine import ShardedEngine
from lib.errors import TraceError
from lib.lifetimes import Span, lifetimes
from lib.trace import TIMED, Op

from .placement import Label, Placement, rows_of
from .workload import Workload, backward, forward, loss_grad, update


class ReplayEngine(ShardedEngine):
    """Holds a tensor from its creation to its last use, and while it is stored: exactly what the game charges."""

    def __init__(self, placement: Placement, workload: Workload) -> None:
        self.workload = workload
        self.placed = placement.ranks[self.device_id]
        self.labels = self.placed.labels
        self.tensors: dict[int, Array] = {}
        self.final: dict[int, list[tuple[Label, Array]]] = {}

    def load_checkpoint(self, params: Any) -> None:
        """Does nothing: `load_weights` in the trace determines which part is loaded, and when."""

    def backward(self, grads: Any) -> Any:
        """Does nothing: the trace determines when."""

    def forward(self, x: Any) -> Any:
        """Executes the whole trace. Returns the measurements: bytes live at each event and at the end, and the seconds
        of each event."""
        ops = self.placed.ops
        freed = _freed_after(lifetimes(ops).held)
        live: list[int] = []
        seconds: list[float] = []
        for i, op in enumerate(ops):
            if op.name in TIMED:
                live.append(self._live_bytes())
            start = perf_counter()
            self.tensors.update(zip(op.made, self.perform(op)))
            if op.name in TIMED:
                seconds.append(perf_counter() - start)
            for number in freed.get(i, ()):
                self.tensors.pop(number, None)
        live.append(self._live_bytes())
        return {"live": live, "seconds": seconds}

    def _live_bytes(self) -> int:
        meter = self._port.meter
        return meter.live if meter is not None else 0

    def finals(self) -> dict[int, list[tuple[Label, Array]]]:
        """By layer: the final weights that this rank has set, with their rows."""
        return self.final

    def perform(self, op: Op) -> Sequence[Array]:
        """The tensors that an operation creates; empty if it touches no tensor."""
        perform = PERFORM.get(op.name)
        return () if perform is None else perform(self, op, [self.tensors[number] for number in op.used])

    def labels_of(self, numbers: Iterable[int]) -> list[Label]:
        return [self.labels[number] for number in numbers]

    # --- What a rank does on its own ---

    def load(self, op: Op, used: list[Array]) -> Sequence[Array]:
        rows, layer = self.labels[op.made[0]], op.layer or 0
        part = slice(rows[0], rows[-1] + 1)
        return [np.array(self.workload.weight(layer)[part]), np.array(self.workload.state(layer)[part])]

    def inputs(self, op: Op, used: list[Array]) -> Sequence[Array]:
        return [np.array([self.workload.input(batch) for batch in self.labels[op.made[0]]])]

    def zero_grad(self, op: Op, used: list[Array]) -> Sequence[Array]:
        hidden = self.workload.shape.hidden
        return [np.zeros((hidden, hidden), self.workload.dtype)]

    def layer_forward(self, op: Op, used: list[Array]) -> Sequence[Array]:
        inp, weight = used
        return [forward(inp, self.whole(weight))]

    def loss(self, op: Op, used: list[Array]) -> Sequence[Array]:
        targets = np.array([self.workload.target(batch) for batch in self.labels[op.used[0]]])
        return [loss_grad(used[0], targets)]

    def layer_backward(self, op: Op, used: list[Array]) -> Sequence[Array]:
        inp, grad, weight = used
        return backward(inp, grad, self.whole(weight))

    def update(self, op: Op, used: list[Array]) -> Sequence[Array]:
        grad, weight, state = used
        of_grad, rows, of_state = self.labels_of(op.used)
        return update(self.workload, grad[rows_of(of_grad, rows)], weight, state[rows_of(of_state, rows)])

    def add(self, op: Op, used: list[Array]) -> Sequence[Array]:
        return [used[0] + used[1]]

    def combine(self, op: Op, used: list[Array]) -> Sequence[Array]:
        return [self.joined(used, self.labels_of(op.used), self.labels[op.made[0]])]

    def cut(self, op: Op, used: list[Array]) -> Sequence[Array]:
        return [np.array(used[0][rows_of(self.labels[op.used[0]], self.labels[op.made[0]])])]

    def set_final(self, op: Op, used: list[Array]) -> Sequence[Array]:
        self.final.setdefault(op.layer or 0, []).append((self.labels[op.used[0]], used[0]))
        return ()

    def whole(self, weight: Array) -> Array:
        if len(weight) < self.workload.shape.hidden:
            raise TraceError(
                f"a weight of {len(weight)} rows cannot be used; all {self.workload.shape.hidden} are needed"
            )
        return weight

    def joined(self, parts: list[Array], labels: list[Label], wanted: Label) -> Array:
        """The wanted rows of all parts; rows that no part has, as in a forced trace, are zero."""
        result = np.zeros((len(wanted), parts[0].shape[1]), parts[0].dtype)
        for part, label in zip(parts, labels):
            result[rows_of(wanted, label)] = part
        return result

    # --- What ranks do together ---

    def sum_of_all(self, op: Op, used: list[Array]) -> Sequence[Array]:
        return [self.all_reduce(used[0])]

    def shard_of_sum(self, op: Op, used: list[Array]) -> Sequence[Array]:
        return [self.reduce_scatter(used[0])]

    def rows_of_all(self, op: Op, used: list[Array]) -> Sequence[Array]:
        """All ranks' rows in order. If ranks contribute different numbers of rows, all send as many as the largest."""
        (part,), (made,) = used, op.made
        brought, wanted = self.placed.brought[made], self.labels[made]
        most = max(map(len, brought))
        if len(part) < most:
            part = np.concatenate([part, np.zeros((most - len(part), part.shape[1]), part.dtype)])
        parts = self.all_gather(part)
        if tuple(row for label in brought for row in label) == wanted and all(len(label) == most for label in brought):
            return [parts]
        cut = [parts[n * most : n * most + len(label)] for n, label in enumerate(brought)]
        return [self.joined(cut, brought, wanted)]

    def send_values(self, op: Op, used: list[Array]) -> Sequence[Array]:
        self.send(op.args[0], used[0] if len(used) == 1 else bundle(used, self.workload))
        return ()

    def receive_values(self, op: Op, used: list[Array]) -> Sequence[Array]:
        array = self.receive(op.args[0])
        if len(op.made) == 1:
            return [array]
        shapes = [self.shape_of(number) for number in op.made]
        ends = np.cumsum([int(np.prod(shape)) for shape in shapes])
        return [np.array(flat.reshape(shape)) for flat, shape in zip(np.split(array, ends[:-1]), shapes)]

    def shape_of(self, number: int) -> tuple[int, ...]:
        """The shape of a value that arrives in a bundle."""
        count, (hidden, length) = len(self.labels[number]), self.workload.shape
        return (count, length, hidden) if number in self.placed.batched else (count, hidden)


PERFORM: Mapping[str, Callable[[ReplayEngine, Op, list[Array]], Sequence[Array]]] = {
    "load_weights": ReplayEngine.load,
    "get_activation": ReplayEngine.inputs,
    "fake_grad": ReplayEngine.zero_grad,
    "forward": ReplayEngine.layer_forward,
    "loss": ReplayEngine.loss,
    "backward": ReplayEngine.layer_backward,
    "update": ReplayEngine.update,
    "add": ReplayEngine.add,
    "combine": ReplayEngine.combine,
    "shard": ReplayEngine.cut,
    "allreduce": ReplayEngine.sum_of_all,
    "allgather": ReplayEngine.rows_of_all,
    "scatterreduce": ReplayEngine.shard_of_sum,
    "pass_to": ReplayEngine.send_values,
    "receive": ReplayEngine.receive_values,
    "set_final_weight": ReplayEngine.set_final,
}
"""Each operation that touches tensors, by name: maps the tensors it uses to those it creates."""


def _freed_after(held: Iterable[Span]) -> dict[int, list[int]]:
    """By index of an operation: the numbers of the values that are no longer needed after it."""
    freed: dict[int, list[int]] = {}
    for number, _, until in held:
        freed.setdefault(until, []).append(number)
    return freed


def bundle(tensors: list[Array], workload: Workload) -> Array:
    """Several tensors as one message; no tensors as an empty one."""
    return np.concatenate([np.ravel(t) for t in tensors]) if tensors else np.zeros(0, workload.dtype)
