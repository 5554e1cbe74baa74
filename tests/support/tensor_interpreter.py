"""Executes traces on tiny tensors: a plain interpreter that knows nothing of the rules, to check them against."""

from __future__ import annotations

from collections import defaultdict
from itertools import chain
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


def loss(out: Any) -> Any:
    return 2 * out


def backward(inp: Any, grad: Any, weight: Any) -> tuple[Any, Any]:
    grad = grad * (inp @ weight > 0)
    return inp.T @ grad, grad @ weight.T


def update(grad: Any, weight: Any, state: Any) -> tuple[Any, Any]:
    state = DECAY * state + grad
    return weight - RATE * state, state


def one_device(size: Size) -> list[Any]:
    """The weights after one step of plain training on all batches. The loss is the squared output."""
    data = Data(size)
    grads = [np.zeros((HIDDEN, HIDDEN)) for _ in range(size.layers)]
    for inp in data.inputs.values():
        inputs = [inp]
        for weight in data.weights:
            inputs.append(forward(inputs[-1], weight))
        grad = loss(inputs.pop())
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


def gathered(values: list[dict[int, Any]]) -> dict[int, Any]:
    """The rows of all, which are different ones."""
    assert len({*chain(*values)}) == sum(map(len, values))
    return joined(values)


COLLECTIVES = ("allreduce", "allgather", "scatterreduce")

Tensor = dict[int, Any]


class Interpreter:
    """A trace on tensors. What a pending call makes is there only once it has been awaited."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.data = Data(trace.size)
        self.ranks = range(trace.size.ranks)
        self.at = [0 for _ in self.ranks]
        self.values: list[dict[int, Tensor]] = [{} for _ in self.ranks]
        self.declared: list[tuple[int, Tensor]] = []
        """Every final weight that a rank has set, with its layer."""
        self.under_way: list[dict[int, Tensor]] = [{} for _ in self.ranks]
        """By rank and number: what a call has made that was not awaited yet."""
        self.mail: dict[tuple[int, int, int], list[list[Tensor]]] = defaultdict(list)
        self.meetings: dict[tuple[tuple[int, ...], int], dict[int, Any]] = defaultdict(dict)
        """By group and count of its meetings: the operation of each rank that has come."""
        self.came: dict[tuple[int, tuple[int, ...]], int] = defaultdict(int)
        self.called: set[tuple[int, int]] = set()

    def run(self) -> None:
        """Executes whatever can be executed."""
        moved = True
        while moved:
            moved = self.meet()
            for rank in self.ranks:
                ops = self.trace.ranks[rank]
                while self.at[rank] < len(ops) and self.perform(rank, ops[self.at[rank]]):
                    self.at[rank] += 1
                    moved = True

    def perform(self, rank: int, op: Any) -> bool:
        """Executes an operation of a rank; False if it has to wait."""
        if op.name in COLLECTIVES:
            if (rank, self.at[rank]) not in self.called:
                self.called.add((rank, self.at[rank]))
                group = op.args[0] if op.args and op.args[0] else tuple(self.ranks)
                self.meetings[group, self.came[rank, group]][rank] = op
                self.came[rank, group] += 1
                self.meet()
            return self.trace.costs.overlap or self.join(rank, op)
        if op.name == "await":
            return self.join(rank, self.trace.ranks[rank][op.args[0]])
        used = [self.values[rank][n] for n in op.inputs]
        if op.name == "pass_to":
            self.mail[rank, op.args[0], (*op.args, 0)[1]].append(used)
        elif op.name == "receive":
            box = self.mail[op.args[0], rank, (*op.args, 0)[1]]
            if not box:
                return False
            self.values[rank].update(zip(op.outputs, box.pop(0)))
        elif op.name == "set_final_weight":
            self.declared.append((op.layer, used[0]))
        else:
            self.values[rank].update(zip(op.outputs, self.compute(op, used)))
        return True

    def join(self, rank: int, op: Any) -> bool:
        """Takes over what a collective has made; False if it has not met yet."""
        made = self.under_way[rank]
        if not all(n in made for n in op.outputs):
            return False
        self.values[rank].update((n, made.pop(n)) for n in op.outputs)
        return True

    def meet(self) -> bool:
        """Executes the collectives to which all have come with values that are there; True if there were any."""
        met = False
        for (group, count), ops in list(self.meetings.items()):
            if len(ops) < len(group):
                continue
            there = [self.values[rank] | self.under_way[rank] for rank in ops]
            if not all(n in v for v, op in zip(there, ops.values()) for n in op.inputs):
                continue
            del self.meetings[group, count]
            met = True
            assert len({op.name for op in ops.values()}) == 1
            brought = {rank: [v[n] for n in op.inputs] for v, (rank, op) in zip(there, ops.items())}
            for rank, op in ops.items():
                for i, number in enumerate(op.outputs):
                    parts = [brought[member][i] for member in group]
                    assert op.name == "allgather" or all(part.keys() == parts[0].keys() for part in parts)
                    result = gathered(parts) if op.name == "allgather" else summed(parts)
                    if op.name == "scatterreduce":
                        place, each = group.index(rank), sorted(result)
                        mine = each[place * len(each) // len(group) : (place + 1) * len(each) // len(group)]
                        result = {row: result[row] for row in mine}
                    self.under_way[rank][number] = result
        return met

    def compute(self, op: Any, used: list[Any]) -> list[Any]:
        match op.name:
            case "load_weights":
                return [rows(self.data.weights[op.layer], *op.args), rows(self.data.states[op.layer], *op.args)]
            case "get_activation":
                return [{b: self.data.inputs[b] for b in op.batches}]
            case "fake_grad":
                return [rows(np.zeros((HIDDEN, HIDDEN)))]
            case "forward":
                return [{b: forward(inp, whole(used[1])) for b, inp in used[0].items()}]
            case "loss":
                return [{b: loss(out) for b, out in used[0].items()}]
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
                return [gathered(used)]
            case "shard":
                wanted = rows(np.zeros((HIDDEN, HIDDEN)), *op.args)
                return [{r: used[0][r] for r in wanted}]
        return []


def execute(trace: Trace) -> list[dict[int, Any]]:
    """Runs a trace on tensors. Returns, per rank, all values by number."""
    interpreter = Interpreter(trace)
    interpreter.run()
    assert interpreter.at == [len(ops) for ops in trace.ranks]
    return interpreter.values


def outcome(trace: Trace) -> str:
    """The outcome of a trace, which may be one that the referee refuses: "right" if its final weights are those of one
    device, "wrong" if not, or why it cannot run."""
    interpreter = Interpreter(trace)
    try:
        interpreter.run()
    except (AssertionError, LookupError, ValueError) as why:
        return type(why).__name__
    if interpreter.at != [len(ops) for ops in trace.ranks]:
        return "waits for ever"
    if any(interpreter.mail.values()):
        return "a message is unread"
    right = one_device(trace.size)
    places = {(layer, row) for layer, tensor in interpreter.declared for row in tensor}
    if places != {(layer, row) for layer in range(trace.size.layers) for row in range(HIDDEN)}:
        return "wrong"
    rows_agree = (
        np.array_equal(x, right[layer][row]) for layer, tensor in interpreter.declared for row, x in tensor.items()
    )
    return "right" if all(rows_agree) else "wrong"
