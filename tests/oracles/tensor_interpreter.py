"""Executes traces on tiny tensors, and says which numbers a label stands for; knows nothing of the rules.

A dense layer is relu(x W). A gradient is that of the product before the relu, so that the weight half of backward needs
no weight. A block is relu(x V') V, with the rows of V cut. Of experts, each token meets its own expert's rows only.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from itertools import chain
from typing import Any

import numpy as np

from lib import Activation, ActivationGrad, Setting, Size, Trace, Weight, WeightGrad
from lib.ledger.values import Parked

HIDDEN, TOKENS, RATE, DECAY = 12, 12, 0.5, 0.5

Rows = dict[Any, Any]
"""Numbers by place: rows of a weight by number; of an activation, tokens by (batch, token)."""


class Data:
    """A problem: weights, states, and other inputs in every step. That of one step is in small whole numbers, so that
    sums are exact in any order; over several steps these would become too large."""

    def __init__(self, size: Size, steps: int = 1) -> None:
        draw = np.random.default_rng(7)

        def drawn(*shape: int, scale: float = 0.3) -> Any:
            return draw.integers(-1, 2, shape).astype(float) if steps == 1 else draw.normal(0, scale, shape)

        self.weights = [drawn(HIDDEN, HIDDEN) for _ in range(size.layers)]
        self.states = [drawn(HIDDEN, HIDDEN) for _ in range(size.layers)]
        self.inputs = drawn(steps, size.batches, TOKENS, HIDDEN, scale=1)


def share(i: int, n: int, of: int) -> range:
    return range(i * of // n, (i + 1) * of // n)


def forward(kind: str, x: Any, weight: Any) -> Any:
    return np.maximum(x @ weight, 0) if kind == "dense" else np.maximum(x @ weight.T, 0) @ weight


def loss(out: Any) -> Any:
    """The gradient of the squared output."""
    return 2 * out


def backward_input(kind: str, x: Any, grad: Any, weight: Any) -> Any:
    if kind == "dense":
        return (grad @ weight.T) * (x > 0)
    return ((grad @ weight.T) * (x @ weight.T > 0)) @ weight


def backward_weight(kind: str, x: Any, grad: Any, weight: Any) -> Any:
    if kind == "dense":
        return x.T @ grad
    reached = x @ weight.T
    return np.maximum(reached, 0).T @ grad + ((grad @ weight.T) * (reached > 0)).T @ x


def update(grad: Any, weight: Any, state: Any) -> tuple[Any, Any]:
    state = DECAY * state + grad
    return weight - RATE * state, state


def summed(parts: Sequence[Rows]) -> Rows:
    assert all(part.keys() == parts[0].keys() for part in parts)
    return {place: sum(part[place] for part in parts[1:]) + numbers for place, numbers in parts[0].items()}


def joined(parts: Sequence[Rows]) -> Rows:
    """The rows of all, which are different ones."""
    assert len({*chain(*parts)}) == sum(map(len, parts))
    return {place: numbers for part in parts for place, numbers in part.items()}


def at(rows: Rows, places: Iterable[Any]) -> Any:
    return np.array([rows[place] for place in places])


# --- What a trace computes -----------------------------------------------------------------------------

COLLECTIVES = ("allreduce", "allgather", "scatterreduce", "dispatch", "collect")


class Interpreter:
    """A trace on tensors. What a pending call makes is there only once it has been awaited."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.kind = trace.setting.layer
        self.data = Data(trace.size, trace.setting.steps)
        self.ranks = range(trace.size.ranks)
        self.at = [0 for _ in self.ranks]
        self.values: list[dict[int, Rows]] = [{} for _ in self.ranks]
        self.weights: list[set[int]] = [set() for _ in self.ranks]
        """By rank, the numbers of values that are weights: their sum is an average."""
        self.declared: list[tuple[int, Rows]] = []
        """Every final weight that a rank has set, with its layer."""
        self.passed_on: list[Rows] = []
        """The input gradients of the first layer, which a model above others would pass on. They show its weight."""
        self.pending: list[dict[int, Rows]] = [{} for _ in self.ranks]
        """By rank and number: what a call has made that was not awaited yet."""
        self.mail: dict[tuple[int, int, int], list[list[Rows]]] = defaultdict(list)
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
            made = self.compute(op, used)
            self.values[rank].update(zip(op.outputs, made))
            if op.name in ("backward", "backward_input") and op.layer == 0:
                self.passed_on.append(made[-1])
            weights = self.weights[rank]
            if op.name in ("load_weights", "update") or (op.name in KEEP_KIND and op.inputs[0] in weights):
                weights.add(op.outputs[0])
        return True

    def join(self, rank: int, op: Any) -> bool:
        """Takes over what a collective has made; False if it has not met yet."""
        made = self.pending[rank]
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
            there = [self.values[rank] | self.pending[rank] for rank in ops]
            if not all(n in v for v, op in zip(there, ops.values()) for n in op.inputs):
                continue
            del self.meetings[group, count]
            met = True
            assert len({op.name for op in ops.values()}) == 1
            brought = {rank: [v[n] for n in op.inputs] for v, (rank, op) in zip(there, ops.items())}
            for rank, op in ops.items():
                for i, number in enumerate(op.outputs):
                    parts = [brought[member][i] for member in group]
                    self.pending[rank][number] = self.collective(op, rank, parts, group.index(rank))
                    if op.inputs[i] in self.weights[rank]:
                        self.weights[rank].add(number)
        return met

    def collective(self, op: Any, rank: int, parts: list[Rows], place: int) -> Rows:
        """What a collective gives to a rank, which is at this place in its group."""
        if op.name in ("allreduce", "scatterreduce"):
            result = summed(parts)
            if self.trace.setting.task == "local" and op.inputs[0] in self.weights[rank]:
                result = {row: numbers / len(parts) for row, numbers in result.items()}
        else:
            result = joined(parts)
        if op.name in ("scatterreduce", "dispatch"):
            return cut(result, place, len(parts))
        return {p: x for p, x in result.items() if p[0] in op.batches} if op.name == "collect" else result

    def compute(self, op: Any, used: list[Rows]) -> list[Rows]:
        match op.name:
            case "load_weights":
                rows = share(*(op.args or (0, 1))[:2], HIDDEN)
                return [
                    {row: tensor[op.layer][row] for row in rows} for tensor in (self.data.weights, self.data.states)
                ]
            case "get_activation":
                inputs = self.data.inputs[op.args[0] if op.args else 0]
                return [{(b, t): inputs[b][t] for b in op.batches for t in range(TOKENS)}]
            case "fake_grad":
                return [dict(enumerate(np.zeros((HIDDEN, HIDDEN))))]
            case "forward":
                return [self.by_token(forward, *used)]
            case "backward":
                return [self.weight_half(*used), self.by_token(backward_input, *used)]
            case "backward_input":
                return [self.by_token(backward_input, *used)]
            case "backward_weight":
                return [self.weight_half(*used)]
            case "update":
                pairs = {row: update(used[0][row], weight, used[2][row]) for row, weight in used[1].items()}
                return [{row: pair[n] for row, pair in pairs.items()} for n in (0, 1)]
            case "add":
                return [summed(used)]
            case "combine":
                return [joined(used)]
            case "shard":
                return [shard(used[0], *op.args)]
            case "loss":
                return [{place: loss(numbers) for place, numbers in used[0].items()}]
            case "offload" | "fetch" | "move":
                return [dict(used[0])]
        return []

    def routes(self, places: Iterable[Any], weight: Rows) -> list[tuple[list[Any], list[int]]]:
        """Which tokens go together, and through which rows of a weight."""
        if self.kind != "experts":
            return [([*places], [*range(HIDDEN)] if self.kind == "dense" else sorted(weight))]
        experts = len(self.ranks)
        own: dict[int, list[Any]] = defaultdict(list)
        for place in places:
            own[place[1] * experts // TOKENS].append(place)
        return [(tokens, [*share(expert, experts, HIDDEN)]) for expert, tokens in own.items()]

    def by_token(self, half: Callable[..., Any], *used: Rows) -> Rows:
        """A forward, or the input half of a backward; the weight comes last."""
        *inputs, weight = used
        made: Rows = {}
        for places, rows in self.routes(inputs[0], weight):
            made |= zip(places, half(self.kind, *(at(value, places) for value in inputs), at(weight, rows)))
        return {place: made[place] for place in inputs[0]}

    def weight_half(self, x: Rows, grad: Rows, weight: Rows | None = None) -> Rows:
        weight = dict(enumerate(np.zeros((HIDDEN, HIDDEN)))) if weight is None else weight
        made = {row: np.zeros(HIDDEN) for row in weight}
        for places, rows in self.routes(x, weight):
            made |= zip(rows, backward_weight(self.kind, at(x, places), at(grad, places), at(weight, rows)))
        return made


KEEP_KIND = ("shard", "combine", "offload", "fetch", "move")
"""Operations whose output is a weight if their input is."""


def cut(rows: Rows, i: int, n: int) -> Rows:
    """Share i of n of the rows that are there; of activations, of the tokens."""
    each = sorted({place[1] if isinstance(place, tuple) else place for place in rows})
    kept = {each[k] for k in share(i, n, len(each))}
    return {p: x for p, x in rows.items() if (p[1] if isinstance(p, tuple) else p) in kept}


def shard(rows: Rows, i: int, n: int) -> Rows:
    """Share i of n of the full tensor, or of the tokens."""
    if isinstance(next(iter(rows)), tuple):
        return {place: x for place, x in rows.items() if place[1] in share(i, n, TOKENS)}
    return {row: rows[row] for row in share(i, n, HIDDEN)}


def execute(trace: Trace) -> list[dict[int, Rows]]:
    """Runs a trace on tensors. Returns, per rank, all values by number."""
    interpreter = Interpreter(trace)
    interpreter.run()
    assert interpreter.at == [len(ops) for ops in trace.ranks]
    return interpreter.values


def outcome(trace: Trace) -> str:
    """The outcome of a trace of one step, which may be one that the referee refuses.

    It is "right" if its final weights and the input gradients of its first layer are those of one device, "wrong" if
    not, or the reason why it cannot run.
    """
    interpreter = Interpreter(trace)
    try:
        interpreter.run()
    except (AssertionError, LookupError, ValueError) as why:
        return type(why).__name__
    if interpreter.at != [len(ops) for ops in trace.ranks]:
        return "waits for ever"
    if any(interpreter.mail.values()):
        return "a message is unread"
    truth = Truth(trace.size)
    right = truth.weights_after(1)
    places = {(layer, row) for layer, tensor in interpreter.declared for row in tensor}
    if places != {(layer, row) for layer in range(trace.size.layers) for row in range(HIDDEN)}:
        return "wrong"
    rows_agree = (
        np.array_equal(x, right[layer][row]) for layer, tensor in interpreter.declared for row, x in tensor.items()
    )
    gradients_agree = (
        np.array_equal(x, truth.inside(0, None, batch)[1][-1][token])
        for rows in interpreter.passed_on
        for (batch, token), x in rows.items()
    )
    return "right" if all(rows_agree) and all(gradients_agree) else "wrong"


# --- What labels stand for -----------------------------------------------------------------------------


class Truth:
    """What one device computes for a label: with all weights of one replica's history, at the label's step."""

    def __init__(self, size: Size, setting: Setting | None = None) -> None:
        setting = setting or Setting()
        self.data = Data(size, setting.steps)
        self.kind, self.experts, self.layers = setting.layer, size.ranks, size.layers
        self.trained = cache(self._trained)
        self.inside = cache(self._inside)
        self.grad_of = cache(self._grad_of)
        self.batches = frozenset(range(size.batches))

    def weights_after(self, step: int) -> list[Any]:
        return self.trained(step, None)[0]

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
        return {row: tensor[row] for i in value.shards for row in share(i, value.total, HIDDEN)}

    def activation(self, value: Activation | ActivationGrad, batch: int) -> Any:
        """Of all tokens; of a sum, only the parts that the label names."""
        inputs, grads = self.inside(value.step, value.copy, batch)
        backwards = isinstance(value, ActivationGrad)
        if len(value.parts) == value.of:
            return (grads if backwards else inputs)[value.layer]
        made_by = value.layer + 1 if backwards else value.layer - 1
        weight = self.trained(value.step, value.copy)[0][made_by]
        rows = [row for i in value.parts for row in share(i, value.of, HIDDEN)]
        if backwards:
            return backward_input("block", inputs[made_by], grads[made_by], weight[rows])
        return forward("block", inputs[made_by], weight[rows])

    def grad(self, step: int, copy: Any, layer: int, batches: Iterable[int]) -> Any:
        return sum((self.grad_of(step, copy, layer, b) for b in batches), np.zeros((HIDDEN, HIDDEN)))

    def _grad_of(self, step: int, copy: Any, layer: int, batch: int) -> Any:
        weight = self.trained(step, copy)[0][layer]
        x, grad = (part[layer] for part in self.inside(step, copy, batch))
        # Each route has all rows, or rows of its own.
        return np.concatenate([backward_weight(self.kind, x[t], grad[t], weight[own]) for t, own in self.routes()])

    def routes(self) -> list[tuple[slice, slice]]:
        """Which tokens go together, and through which rows of a weight."""
        if self.kind != "experts":
            return [(slice(None), slice(None))]
        shares = [(share(e, self.experts, TOKENS), share(e, self.experts, HIDDEN)) for e in range(self.experts)]
        return [(slice(t.start, t.stop), slice(own.start, own.stop)) for t, own in shares]

    def _inside(self, step: int, copy: Any, batch: int) -> tuple[dict[int, Any], dict[int, Any]]:
        """The inputs of all layers, and the gradients, of one batch."""
        weights = self.trained(step, copy)[0]
        inputs, routes = {0: self.data.inputs[step][batch]}, self.routes()
        for layer, weight in enumerate(weights):
            x = inputs[layer]
            inputs[layer + 1] = np.concatenate([forward(self.kind, x[t], weight[own]) for t, own in routes])
        grads = {self.layers - 1: loss(inputs[self.layers])}
        for layer in reversed(range(self.layers)):
            x, g = inputs[layer], grads[layer]
            parts = [backward_input(self.kind, x[t], g[t], weights[layer][own]) for t, own in routes]
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
