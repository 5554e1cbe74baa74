"""One rank of a trace on the engine: it does what the trace says, with real tensors."""

from __future__ import annotations

from time import perf_counter
from typing import Any

import numpy as np

from lib.engine.collectives import Array
from lib.engine.engine import ShardedEngine
from lib.errors import TraceError
from lib.trace import TIMED, Op

from .placement import Label, Plan, last_uses, rows_of
from .workload import Problem, backward, forward, loss_grad, update


class Actor(ShardedEngine):
    """Holds a tensor from when the trace makes it to its last use, and while it is stored: what the game charges."""

    def __init__(self, plan: Plan, problem: Problem) -> None:
        self.plan = plan
        self.problem = problem
        self.ops = plan.trace.ranks[self.device_id]
        self.labels = plan.labels[self.device_id]
        self.tensors: dict[int, Array] = {}
        self.final: dict[int, list[tuple[Label, Array]]] = {}

    def load_checkpoint(self, params: Any) -> None:
        """Nothing: `load_weights` says in the trace which part is loaded, and when."""

    def backward(self, grads: Any) -> Any:
        """Nothing: the trace says when."""

    def forward(self, x: Any) -> Any:
        """Plays the whole trace. Returns what was measured: bytes live at each event and at the end, and seconds
        of each event."""
        meter = self._port.meter
        last, places = last_uses(self.ops), [0] * len(self.labels)
        stored: dict[Any, int] = {}
        live: list[int] = []
        seconds: list[float] = []
        for i, op in enumerate(self.ops):
            touched = [*op.used, *op.made]
            if op.name == "store":
                places[op.used[0]] += 1
                touched += [number] if (number := stored.get(op.args, -1)) >= 0 else []
                if len(touched) > 1:
                    places[touched[1]] -= 1
                stored[op.args] = op.used[0]
            elif op.name == "delete":
                touched = [stored.pop(op.args)]
                places[touched[0]] -= 1
            else:
                timed = op.name in TIMED
                if timed:
                    live.append(meter.live if meter is not None else 0)
                start = perf_counter()
                self.tensors.update(zip(op.made, self.perform(i, op)))
                if timed:
                    seconds.append(perf_counter() - start)
            for number in touched:
                if not places[number] and last[number] <= i:
                    self.tensors.pop(number, None)
        live.append(meter.live if meter is not None else 0)
        return {"live": live, "seconds": seconds}

    def finals(self) -> dict[int, list[tuple[Label, Array]]]:
        """By layer: the final weights that this rank has set, with their rows."""
        return self.final

    def perform(self, i: int, op: Op) -> list[Array]:
        """The tensors that an operation makes."""
        used = [self.tensors[number] for number in op.used]
        labels = [self.labels[number] for number in op.used]
        problem, layer = self.problem, op.layer or 0
        match op.name:
            case "load_weights":
                rows = self.labels[op.made[0]]
                part = slice(rows[0], rows[-1] + 1)
                return [np.array(problem.weight(layer)[part]), np.array(problem.state(layer)[part])]
            case "get_activation":
                return [np.array([problem.input(b) for b in self.labels[op.made[0]]])]
            case "fake_grad":
                return [np.zeros((problem.shape.hidden, problem.shape.hidden), problem.dtype)]
            case "forward":
                return [forward(used[0], self.whole(used[1]))]
            case "loss":
                return [loss_grad(used[0], np.array([problem.target(b) for b in labels[0]]))]
            case "backward":
                return list(backward(used[0], used[1], self.whole(used[2])))
            case "update":
                (grad, weight, state), rows = used, labels[1]
                return list(update(problem, grad[rows_of(labels[0], rows)], weight, state[rows_of(labels[2], rows)]))
            case "add":
                return [used[0] + used[1]]
            case "combine":
                return [self.joined(used, labels, self.labels[op.made[0]])]
            case "shard":
                return [np.array(used[0][rows_of(labels[0], self.labels[op.made[0]])])]
            case "allreduce":
                return [self.all_reduce(used[0])]
            case "scatterreduce":
                return [self.reduce_scatter(used[0])]
            case "allgather":
                return [self.gathered(used[0], i, self.labels[op.made[0]])]
            case "pass_to":
                self.send(op.args[0], used[0] if len(used) == 1 else bundle(used, problem))
            case "receive":
                return self.received(op)
            case "set_final_weight":
                self.final.setdefault(layer, []).append((labels[0], used[0]))
        return []

    def whole(self, weight: Array) -> Array:
        if len(weight) < self.problem.shape.hidden:
            raise TraceError(
                f"a weight of {len(weight)} rows cannot be used; all {self.problem.shape.hidden} are needed"
            )
        return weight

    def gathered(self, part: Array, i: int, wanted: Label) -> Array:
        """All ranks' rows in order. Where ranks bring different numbers of rows, all send as many as the most."""
        brought = self.plan.brought[self.device_id][i]
        most = max(map(len, brought))
        if len(part) < most:
            part = np.concatenate([part, np.zeros((most - len(part), part.shape[1]), part.dtype)])
        parts = self.all_gather(part)
        if tuple(row for label in brought for row in label) == wanted and all(len(label) == most for label in brought):
            return parts
        cut = [parts[n * most : n * most + len(label)] for n, label in enumerate(brought)]
        return self.joined(cut, brought, wanted)

    def joined(self, parts: list[Array], labels: list[Label], wanted: Label) -> Array:
        result = np.zeros((len(wanted), parts[0].shape[1]), parts[0].dtype)  # what a forced trace never brings is zero
        for part, label in zip(parts, labels):
            result[rows_of(wanted, label)] = part
        return result

    def received(self, op: Op) -> list[Array]:
        array = self.receive(op.args[0])
        if len(op.made) == 1:
            return [array]
        shapes = [self.shape_of(number) for number in op.made]
        ends = np.cumsum([int(np.prod(shape)) for shape in shapes])
        return [np.array(flat.reshape(shape)) for flat, shape in zip(np.split(array, ends[:-1]), shapes)]

    def shape_of(self, number: int) -> tuple[int, ...]:
        """The shape of a value that arrives in a bundle."""
        count, (hidden, length) = len(self.labels[number]), self.problem.shape
        return (count, length, hidden) if number in self.plan.batched[self.device_id] else (count, hidden)


def bundle(tensors: list[Array], problem: Problem) -> Array:
    """Several tensors as one message; none as an empty one."""
    return np.concatenate([np.ravel(t) for t in tensors]) if tensors else np.zeros(0, problem.dtype)
