"""The referee refuses exactly what would go wrong: traces with one thing changed, played on real tensors.

A plain interpreter plays them. What the referee still accepts gives the weights of one device; what it refuses gives
others or cannot run. A replay of what it accepts agrees.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace as changed
from random import Random
from typing import Any

import pytest

from lib import Model, Trace, TraceError, referee, run
from lib.engine.replay.replay import replay
from lib.ledger.recomputation import Recomputation
from lib.ledger.trace import Op
from tests.ledger.test_numbers import Choices
from tests.support import CLASSICS
from tests.support.tensor_interpreter import outcome

TRIALS = 1500

COLLECTIVE = ("allreduce", "allgather", "scatterreduce")

Change = Callable[[Random, list[Op], int, dict[int, Any]], list[Op]]
"""From a rank's operations, a place among them, and the rank's values: the operations that stand there instead."""


def another(draw: Random, choices: Any, than: Any) -> Any:
    """One of the choices that is not `than`; that if there is none."""
    rest = [choice for choice in choices if choice != than]
    return draw.choice(rest) if rest else than


def operand(draw: Random, ops: list[Op], at: int, values: dict[int, Any]) -> list[Op]:
    """Another value in place of one that is used, mostly of the same kind."""
    used = list(ops[at].inputs)
    place = draw.randrange(len(used))
    kinds = {type(values[used[place]])} if draw.random() < 0.9 else {type(value) for value in values.values()}
    made = [number for op in ops[:at] for number in op.outputs if type(values[number]) in kinds]
    if ops[at].name in COLLECTIVE:  # zeros of different layers are alike
        made = [number for number in made if getattr(values[number], "batches", True)]
    used[place] = another(draw, made, used[place])
    layer = values[used[place]].layer if ops[at].name in COLLECTIVE else ops[at].layer  # a collective's is its value's
    return [ops[at]._replace(inputs=tuple(used), layer=layer)]


def layer(draw: Random, ops: list[Op], at: int, values: dict[int, Any]) -> list[Op]:
    return [ops[at]._replace(layer=another(draw, {op.layer for op in ops} - {None}, ops[at].layer))]


def part(draw: Random, ops: list[Op], at: int, values: dict[int, Any]) -> list[Op]:
    """Another shard, or one of another count, or one that does not exist."""
    number, total = ops[at].args
    total = draw.choice([total, total, 2 * total, max(1, total // 2)])
    return [ops[at]._replace(args=(another(draw, range(total + 1), number), total))]


def collective(draw: Random, ops: list[Op], at: int, values: dict[int, Any]) -> list[Op]:
    return [ops[at]._replace(name=another(draw, COLLECTIVE, ops[at].name))]


def partner(draw: Random, ops: list[Op], at: int, values: dict[int, Any]) -> list[Op]:
    return [ops[at]._replace(args=(another(draw, range(4), ops[at].args[0]),))]


def nothing(draw: Random, ops: list[Op], at: int, values: dict[int, Any]) -> list[Op]:
    return []


def again(draw: Random, ops: list[Op], at: int, values: dict[int, Any]) -> list[Op]:
    """The operation twice; the second time with what the first has made, where it is of the same kind."""
    op = ops[at]
    kinds = {type(values[number]): number for number in op.outputs}
    used = tuple(kinds.get(type(values[number]), number) for number in op.inputs)
    return [
        op,
        op._replace(start=op.end, end=2 * op.end - op.start, inputs=used, outputs=tuple(n + 10**6 for n in op.outputs)),
    ]


CHANGES: dict[str, list[Change]] = {
    "load_weights": [layer, part],
    "shard": [part, operand],
    "set_final_weight": [layer, operand, nothing],
    "forward": [operand],
    "loss": [operand],
    "backward": [operand],
    "update": [operand, again],
    "add": [operand],
    "combine": [operand],
    "allreduce": [operand, collective, again],
    "allgather": [operand, collective],
    "scatterreduce": [operand, collective, again],
    "pass_to": [operand, partner, nothing, again],
    "receive": [partner, nothing],
}
"""The changes that are tried. Not the layer that a computation names: a label; what it computes is in its values."""


def needed(trace: Trace) -> set[tuple[int, int]]:
    """Rank and index of every operation that a final weight comes from: another is a waste, whatever it does."""
    meetings = [[i for i, op in enumerate(ops) if op.name in COLLECTIVE] for ops in trace.ranks]
    found: set[tuple[int, int]] = set()
    used: list[set[int]] = [set() for _ in trace.ranks]
    before = -1
    while before < len(found):
        before = len(found)
        together = {nth for rank, places in enumerate(meetings) for nth, i in enumerate(places) if (rank, i) in found}
        for rank, ops in enumerate(trace.ranks):
            joined = {meetings[rank][nth] for nth in together}
            for i, op in reversed(list(enumerate(ops))):
                if op.name in ("set_final_weight", "pass_to", "receive") or i in joined or used[rank] & {*op.outputs}:
                    found.add((rank, i))
                    used[rank].update(op.inputs)
    return found


def mutated(trace: Trace, draw: Random) -> Trace:
    """The trace with one operation changed that matters; a collective often on every rank alike."""
    places: dict[str, list[tuple[int, int]]] = {}
    for rank, i in sorted(needed(trace)):
        if (name := trace.ranks[rank][i].name) in CHANGES:
            places.setdefault(name, []).append((rank, i))
    name = draw.choice(sorted(places))
    rank, at = draw.choice(places[name])
    change = draw.choice(CHANGES[name])
    where = {rank: at}
    if name in COLLECTIVE and (change is again or (change is collective and draw.random() < 0.5)):
        nth = sum(op.name in COLLECTIVE for op in trace.ranks[rank][:at])
        where = {r: [i for i, op in enumerate(ops) if op.name in COLLECTIVE][nth] for r, ops in enumerate(trace.ranks)}
    recomputation = Recomputation(trace)
    recomputation.run()
    ranks = list(trace.ranks)
    alike = draw.random()
    for r, i in where.items():
        ops = list(ranks[r])
        ops[i : i + 1] = change(Random(alike), ops, i, recomputation.ranks[r].values)
        ranks[r] = renumbered(ops)
    return changed(trace, ranks=tuple(ranks))


def renumbered(ops: list[Op]) -> tuple[Op, ...]:
    """Values numbered as they are made; what was made twice is used as it was made last."""
    names: dict[int, int] = {}
    done: list[Op] = []
    for op in ops:
        used = tuple(names.get(number, number) for number in op.inputs)
        first = sum(len(earlier.outputs) for earlier in done)
        names.update({number % 10**6: first + n for n, number in enumerate(op.outputs)})
        done.append(op._replace(inputs=used, outputs=tuple(range(first, first + len(op.outputs)))))
    return tuple(done)


async def halves(model: Model) -> None:
    """Data parallel, with weights that are loaded, combined, reduced and updated in halves."""
    parts = {layer: [model.load_weights(layer, half, 2) for half in range(2)] for layer in range(model.LAYERS)}
    weights = {layer: first[0].combine(second[0]) for layer, (first, second) in parts.items()}
    inputs = [model.get_activation([b for b in range(model.BATCHES) if b % model.RANKS == model.rank])]
    for layer in range(model.LAYERS):
        inputs.append(model.forward(layer, inputs[layer], weights[layer]))
    grad = model.loss(inputs[-1])
    for layer in reversed(range(model.LAYERS)):
        new, grad = model.backward(layer, inputs[layer], grad, weights[layer])
        for half, (weight, state) in enumerate(parts[layer]):
            reduced = await model.allreduce(new.shard(half, 2), layer)
            model.set_final_weight(layer, model.update(layer, reduced, weight, state)[0])


def legal(draw: Random) -> Trace:
    """A schedule of several ranks: data parallel as chance has it, in halves, or one of the classics."""
    kind = draw.randrange(5)
    if kind < 2:
        ranks = draw.choice((2, 4))
        return run(Choices(ranks, draw.randrange(10**9)), draw.randint(1, 3), draw.randint(1, 4), ranks).trace
    if kind == 2:
        return run(halves, draw.randint(1, 3), 4, draw.choice((2, 4))).trace
    classic = draw.choice(CLASSICS[2:7])
    return run(classic.solution, 4, 2, 2).trace


KINDS = {
    "a shard where all is needed": "allgather it first",
    "another layer": "; pass the input activation of layer",
    "another layer's gradient": "pass the gradient that",
    "another layer's update": "needs a value of layer",
    "another kind of value": " must be ",
    "batches that differ": "pass two values with the same batches",
    "batches that are missing": "this gradient covers only",
    "a batch twice": "sum each batch once",
    "reduced twice": "reduce a gradient once",
    "sums of what differs": "cannot sum values that differ",
    "shards of what differs": "cannot gather values that differ",
    "a shard twice": "gather each shard once",
    "a gradient of other shards": "covers all of its shards",
    "a state of other shards": "the optimizer state is",
    "a shard that is not here": "does not hold all of shard",
    "reduced in shards": "splits a full gradient",
    "a weight that is updated already": "was already updated",
    "a weight that was never updated": "was never updated",
    "a loss too early": "call forward first",
    "a shard that does not exist": "does not exist",
    "final weights that are missing": "set_final_weight(",
    "final shards that are missing": "lacks shard",
    "collectives that differ": "every rank must make the same collective calls",
    "a message to oneself": "cannot send to itself",
    "a message that nobody reads": "never received",
    "a wait for ever": "nobody can move",
}
"""Every kind of refusal that a trace can bring about by what it computes, and what the referee says of it."""


def kinds_seen(seeds: Iterable[int]) -> set[str]:
    """Requires that refused traces go wrong and accepted ones go right; returns the kinds of verdicts that occurred."""
    seen: Counter[str] = Counter()
    for seed in seeds:
        draw = Random(seed)
        trace = mutated(legal(draw), draw)
        error = referee(trace).error
        if isinstance(error, TraceError) or "(zero)" in str(error):
            continue  # a record that contradicts itself; or zeros in place of zeros, where only the name is wrong
        assert (outcome(trace) == "right") == (error is None), f"seed {seed}: {error}, but it is {outcome(trace)}"
        assert error is not None or replay(trace, small=True).same_weights, f"seed {seed}"
        seen.update(kind for kind, words in KINDS.items() if words in str(error))
        seen["accepted"] += error is None
    return {*seen}


def test_some_refused_traces_go_wrong_and_accepted_ones_go_right() -> None:
    assert "accepted" in kinds_seen(range(0, TRIALS, 25))


@pytest.mark.slow
def test_what_the_referee_refuses_goes_wrong_and_what_it_accepts_goes_right() -> None:
    assert sorted({*KINDS, "accepted"} - kinds_seen(range(TRIALS))) == []
