"""Traces with one thing changed are refused exactly if they would go wrong on real tensors."""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from dataclasses import replace as changed
from fractions import Fraction
from functools import cache
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib import COSTS, Model, Setting, Trace, TraceError, referee, run, trace_to_json
from lib.engine.replay.replay import replay
from lib.ledger.recomputation import Recomputation
from lib.ledger.trace import Op
from lib.pipelines import pipeline, sequence_parallel, tensor_parallel, zb_h1
from solutions.fsdp_prefetch import fsdp_prefetch
from tests.catalog.lessons.families.replicas import buckets, passes
from tests.ledger.test_random_programs import ALL, GAMES, MESH, OVERLAPPING, Chaos, Choices, Nested, labels_are_true
from tests.oracles.tensor_interpreter import outcome
from tests.oracles.timing import retimed
from tests.support import CLASSICS
from tests.support.examples import examples
from tests.support.schedules import shards, tiers
from tests.support.schedules.groups import hybrid_shard

# === The classics and data parallelism, played by a plain interpreter ===


# A plain interpreter plays them. What the referee still accepts gives the weights of one device; what it refuses gives
# others or cannot run. A replay of what it accepts agrees.

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


# === Groups, tags and overlap ===


# Altered traces get new times, worked out as a longest path, so that they are judged for what they do. On tensors,
# what a call makes is there only once it has been awaited.

OVERLAP = Setting(COSTS["overlap"])
BUCKETS = Setting(COSTS["buckets"])
ISLANDS = Setting(COSTS["islands"], mesh=(("replica", 2), ("shard", 2)))
TAGGED = Setting(replace(COSTS["classic"], name="tagged"))


# --- Times ---


@examples(30)
@given(st.integers(1, 3), st.integers(1, 5), st.integers(0, 10**9), st.sampled_from(OVERLAPPING))
def test_times_of_random_programs_are_a_longest_path(layers: int, batches: int, seed: int, costs: Any) -> None:
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


OVERLAP_CHANGES = (an_await_moved, an_await_removed, a_call_moved, a_group_changed, a_tag_changed)

OVERLAP_KINDS = {
    "used before its await": "still pending; await it first",
    "awaited before it was made": "not a pending call",
    "a group without oneself": "not in the group",
    "no group of these ranks": "nobody can move",
    "another layer or operation": "same collective calls",
    "another tag": "nobody can move: rank",
    "a use of what is not made yet": "which this rank has not made",
}


def overlap_altered(seed: int) -> Trace:
    """A legal trace with one thing altered on one rank or on all, and with new times."""
    draw = Random(seed)
    while True:
        trace = draw.choice(LEGAL)()
        change, alike, only = (
            draw.choice(OVERLAP_CHANGES),
            draw.random(),
            draw.choice([None, draw.randrange(len(trace.ranks))]),
        )
        ranks = [
            change(Random(alike), list(ops)) if only in (None, rank) else list(ops)
            for rank, ops in enumerate(trace.ranks)
        ]
        if None not in ranks:
            return retimed(replace(trace, ranks=tuple(tuple(ops) for ops in ranks if ops is not None)))


def overlap_kinds_seen(seeds: Iterable[int]) -> set[str]:
    """Requires that refused traces go wrong and accepted ones go right; returns the kinds of verdicts that occurred."""
    seen: Counter[str] = Counter()
    for seed in seeds:
        trace = overlap_altered(seed)
        report = referee(trace)
        found = outcome(trace)
        if report.error is None:
            assert found == "right", f"seed {seed}: accepted, but it is {found}"
            seen["accepted"] += 1
        elif found == "right":
            assert _needless(str(report.error)), f"seed {seed}: {report.error}, but it is right"
        seen.update(kind for kind, words in OVERLAP_KINDS.items() if words in str(report.error))
    return {*seen}


def _needless(error: str) -> bool:
    """What is refused though no tensor is wrong: nobody may leave a call unawaited or a message unread; a lane or a
    mailbox may be held up for ever."""
    return any(
        words in error for words in ("was never awaited", "never received", "nobody can move", "in the same order")
    )


def test_some_altered_traces_are_refused_exactly_if_they_go_wrong() -> None:
    assert "accepted" in overlap_kinds_seen(range(25))


@pytest.mark.slow
def test_altered_traces_are_refused_exactly_if_they_go_wrong() -> None:
    assert sorted({*OVERLAP_KINDS, "accepted"} - overlap_kinds_seen(range(600))) == []


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


# === Extended games ===


# On tensors nobody looks at labels: a forged row that gets through would leave other numbers than one device computes.

SIZED = replace(
    ALL,
    name="sized",
    alpha={"allreduce": 2, "fetch": 1, "dispatch": 3},
    beta={"allreduce": Fraction(1, 4096), "offload": Fraction(1, 10**4), "fetch": Fraction(1, 7), "pass_to": 1},
)

EXTENDED_RUNS: dict[str, tuple[Any, tuple[int, int, int], Setting]] = {
    "halves, messages": (pipeline(zb_h1), (2, 3, 2), Setting(COSTS["parts"], steps=2)),
    "parts": (tensor_parallel, (2, 2, 2), Setting(ALL, layer="block")),
    "token shares": (sequence_parallel, (2, 2, 2), Setting(ALL, layer="block")),
    "experts": (shards.experts_in_turn, (2, 4, 2), Setting(ALL, layer="experts")),
    "experts by size": (shards.experts_in_turn, (1, 4, 2), Setting(SIZED, layer="experts")),
    "averages": (shards.local_sgd(2), (2, 2, 2), Setting(ALL, steps=4, task="local")),
    "steps by size": (shards.data_parallel_steps, (2, 2, 2), Setting(SIZED, steps=3)),
    "tiers": (tiers.stream_inference_in_turn, (3, 2, 1), Setting(SIZED, task="infer")),
}


@cache
def extended_legal(name: str) -> Trace:
    schedule, size, setting = EXTENDED_RUNS[name]
    trace = run(schedule, *size, setting=setting).trace
    assert referee(trace).error is None
    return trace


TWINS = (
    ("backward", "backward_input", "backward_weight"),
    ("allreduce", "scatterreduce", "allgather"),
    ("dispatch", "collect"),
    ("offload", "fetch"),
)


def other_operand(draw: Random, op: Op, values: dict[int, Any]) -> Op:
    place = draw.randrange(len(op.inputs))
    kind = type(values[op.inputs[place]])
    made = [
        number for number, value in values.items() if type(value) is kind and number < min(op.outputs, default=10**9)
    ]
    used = list(op.inputs)
    used[place] = draw.choice(made)
    layer = values[used[0]].layer if op.name in TWINS[1] + TWINS[2] else op.layer
    return op._replace(inputs=tuple(used), layer=layer)


def other_name(draw: Random, op: Op, values: dict[int, Any]) -> Op:
    names = next((names for names in TWINS if op.name in names), (op.name,))
    return op._replace(name=draw.choice(names))


def other_argument(draw: Random, op: Op, values: dict[int, Any]) -> Op:
    if op.name in ("get_activation", "fake_grad"):
        step = draw.randrange(4)
        return op._replace(args=(step,) if step else ())
    if op.name in ("load_weights", "shard"):
        total = draw.choice([1, 2, 4])
        return op._replace(args=(draw.randrange(total), total, *op.args[2:]))
    return op


def other_batches(draw: Random, op: Op, values: dict[int, Any]) -> Op:
    return op._replace(batches=frozenset(draw.sample(range(4), draw.randint(0, 2))))


def other_layer(draw: Random, op: Op, values: dict[int, Any]) -> Op:
    return op if op.layer is None else op._replace(layer=draw.randrange(3))


EXTENDED_CHANGES: tuple[Callable[[Random, Op, dict[int, Any]], Op], ...] = (
    other_operand,
    other_operand,
    other_name,
    other_argument,
    other_batches,
    other_layer,
)


def extended_altered(trace: Trace, draw: Random) -> Trace:
    """One row changed, dropped or written twice, on one rank or on all; with new times."""
    recomputation = Recomputation(trace)
    recomputation.run()
    kind, only = draw.random(), draw.choice([None, draw.randrange(len(trace.ranks))])
    shortest = min(trace.ranks, key=len)
    at = draw.choice([i for i, op in enumerate(shortest) if op.name not in ("store", "delete")])
    seed = draw.random()
    change = draw.choice(EXTENDED_CHANGES)
    ranks = list(trace.ranks)
    for rank, ops in enumerate(trace.ranks):
        if only in (None, rank):
            op = ops[at]
            new = [op, op._replace(outputs=tuple(n + 10**6 for n in op.outputs))] if kind < 0.15 else [op]
            if kind < 0.1:
                new = []
            elif kind >= 0.15 and (op.inputs or change is not other_operand):
                new = [change(Random(seed), op, recomputation.ranks[rank].values)]
            ranks[rank] = renumbered([*ops[:at], *new, *ops[at + 1 :]])
    changed = replace(trace, ranks=tuple(ranks))
    try:
        return retimed(changed)
    except (KeyError, IndexError, ValueError):  # it waits for what does not exist
        return changed


def verdicts(seeds: Iterable[int]) -> Counter[str]:
    """Requires that what is accepted computes what its labels say. Returns how often traces were refused, and
    accepted though they were altered, by name of the run."""
    found: Counter[str] = Counter()
    for seed in seeds:
        name = sorted(EXTENDED_RUNS)[seed % len(EXTENDED_RUNS)]
        trace = extended_altered(extended_legal(name), Random(seed))
        if trace == extended_legal(name):
            continue
        accepted = referee(trace).error is None
        if accepted:
            labels_are_true(trace)
        found[f"{name}: {'accepted' if accepted else 'refused'}"] += 1
    return found


@pytest.mark.slow
def test_some_altered_traces_are_refused_or_compute_what_they_say() -> None:
    found = verdicts(range(48))
    assert {name for name in EXTENDED_RUNS if found[f"{name}: refused"]} == {*EXTENDED_RUNS}
    assert any(kind.endswith("accepted") for kind in found)


@pytest.mark.slow
def test_altered_traces_are_refused_or_compute_what_they_say() -> None:
    found = verdicts(range(1600))
    assert {name for name in EXTENDED_RUNS if found[f"{name}: accepted"]} == {*EXTENDED_RUNS}


@pytest.mark.parametrize("name", EXTENDED_RUNS)
def test_times_of_extended_games_are_a_longest_path(name: str) -> None:
    assert retimed(extended_legal(name)) == extended_legal(name)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("setting", [*GAMES, Setting(SIZED, steps=2)], ids=lambda s: f"{s.layer}, {s.task}")
def test_a_random_program_is_the_same_for_every_order_of_starting_ranks(setting: Setting) -> None:
    for seed in range(3):
        traces = [
            run(Chaos(seed, calls=40), 2, 4, 4, order, setting=setting).trace for order in ((0, 1, 2, 3), (3, 1, 0, 2))
        ]
        assert trace_to_json(traces[0]) == trace_to_json(traces[1])
