"""Executes traces on tiny tensors: a plain interpreter that knows nothing of the rules, to check them against."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np

from lib import Size, Trace

HIDDEN, LENGTH, RATE, DECAY = 8, 3, 0.5, 0.5


class Data:
    """A problem in small whole numbers and halves, so that sums are exact in any order."""

    def __init__(self, size: Size) -> None:
        draw = np.random.default_rng(5)
        self.weights = [draw.integers(-1, 2, (HIDDEN, HIDDEN)).astype(float) for _ in range(size.layers)]
        self.states = [draw.integers(-1, 2, (HIDDEN, HIDDEN)).astype(float) for _ in range(size.layers)]
        self.inputs = {b: draw.integers(-1, 2, (LENGTH, HIDDEN)).astype(float) for b in range(size.batches)}


def forward(inp: Any, weight: Any) -> Any:
    return np.maximum(inp @ weight, 0)


def backward(inp: Any, grad: Any, weight: Any) -> tuple[Any, Any]:
    grad = grad * (inp @ weight > 0)
    return inp.T @ grad, grad @ weight.T


def update(grad: Any, weight: Any, state: Any) -> tuple[Any, Any]:
    state = DECAY * state + grad
    return weight - RATE * state, state


def one_device(size: Size) -> list[Any]:
    """The weights after one step of plain training on all batches. The loss is half the squared output."""
    data = Data(size)
    grads = [np.zeros((HIDDEN, HIDDEN)) for _ in range(size.layers)]
    for inp in data.inputs.values():
        inputs = [inp]
        for weight in data.weights:
            inputs.append(forward(inputs[-1], weight))
        grad = inputs.pop()
        for layer in reversed(range(size.layers)):
            weight_grad, grad = backward(inputs[layer], grad, data.weights[layer])
            grads[layer] += weight_grad
    return [update(*triple)[0] for triple in zip(grads, data.weights, data.states)]


# A sharded tensor is {row: its content}; an activation {batch: array}. Both make `whole` and `sum` plain.


def rows(tensor: Any, shard: int = 0, total: int = 1) -> dict[int, Any]:
    return {r: tensor[r] for r in range(shard * HIDDEN // total, (shard + 1) * HIDDEN // total)}


def whole(parts: dict[int, Any]) -> Any:
    return np.stack([parts[r] for r in range(HIDDEN)])


def summed(values: list[dict[int, Any]]) -> dict[int, Any]:
    total: dict[int, Any] = defaultdict(float)
    for value in values:
        for r, row in value.items():
            total[r] = total[r] + row
    return dict(total)


def joined(values: list[dict[int, Any]]) -> dict[int, Any]:
    return {r: row for value in values for r, row in value.items()}


def execute(trace: Trace) -> tuple[list[dict[int, Any]], list[dict[int, Any]]]:
    """Runs a trace on tensors. Returns, per rank, all values by number and the final weights by layer."""
    size, data = trace.size, Data(trace.size)
    ranks = range(size.ranks)
    values: list[dict[int, Any]] = [{} for _ in ranks]
    final: list[dict[int, Any]] = [{} for _ in ranks]
    at, mail = [0] * size.ranks, defaultdict(list)
    meeting: dict[int, Any] = {}

    def perform(rank: int, op: Any) -> bool:
        used = [values[rank][n] for n in op.used]
        if op.name in ("allreduce", "allgather", "scatterreduce"):
            meeting[rank] = (op, used[0])
            if len(meeting) < size.ranks:
                return False
            brought = [meeting[r][1] for r in ranks]
            result = joined(brought) if op.name == "allgather" else summed(brought)
            for r in ranks:
                kept = rows(whole(result), r, size.ranks) if op.name == "scatterreduce" else result
                values[r][meeting[r][0].made[0]] = kept
                if r != rank:
                    at[r] += 1
            meeting.clear()
            return True
        if op.name == "pass_to":
            mail[rank, op.args[0]].append(used)
        elif op.name == "receive":
            if not mail[op.args[0], rank]:
                return False
            values[rank].update(zip(op.made, mail[op.args[0], rank].pop(0)))
        elif op.name == "set_final_weight":
            final[rank][op.layer] = used[0]
        else:
            values[rank].update(zip(op.made, compute(op, used)))
        return True

    def compute(op: Any, used: list[Any]) -> list[Any]:
        match op.name:
            case "load_weights":
                return [rows(data.weights[op.layer], *op.args), rows(data.states[op.layer], *op.args)]
            case "get_activation":
                return [{b: data.inputs[b] for b in op.batches}]
            case "fake_grad":
                return [rows(np.zeros((HIDDEN, HIDDEN)))]
            case "forward":
                return [{b: forward(inp, whole(used[1])) for b, inp in used[0].items()}]
            case "loss":
                return [used[0]]
            case "backward":
                pairs = {b: backward(inp, used[1][b], whole(used[2])) for b, inp in used[0].items()}
                return [
                    summed([rows(pair[0]) for pair in pairs.values()]),
                    {b: p[1] for b, p in pairs.items()},
                ]
            case "update":
                pairs = {r: update(used[0][r], weight, used[2][r]) for r, weight in used[1].items()}
                return [{r: pair[n] for r, pair in pairs.items()} for n in (0, 1)]
            case "add":
                return [summed(used)]
            case "combine":
                return [joined(used)]
            case "shard":
                wanted = rows(np.zeros((HIDDEN, HIDDEN)), *op.args)
                return [{r: used[0][r] for r in wanted}]
        return []

    moved = True
    while moved:
        moved = False
        for rank in ranks:
            while at[rank] < len(trace.ranks[rank]) and perform(rank, trace.ranks[rank][at[rank]]):
                at[rank] += 1
                moved = True
    assert at == [len(ops) for ops in trace.ranks]
    return values, final
