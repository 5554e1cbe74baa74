"""Traces with groups, tags and overlap, with one thing altered, are refused exactly if they would go wrong.

Altered traces get new times, worked out as a longest path, so that they are judged for what they do. On tensors,
what a call makes is there only once it has been awaited.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib import COSTS, Model, Op, Setting, Trace, referee, run
from solutions.fsdp_prefetch import fsdp_prefetch
from tests.catalog.lessons.families.replicas import buckets, passes
from tests.ledger.test_changed_traces import renumbered
from tests.ledger.test_labels import MESH, OVERLAPPING, Nested
from tests.support import CLASSICS
from tests.support.examples import examples
from tests.support.schedules.groups import hybrid_shard
from tests.support.tensor_interpreter import outcome
from tests.support.timing import retimed

OVERLAP = Setting(COSTS["overlap"])
BUCKETS = Setting(COSTS["buckets"])
ISLANDS = Setting(COSTS["islands"], mesh=(("replica", 2), ("shard", 2)))
TAGGED = Setting(replace(COSTS["classic"], name="tagged"))


# --- Times ---


@examples(30)
@given(st.integers(1, 3), st.integers(1, 5), st.integers(0, 10**9), st.sampled_from(OVERLAPPING))
def test_times_are_a_longest_path(layers: int, batches: int, seed: int, costs: Any) -> None:
    trace = run(Nested(seed), layers, batches, 4, setting=Setting(costs, MESH)).trace
    assert retimed(trace) == trace


@pytest.mark.parametrize("classic", CLASSICS[2:7], ids=lambda classic: classic.slug)
def test_times_of_the_classics_are_a_longest_path(classic: Any) -> None:
    trace = run(classic.solution, *classic.size).trace
    assert retimed(trace) == trace


# --- Altered traces ---


async def ring(model: Model) -> None:
    """Gradients go around in a ring of messages with tags: one tag for each layer, last layer first."""
    weights, opt_states, inputs, _, weight_grads = model.storage()
    for layer in range(model.LAYERS):
        weights[layer], opt_states[layer] = model.load_weights(layer)
    inputs[0] = model.get_activation([model.rank])
    for layer in range(model.LAYERS):
        inputs[layer + 1] = model.forward(layer, inputs[layer], weights[layer])
    grad = model.loss(inputs[model.LAYERS])
    for layer in reversed(range(model.LAYERS)):
        weight_grads[layer], grad = model.backward(layer, inputs[layer], grad, weights[layer])
    other, layers = 1 - model.rank, list(range(model.LAYERS))
    for layer in layers if model.rank else reversed(layers):
        await model.pass_to(other, weight_grads[layer], tag=layer)
    for layer in layers:
        weight_grads[layer] = weight_grads[layer] + await model.receive(other, tag=layer)
        weights[layer], opt_states[layer] = model.update(layer, weight_grads[layer], weights[layer], opt_states[layer])
        model.set_final_weight(layer, weights[layer])


LEGAL: list[Callable[[], Trace]] = [
    lambda: run(fsdp_prefetch, 3, 4, 4, setting=OVERLAP).trace,
    lambda: run(passes(1, prefetch=False), 2, 2, 2, setting=OVERLAP).trace,
    lambda: run(buckets(1, 2), 3, 2, 2, setting=BUCKETS).trace,
    lambda: run(hybrid_shard, 2, 4, 4, setting=ISLANDS).trace,
    lambda: run(ring, 3, 2, 2, setting=TAGGED).trace,
]


def place_of(draw: Random, ops: list[Op], *names: str) -> int | None:
    places = [i for i, op in enumerate(ops) if op.name in names]
    return draw.choice(places) if places else None


def moved(ops: list[Op], at: int, to: int) -> list[Op]:
    """The operations with one of them elsewhere; awaits still name the same calls."""
    order = [i for i in range(len(ops)) if i != at]
    order.insert(to, at)
    place = {i: n for n, i in enumerate(order)}
    rows = [ops[i] for i in order]
    return [op._replace(args=(place[op.args[0]],)) if op.name == "await" else op for op in rows]


def an_await_moved(draw: Random, ops: list[Op]) -> list[Op] | None:
    at = place_of(draw, ops, "await")
    return None if at is None else moved(ops, at, draw.randrange(len(ops)))


def an_await_removed(draw: Random, ops: list[Op]) -> list[Op] | None:
    at = place_of(draw, ops, "await")
    return None if at is None else moved(ops, at, len(ops) - 1)[:-1]


def a_call_moved(draw: Random, ops: list[Op]) -> list[Op] | None:
    at = place_of(draw, ops, "allgather", "scatterreduce", "allreduce")
    if at is None:
        return None
    return list(renumbered(moved(ops, at, max(0, min(len(ops) - 1, at + draw.randint(-6, 6))))))


def a_group_changed(draw: Random, ops: list[Op]) -> list[Op] | None:
    at = place_of(draw, ops, "allgather", "scatterreduce", "allreduce")
    if at is None or not ops[at].args:
        return None
    groups = [(0, 1), (2, 3), (0, 2), (1, 3), (0, 3), (1, 2, 3), None]
    group = draw.choice(groups)
    ops[at] = ops[at]._replace(args=() if group is None else (group,))
    return ops


def a_tag_changed(draw: Random, ops: list[Op]) -> list[Op] | None:
    at = place_of(draw, ops, "pass_to", "receive")
    if at is None:
        return None
    tag = draw.randrange(3)
    ops[at] = ops[at]._replace(args=(ops[at].args[0], tag) if tag else ops[at].args[:1])
    return ops


CHANGES = (an_await_moved, an_await_removed, a_call_moved, a_group_changed, a_tag_changed)

KINDS = {
    "used before its await": "still pending; await it first",
    "awaited before it was made": "not a pending call",
    "a group without oneself": "not in the group",
    "no group of these ranks": "nobody can move",
    "another layer or operation": "same collective calls",
    "another tag": "nobody can move: rank",
    "a use of what is not made yet": "which this rank has not made",
}


def altered(seed: int) -> Trace:
    """A legal trace with one thing altered on one rank or on all, and with new times."""
    draw = Random(seed)
    while True:
        trace = draw.choice(LEGAL)()
        change, alike, only = draw.choice(CHANGES), draw.random(), draw.choice([None, draw.randrange(len(trace.ranks))])
        ranks = [
            change(Random(alike), list(ops)) if only in (None, rank) else list(ops)
            for rank, ops in enumerate(trace.ranks)
        ]
        if None not in ranks:
            return retimed(replace(trace, ranks=tuple(tuple(ops) for ops in ranks if ops is not None)))


def kinds_seen(seeds: Iterable[int]) -> set[str]:
    """Requires that refused traces go wrong and accepted ones go right; returns the kinds of verdicts that occurred."""
    seen: Counter[str] = Counter()
    for seed in seeds:
        trace = altered(seed)
        report = referee(trace)
        found = outcome(trace)
        if report.error is None:
            assert found == "right", f"seed {seed}: accepted, but it is {found}"
            seen["accepted"] += 1
        elif found == "right":
            assert _needless(str(report.error)), f"seed {seed}: {report.error}, but it is right"
        seen.update(kind for kind, words in KINDS.items() if words in str(report.error))
    return {*seen}


def _needless(error: str) -> bool:
    """What is refused though no tensor is wrong: nobody may leave a call unawaited or a message unread; a lane or a
    mailbox may be held up for ever."""
    return any(
        words in error for words in ("was never awaited", "never received", "nobody can move", "in the same order")
    )


def test_some_altered_traces_are_refused_exactly_if_they_go_wrong() -> None:
    assert "accepted" in kinds_seen(range(25))


@pytest.mark.slow
def test_altered_traces_are_refused_exactly_if_they_go_wrong() -> None:
    assert sorted({*KINDS, "accepted"} - kinds_seen(range(600))) == []


def test_an_earlier_await_scores_differently() -> None:
    """Waiting at once is legal, and costs what overlap had won."""
    trace = run(fsdp_prefetch, 6, 4, 4, setting=OVERLAP).trace
    ranks = []
    for ops in trace.ranks:
        rows = list(ops)
        for n in range(sum(op.name == "await" for op in rows)):
            call = [i for i, op in enumerate(rows) if op.name in ("allgather", "scatterreduce")][n]
            await_at = next(i for i, op in enumerate(rows) if op.name == "await" and op.args == (call,))
            rows = moved(rows, await_at, call + 1)
        ranks.append(tuple(rows))
    before, after = referee(trace), referee(retimed(replace(trace, ranks=tuple(ranks))))
    assert after.error is None
    assert (before.timesteps, after.timesteps) == (15, 23)
    assert after.peak.memory < before.peak.memory
