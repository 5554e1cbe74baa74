"""Tensors of the extended games: an interpreter of traces that knows nothing of the rules, and what labels stand for.

A gradient is that of a dense layer's product before its relu, so that the weight half of backward needs no weight.
A block is relu(x V') V with the rows of V cut; of experts, each token meets the rows of its own expert only.
"""

from __future__ import annotations

from collections import defaultdict
from functools import cache
from typing import Any

import numpy as np

from lib import Activation, ActivationGrad, Setting, Size, Trace, Weight, WeightGrad
from lib.values.kinds import Parked

HIDDEN, TOKENS, RATE, DECAY = 12, 12, 0.3, 0.5

Rows = dict[Any, Any]
"""Numbers by place: rows of a weight by number; of an activation, tokens by (batch, token)."""


class Data:
    """A problem: weights, states, and other inputs in every step."""

    def __init__(self, size: Size, setting: Setting) -> None:
        draw = np.random.default_rng(7)
        self.size, self.setting = size, setting
        self.weights = [draw.normal(0, 0.3, (HIDDEN, HIDDEN)) for _ in range(size.layers)]
        self.states = [draw.normal(0, 0.3, (HIDDEN, HIDDEN)) for _ in range(size.layers)]
        self.inputs = draw.normal(0, 1, (setting.steps, size.batches, TOKENS, HIDDEN))


def share(i: int, n: int, of: int) -> range:
    return range(i * of // n, (i + 1) * of // n)


def expert_rows(token: int, experts: int) -> range:
    return share(token * experts // TOKENS, experts, HIDDEN)


def forward(kind: str, x: Any, weight: Rows, own: Any) -> Any:
    """One token, or several, through the rows of a weight that are here; of experts through the rows in `own`."""
    if kind == "dense":
        return np.maximum(x @ stack(weight), 0)
    matrix = here(weight, own)
    return np.maximum(x @ matrix.T, 0) @ matrix


def backward_input(kind: str, x: Any, grad: Any, weight: Rows, own: Any) -> Any:
    if kind == "dense":
        return (grad @ stack(weight).T) * (x > 0)
    matrix = here(weight, own)
    return ((grad @ matrix.T) * (x @ matrix.T > 0)) @ matrix


def backward_weight(kind: str, x: Any, grad: Any, weight: Rows | None, own: Any) -> Rows:
    x, grad = np.atleast_2d(x), np.atleast_2d(grad)
    if kind == "dense":
        return dict(enumerate(x.T @ grad))
    assert weight is not None
    matrix, rows = here(weight, own), own or sorted(weight)
    reached = x @ matrix.T
    found = np.maximum(reached, 0).T @ grad + ((grad @ matrix.T) * (reached > 0)).T @ x
    return {row: np.zeros(HIDDEN) for row in weight} | dict(zip(rows, found))


def here(weight: Rows, own: Any) -> Any:
    return np.array([weight[row] for row in own or sorted(weight)])


def update(grad: Any, weight: Any, state: Any) -> tuple[Any, Any]:
    state = DECAY * state + grad
    return weight - RATE * state, state


def stack(rows: Rows) -> Any:
    return np.array([rows[row] for row in range(HIDDEN)])


def add(parts: list[Rows]) -> Rows:
    total: Rows = defaultdict(float)
    for part in parts:
        for place, numbers in part.items():
            total[place] = total[place] + numbers
    return dict(total)


def join(parts: list[Rows]) -> Rows:
    return {place: numbers for part in parts for place, numbers in part.items()}


# --- What a trace computes -----------------------------------------------------------------------------


def execute(trace: Trace) -> list[dict[int, Rows]]:
    """All values of a trace, by rank and number. Its calls take effect at once: there is no overlap."""
    data, kind, experts = Data(trace.size, trace.setting), trace.setting.layer, trace.size.ranks
    values: list[dict[int, Rows]] = [{} for _ in trace.ranks]
    at, meeting = [0] * experts, dict[int, Any]()

    def own_rows(token: int) -> range | None:
        return expert_rows(token, experts) if kind == "experts" else None

    def compute(op: Any, used: list[Rows]) -> list[Rows]:
        match op.name:
            case "load_weights":
                shard, total = op.args[:2]
                rows = share(shard, total, HIDDEN)
                return [{row: tensor[op.layer][row] for row in rows} for tensor in (data.weights, data.states)]
            case "get_activation":
                inputs = data.inputs[op.args[0] if op.args else 0]
                return [{(b, t): inputs[b][t] for b in op.batches for t in range(TOKENS)}]
            case "fake_grad":
                return [{row: np.zeros(HIDDEN) for row in range(HIDDEN)}]
            case "forward":
                return [{p: forward(kind, x, used[1], own_rows(p[1])) for p, x in used[0].items()}]
            case "backward" | "backward_input" | "backward_weight":
                x, grad, weight = (*used, None)[:3]
                own = {place: own_rows(place[1]) for place in x}
                halves: list[Rows] = []
                if op.name != "backward_input":
                    halves.append(add([backward_weight(kind, x[p], grad[p], weight, own[p]) for p in x]))
                if op.name != "backward_weight":
                    assert weight is not None
                    halves.append({p: backward_input(kind, x[p], grad[p], weight, own[p]) for p in x})
                return halves
            case "update":
                pairs = {row: update(used[0][row], w, used[2][row]) for row, w in used[1].items()}
                return [{row: pair[n] for row, pair in pairs.items()} for n in (0, 1)]
            case "add":
                return [add(used)]
            case "combine":
                return [join(used)]
            case "shard":
                return [cut(used[0], *op.args)]
            case "loss" | "offload" | "fetch" | "move":
                return [dict(used[0])]
        return []

    def meet(name: str, brought: list[Rows], rank: int, op: Any) -> Rows:
        if name == "allreduce":
            summed = add(brought)
            weights = trace.setting.task == "local" and average[rank]
            return {place: x / len(brought) for place, x in summed.items()} if weights else summed
        if name == "allgather":
            return join(brought)
        if name == "scatterreduce":
            return cut(add(brought), rank, len(brought))
        together = join(brought)
        return (
            cut(together, rank, len(brought))
            if name == "dispatch"
            else {p: together[p] for p in together if p[0] in op.batches}
        )

    average = [False] * experts
    mail: dict[tuple[int, int], list[list[Rows]]] = defaultdict(list)
    weights = [set[int]() for _ in trace.ranks]
    moved = True
    while moved:
        moved = False
        for rank, ops in enumerate(trace.ranks):
            while at[rank] < len(ops):
                op = ops[at[rank]]
                if op.name in ("load_weights", "update"):
                    weights[rank].add(op.outputs[0])
                if op.name in ("allreduce", "allgather", "scatterreduce", "dispatch", "collect"):
                    meeting[rank] = op
                    if len(meeting) < experts:
                        break
                    average = [meeting[r].inputs[0] in weights[r] for r in range(experts)]
                    brought = [values[r][meeting[r].inputs[0]] for r in range(experts)]
                    for r, other in meeting.items():
                        values[r][other.outputs[0]] = meet(op.name, brought, r, other)
                        if average[r]:
                            weights[r].add(other.outputs[0])
                        at[r] += 1
                    meeting.clear()
                elif op.name == "receive":
                    if not mail[op.args[0], rank]:
                        break
                    values[rank].update(zip(op.outputs, mail[op.args[0], rank].pop(0)))
                    at[rank] += 1
                else:
                    if op.name == "pass_to":
                        mail[rank, op.args[0]].append([values[rank][n] for n in op.inputs])
                    if op.name in ("shard", "combine", "offload", "fetch", "move") and op.inputs[0] in weights[rank]:
                        weights[rank].add(op.outputs[0])
                    values[rank].update(zip(op.outputs, compute(op, [values[rank][n] for n in op.inputs])))
                    at[rank] += 1
                moved = True
    assert at == [len(ops) for ops in trace.ranks]
    return values


def cut(whole: Rows, i: int, n: int) -> Rows:
    """Share i of n: of a tensor its rows, of activations the tokens. What is a share already is cut again."""
    if not isinstance(next(iter(whole)), tuple):
        return {row: whole[row] for row in share(i, n, HIDDEN) if row in whole}
    return {place: x for place, x in whole.items() if place[1] in share(i, n, TOKENS)}


# --- What labels stand for -----------------------------------------------------------------------------


class Truth:
    """What one device computes for a label: with all weights of one replica's history, at the label's step."""

    def __init__(self, trace: Trace) -> None:
        self.data = data = Data(trace.size, trace.setting)
        self.kind, self.experts, self.layers = trace.setting.layer, trace.size.ranks, trace.size.layers
        self.trained = cache(self._trained)
        self.inside = cache(self._inside)
        self.grad_of = cache(self._grad_of)
        self.batches = frozenset(range(data.size.batches))

    def of(self, value: Any) -> Rows:
        if isinstance(value, Parked):
            return self.of(value.value)
        if isinstance(value, (Activation, ActivationGrad)):
            tokens = [t for i in value.shards for t in share(i, value.total, TOKENS)]
            return {(b, t): self.activation(value, b)[t] for b in value.batches for t in tokens}
        if isinstance(value, WeightGrad):
            tensor = self.grad(value.step, value.copy, value.layer, value.batches)
        else:
            tensor = self.trained(value.step, value.copy)[not isinstance(value, Weight)][value.layer]
        rows = [row for i in value.shards for row in share(i, value.total, HIDDEN)]
        return {row: tensor[row] for row in rows}

    def activation(self, value: Activation | ActivationGrad, batch: int) -> Any:
        """Of all tokens; of a sum, only the parts that the label names."""
        inputs, grads = self.inside(value.step, value.copy, batch)
        backwards = isinstance(value, ActivationGrad)
        if len(value.parts) == value.of:
            return (grads if backwards else inputs)[value.layer]
        made_by = value.layer + 1 if backwards else value.layer - 1
        weight = self.trained(value.step, value.copy)[0][made_by]
        rows = {row: weight[row] for i in value.parts for row in share(i, value.of, HIDDEN)}
        if backwards:
            return backward_input("block", inputs[made_by], grads[made_by], rows, None)
        return forward("block", inputs[made_by], rows, None)

    def grad(self, step: int, copy: Any, layer: int, batches: frozenset[int]) -> Any:
        return sum((self.grad_of(step, copy, layer, b) for b in batches), np.zeros((HIDDEN, HIDDEN)))

    def _grad_of(self, step: int, copy: Any, layer: int, batch: int) -> Any:
        weight = dict(enumerate(self.trained(step, copy)[0][layer]))
        x, grad = (part[layer] for part in self.inside(step, copy, batch))
        return stack(add([backward_weight(self.kind, x[t], grad[t], weight, own) for t, own in self.routes()]))

    def routes(self) -> list[tuple[Any, range | None]]:
        """Which tokens go together, and through which rows of a weight."""
        if self.kind != "experts":
            return [(range(TOKENS), None)]
        shares = [share(e, self.experts, TOKENS) for e in range(self.experts)]
        return [(tokens, share(e, self.experts, HIDDEN)) for e, tokens in enumerate(shares)]

    def _inside(self, step: int, copy: Any, batch: int) -> tuple[dict[int, Any], dict[int, Any]]:
        """The inputs of all layers, and the gradients, of one batch."""
        weights = [dict(enumerate(weight)) for weight in self.trained(step, copy)[0]]
        inputs, routes = {0: self.data.inputs[step][batch]}, self.routes()
        for layer, weight in enumerate(weights):
            x = inputs[layer]
            inputs[layer + 1] = np.concatenate([forward(self.kind, x[t], weight, own) for t, own in routes])
        grads = {self.layers - 1: inputs[self.layers]}
        for layer in reversed(range(self.layers)):
            x, g = inputs[layer], grads[layer]
            parts = [backward_input(self.kind, x[t], g[t], weights[layer], own) for t, own in routes]
            grads[layer - 1] = np.concatenate(parts)
        return inputs, grads

    def _trained(self, step: int, copy: Any) -> tuple[list[Any], list[Any]]:
        """All weights and states at a step. `copy` is a replica's mark."""
        if copy is not None and not copy.batches and copy.since == step:
            *_, (since, _, partition) = copy.averages
            replicas = [
                copy._replace(since=since, batches=frozenset(own), averages=copy.averages[:-1]) for own in partition
            ]
            weights = [self.trained(step, replica)[0] for replica in replicas]
            return [np.mean([w[layer] for w in weights], axis=0) for layer in range(self.layers)], []
        if step == 0:
            return self.data.weights, self.data.states
        before, batches, since = copy, self.batches, None
        if copy is not None:
            batches = copy.batches
            if copy.since == step - 1:
                since = copy.since
                before = copy._replace(batches=frozenset()) if copy.averages else None
        weights, states = self.trained(step - 1, before)
        if since is not None and copy is not None and copy.averages:
            parted = copy.averages[-1][0]
            states = self.trained(step - 1, copy._replace(since=parted, averages=copy.averages[:-1]))[1]
        pairs = [
            update(self.grad(step - 1, before, layer, batches), weights[layer], states[layer])
            for layer in range(self.layers)
        ]
        return [pair[0] for pair in pairs], [pair[1] for pair in pairs]
