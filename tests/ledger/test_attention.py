"""Attention on shares of the tokens: what is refused, what it takes, on tensors, in pictures, in random programs."""

import json
from collections.abc import Callable
from fractions import Fraction
from itertools import permutations
from typing import Any

import pytest

import drawing
from lib import (
    COSTS,
    Activation,
    ActivationGrad,
    Costs,
    KeyValue,
    KeyValueGrad,
    Model,
    Outcome,
    Setting,
    Trace,
    TraceError,
    WeightGrad,
    referee,
    run,
    trace_from_json,
    trace_to_json,
)  # fmt: skip
from lib.engine.replay.replay import replay
from lib.ledger.family import CONTEXT_PARALLEL, PIPELINE
from lib.pipelines.bounds import memory_bound, time_bound
from solutions.ring_context import ring_context
from solutions.seq_pipeline import seq_pipeline
from solutions.ulysses import ulysses
from tests.oracles.programs.attention import Grouped, Program
from tests.screens.texts import approved
from tests.support import finished
from tests.support.refusals import Refused

FREE = {"loss": 0, "update": 0, "receive": 0, "pass_to": 0, "allreduce": 3, "heads": 2, "tokens": 2}
COST = Costs("attention", ticks={"keys": 32, "attend": 64, "allgather": 6, "scatterreduce": 6, **FREE})
SETTING = Setting(COST, layer="attention", shares=4)


def played(schedule: Callable[[Model], Any], size: tuple[int, int, int], setting: Setting = SETTING) -> Outcome:
    return finished(schedule, *size, setting=setting)


def solved(slug: str) -> tuple[Trace, Setting]:
    costs = {"seq_pipeline": "sequences", "ring_context": "grouped", "ulysses": "context"}[slug]
    size = (4, 2, 4) if slug == "seq_pipeline" else (2, 1, 4)
    setting = Setting(costs, layer="attention", shares=8)
    return played(SOLUTIONS[slug], size, setting).trace, setting


SOLUTIONS: dict[str, Callable[[Model], Any]] = {
    "seq_pipeline": seq_pipeline,
    "ring_context": ring_context,
    "ulysses": ulysses,
}


# --- Refusals ---


class Start:
    """One rank, at microbatch 0 in layer 1 of two: inputs, keys and outputs of shares {0, 1} and {2, 3} of four."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.weights = [model.load_weights(layer) for layer in (0, 1)]
        self.inputs = [self.through_layer_0([0, 1]), self.through_layer_0([2, 3])]
        self.keys = [model.keys(1, inp, self.weights[1][0]) for inp in self.inputs]

    def through_layer_0(self, shares: list[int], batch: int = 0) -> Activation:
        model, weight = self.model, self.weights[0][0]
        before = [model.keys(0, model.get_activation([batch], shares=[k]), weight) for k in range(max(shares) + 1)]
        return model.attend(0, model.get_activation([batch], shares=shares), before)

    def partly(self) -> Activation:
        return self.model.attend(1, self.inputs[1], [self.keys[1]])

    def grads(self) -> tuple[ActivationGrad, list[KeyValueGrad]]:
        out = self.model.attend(1, self.inputs[1], self.keys)
        return self.model.attend_backward(1, self.inputs[1], self.keys, self.model.loss(out))

    def backward(self, block: int, grad_keys: KeyValueGrad, through: ActivationGrad) -> WeightGrad:
        return self.model.keys_backward(1, self.inputs[block], grad_keys, self.weights[1][0], through)[0]


def partly_to_keys(s: Start) -> None:
    inp = s.model.get_activation([0], shares=[2, 3])
    own = s.model.keys(0, inp, s.weights[0][0])
    s.model.keys(1, s.model.attend(0, inp, [own]), s.weights[1][0])


def zeroth_keys(s: Start) -> list[KeyValue]:
    model = s.model
    return [model.keys(0, model.get_activation([0], shares=[k]), s.weights[0][0]) for k in range(4)]


def first_before_last(s: Start) -> None:
    out = s.model.attend(1, s.inputs[0], [s.keys[0]])
    through, (own,) = s.model.attend_backward(1, s.inputs[0], [s.keys[0]], s.model.loss(out))
    s.backward(0, own, through)


def through_some(s: Start) -> None:
    out = s.model.attend(1, s.inputs[1], s.keys)
    through, (own,) = s.model.attend_backward(1, s.inputs[1], [s.keys[1]], s.model.loss(out))
    s.backward(1, own, through)


def queries_twice(s: Start) -> None:
    _, (one, _) = s.grads()
    _, (other, _) = s.grads()
    one + other


def through_to_layer_below(s: Start) -> None:
    through, _ = s.grads()
    s.model.attend_backward(0, s.model.get_activation([0], shares=[2, 3]), zeroth_keys(s), through)


def tokens_twice(s: Start) -> None:
    through, (_, own) = s.grads()
    s.backward(1, own, through) + s.backward(1, own, through)


def update_with_some(s: Start) -> None:
    through, (_, own) = s.grads()
    s.model.update(1, s.backward(1, own, through), *s.weights[1])


def in_weights(s: Start) -> None:
    s.model.weights[0] = s.keys[0]  # type: ignore[assignment]


REFUSED: dict[str, tuple[Any, Refused]] = {
    "partly_to_loss": (lambda s: s.model.loss(s.partly()), Refused("parts not added")),
    "partly_to_keys": (partly_to_keys, Refused("keys not attended", tokens="{2, 3}", keys="{2, 3}")),
    "later_keys": (
        lambda s: s.model.attend(1, s.inputs[0], [s.keys[1]]),
        Refused("keys come later", tokens="{0, 1}", keys="{2, 3}"),
    ),
    "keys_twice": (
        lambda s: s.model.attend(1, s.inputs[1], [s.keys[0], s.keys[0]]),
        Refused("keys passed twice", keys="{0, 1}"),
    ),
    "keys_again": (
        lambda s: s.model.attend(1, s.inputs[1], [s.keys[1]], into=s.partly()),
        Refused("keys in both", keys="{2, 3}"),
    ),
    "into_whole": (
        lambda s: s.model.attend(1, s.inputs[1], [s.keys[1]], into=s.model.attend(1, s.inputs[1], s.keys)),
        Refused("complete attention"),
    ),
    "into_other_tokens": (
        lambda s: s.model.attend(
            1, s.model.attend(0, s.model.get_activation([0], shares=[3]), zeroth_keys(s)), [s.keys[0]], s.partly()
        ),
        Refused("other tokens", tokens="{3}"),
    ),
    "other_batch": (
        lambda s: s.model.attend(1, s.through_layer_0([2, 3], batch=1), s.keys),
        Refused(
            "keys of another layer", layer=1, batches="batch 0 of 2", queries_layer=1, queries_batches="batch 1 of 2"
        ),
    ),
    "added_twice": (lambda s: s.partly() + s.partly(), Refused("shares in both", shares="keys of {2, 3}")),
    "added_whole": (lambda s: s.inputs[0] + s.inputs[0], Refused("complete sum")),
    "added_keys": (lambda s: s.keys[0] + s.keys[0], Refused("not part of sum")),
    "first_before_last": (
        first_before_last,
        Refused("queries missing", keys="{0, 1}", users="{0-3}", missing="{2, 3}"),
    ),
    "through_some": (through_some, Refused("keys missing", keys="{2, 3}", missing="{0, 1}")),
    "queries_twice": (queries_twice, Refused("shares in both", shares="queries of {2, 3}")),
    "through_to_layer_below": (through_to_layer_below, Refused("gradient not yet complete")),
    "tokens_twice": (tokens_twice, Refused("shares in both", shares="tokens {2, 3} of 4 of batch 0")),
    "update_with_some": (update_with_some, Refused("shares missing", batches="tokens {2, 3} of 4 of batch 0")),
    "forward": (lambda s: s.model.forward(1, s.inputs[0], s.weights[1][0]), Refused("attention in two parts")),
    "cut": (lambda s: s.model.get_activation([0]).shard(0, 2), Refused("shares not named")),
    "no_list": (lambda s: s.model.attend(1, s.inputs[0], s.keys[0]), Refused("no keys")),
    "no_keys": (lambda s: s.model.attend(1, s.inputs[0], []), Refused("no keys")),
    "no_shares": (lambda s: s.model.get_activation([0], shares=[]), Refused("no shares")),
    "too_late": (
        lambda s: s.model.get_activation([0], shares=[4]),
        Refused("does not exist", thing="share", number=4, limit=4),
    ),
    "swapped": (lambda s: s.model.keys(1, s.weights[1][0], s.inputs[0]), Refused("arguments swapped")),
    "wrong_layer": (
        lambda s: s.model.keys(0, s.inputs[0], s.weights[0][0]),
        Refused(
            "other input", inp="input activation of layer 1, batch 0 of 2, shares 0, 1 of 4 of the tokens", layer=0
        ),
    ),
    "in_weights": (in_weights, Refused("wrong dictionary")),
}


@pytest.mark.parametrize("wrong", REFUSED)
def test_what_cannot_be_is_refused_in_words(wrong: str) -> None:
    call, expected = REFUSED[wrong]
    expected.require(run(lambda model: call(Start(model)), 2, 2, 1, setting=SETTING).error)


async def exchange(model: Model, name: str, value: Callable[[Model], Any]) -> None:
    await getattr(model, name)(value(model), 0)


def tokens_of(shares: list[int]) -> Callable[[Model], Any]:
    return lambda model: model.get_activation([0], shares=shares)


async def keys_of_heads(model: Model) -> None:
    inp = await model.heads(tokens_of([2 * model.rank, 2 * model.rank + 1])(model), 0)
    model.keys(0, inp, model.load_weights(0)[0])


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        (lambda model: exchange(model, "heads", tokens_of([0, 1])), Refused("other share", share=0, n=2)),
        (lambda model: exchange(model, "heads", tokens_of([1 - model.rank])), Refused("other share", share=0, n=2)),
        (lambda model: exchange(model, "tokens", tokens_of([0, 1])), Refused("other heads", heads=0, n=2)),
        (
            lambda model: exchange(model, "heads", lambda m: m.load_weights(0)[0]),
            Refused("not of attention", name="heads"),
        ),
        (keys_of_heads, Refused("heads to attention", heads=0, n=2, call="keys")),
    ],
)
def test_an_exchange_of_the_wrong_tokens_is_refused(schedule: Any, expected: Refused) -> None:
    expected.require(run(schedule, 1, 1, 2, setting=SETTING).error)


def test_other_layers_have_no_attention() -> None:
    def with_keys(model: Model) -> None:
        model.keys(0, model.get_activation([0]), model.load_weights(0)[0])

    def with_shares(model: Model) -> None:
        model.get_activation([0], shares=[0])

    for wrong in (with_keys, with_shares):
        Refused("other kind of layers", kind="attention", layers="dense").require(run(wrong, 1, 1, 1).error)
    without_price = Setting(COSTS["long"], layer="attention")
    Refused("no price", operation="keys", costs="long").require(run(with_keys, 1, 1, 1, setting=without_price).error)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"shares": 4}, Refused("shares without attention", layers="dense")),
        ({"shares": 0, "layer": "attention"}, Refused("no number in bounds", minimum=1)),
        ({"shares": 3, "layer": "attention"}, Refused("shares not equal", size="256 tokens", shares=3)),
        ({"layer": "attention", "kinds": ("block",)}, Refused("only for dense layers", fields="kinds")),
        (
            {"shares": 4, "layer": "attention", "lengths": (Fraction(1, 128),)},
            Refused("shares not equal", size="1/128 of 256 tokens"),
        ),
        ({"shares": 8, "layer": "attention", "lengths": (1, Fraction(1, 64))}, Refused("shares not equal", shares=8)),
        ({"lag": 1, "layer": "attention"}, Refused("attention in other game")),
        ({"task": "local", "layer": "attention"}, Refused("attention in other game")),
    ],
)
def test_what_is_no_setting_is_refused(fields: dict[str, Any], expected: Refused) -> None:
    with expected:
        Setting(COST, **fields)
    with Refused("no number in bounds", name="Costs: keys_values", got=-1):
        Costs("wrong", keys_values=-1)


def test_labels_made_by_hand_are_checked() -> None:
    for kind in (Activation, ActivationGrad, KeyValue, KeyValueGrad):
        assert kind(0, 1, {0}, 1, heads=(1, 4)).memory() * 4 == kind(0, 1, {0}, 1).memory()  # type: ignore[arg-type]
        for heads, reason in (((4, 4), "does not exist"), ((0, 1), "too small"), (3, "no part")):
            with Refused(reason, thing="heads"):
                kind(0, 1, {0}, 1, heads=heads)  # type: ignore[arg-type]
    approved("attention", "labels made by hand are checked", str(KeyValue(1, 2, {0}, 2, shards={1}, total=4)))
    approved("attention", "labels made by hand are checked, 2", str(WeightGrad(0, 1, {1, 4, 5, 6, 7}, 8, shares=4)))


@pytest.mark.parametrize(
    ("op", "column", "content", "expected"),
    [
        ("attend", "uses", [2], Refused("wrong kind for use", use="inp", kind="an activation")),
        ("attend", "at", [0, 1], Refused("other ticks")),
        ("get_activation", "shares", [0], Refused("other tokens", tokens="{0}")),
        ("get_activation", "shares", [1, 0], Refused("unreadable operation", why="shares cannot be [1, 0]")),
        ("get_activation", "shares", [99], Refused("does not exist", thing="share", number=99)),
        ("keys_backward", "batches", [1], Refused("other batches", batches=[0], its_batches=[1])),
    ],
)
def test_a_forged_row_is_refused(op: str, column: str, content: Any, expected: Refused) -> None:
    data = json.loads(trace_to_json(solved("ring_context")[0]))
    rows = [row for row in data["operations"][0] if row["op"] == op]
    rows[-1][column] = content
    try:
        error: Exception | None = referee(trace_from_json(json.dumps(data))).error
    except TraceError as why:
        error = why
    expected.require(error)


# --- What it takes ---


@pytest.mark.slow
@pytest.mark.parametrize(
    ("slug", "figures", "family"),
    [
        ("seq_pipeline", (85.5, 6_815_744, 4_194_304), PIPELINE),
        ("ring_context", (15.3, 2_228_224, 1_966_080), CONTEXT_PARALLEL),
        ("ulysses", (17.0, 3_670_016, 3_932_160), CONTEXT_PARALLEL),
    ],
)
def test_solutions_have_their_figures_and_are_drawn(slug: str, figures: tuple[float, int, int], family: str) -> None:
    trace, _ = solved(slug)
    report = referee(trace)
    assert (report.timesteps, report.peak.memory, report.traffic) == figures
    assert report.family == family
    assert "attend" in drawing.text(trace)
    assert "attend" in str(drawing.svg(drawing.draw(trace)))


def test_a_share_pays_for_the_pairs_that_the_mask_leaves() -> None:
    """Of 64 ticks for all 16 pairs of 4 shares: 4 for a share's own block, 8 for an earlier one; backward twice."""
    assert COST.duration("attend") == 64
    assert COST.duration("attend_backward") == 128

    def schedule(model: Model) -> None:
        start = Start(model)
        out = model.attend(1, start.inputs[1], [start.keys[0]])
        out = model.attend(1, start.inputs[1], [start.keys[1]], into=out)
        start.grads()

    ops = [op for op in run(schedule, 2, 2, 1, setting=SETTING).trace.ranks[0] if op.layer == 1 and op.end > op.start]
    took = [(op.name, op.end - op.start) for op in ops]
    assert took == [
        ("keys", 16),
        ("keys", 16),
        ("attend", 4 * 8),
        ("attend", 2 * 4 + 8),
        ("attend", 48),
        ("attend_backward", 96),
    ]


def test_a_heads_part_takes_its_part_of_the_time_and_the_memory() -> None:
    trace, _ = solved("ulysses")
    took = {op.name: op.end - op.start for op in trace.ranks[0] if op.name in ("attend", "attend_backward")}
    assert took == {"attend": 16, "attend_backward": 32}


# --- On tensors ---


def test_all_keys_are_gathered_and_their_gradients_scattered() -> None:
    """Keys of shares from both ends are gathered; each rank gets back the gradients of its own."""

    async def schedule(model: Model) -> None:
        own = [model.rank, model.SHARES - 1 - model.rank]
        weight, state = model.load_weights(0)
        inp = model.get_activation([0], shares=own)
        keys = await model.allgather(model.keys(0, inp, weight), 0)
        grad = model.loss(model.attend(0, inp, [keys]))
        through, (of_keys,) = model.attend_backward(0, inp, [keys], grad)
        of_keys = await model.scatterreduce(of_keys, 0)
        grad_weight, _ = model.keys_backward(0, inp, of_keys, weight, through)
        model.set_final_weight(0, model.update(0, await model.allreduce(grad_weight, 0), weight, state)[0])

    trace = played(schedule, (1, 1, 2)).trace
    report = referee(trace)
    assert (report.error, report.family) == (None, CONTEXT_PARALLEL)
    assert report.makespan == 15.9  # three times 1.6 and 3.2, gathered and scattered in 0.6, summed in 0.3
    assert replay(trace, small=True).passed


# --- Random programs ---


@pytest.mark.sampled(8)
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("seed", range(60))
def test_random_programs_take_the_time_of_a_second_simulator_in_any_order(seed: int, packed: bool) -> None:
    assert_as_simulated(Program(seed, packed))


@pytest.mark.slow
@pytest.mark.parametrize("first", range(60, 500, 44))
def test_more_packed_programs_take_the_time_of_a_second_simulator(first: int) -> None:
    for seed in range(first, first + 44):
        assert_as_simulated(Program(seed, packed=True))


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 500, 4))
def test_programs_with_heads_inside_groups_take_the_time_of_a_second_simulator(first: int) -> None:
    for seed in range(first, first + 4):
        assert_as_simulated(Grouped(seed))


def assert_as_simulated(program: Program | Grouped) -> None:
    ticks = {"keys": 7, "attend": 31, **FREE, "pass_to": 2, "receive": 1}
    costs = Costs("random", length=48, ticks=ticks)  # quarters of it can be cut into up to six shares
    lengths = program.lengths if isinstance(program, Program) else ()
    mesh = {} if isinstance(program, Program) else {"pair": program.size[2] // 2, "place": 2}
    setting = Setting(costs, mesh, layer="attention", shares=program.shares, lengths=lengths)
    trace = played(program.schedule(), program.size, setting).trace
    report = referee(trace)
    assert report.error is None
    assert (round(report.makespan * 10), report.traffic) == program.simulated(costs)
    assert time_bound(trace.size, setting).least <= report.timesteps
    assert memory_bound(trace.size, setting).least <= report.peak.memory
    for order in [*permutations(range(program.size[2]))][:6]:
        assert run(program.schedule(), *program.size, list(order), setting=setting).trace == trace
    assert replay(trace, small=True).passed
