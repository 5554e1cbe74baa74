"""Layers that are not all alike: frozen ones, updates of full matrices, kinds and lengths, a head cut by vocabulary."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from typing import Any

import pytest

import drawing
from lib import (
    COSTS,
    Activation,
    ActivationGrad,
    Costs,
    Goal,
    Model,
    Outcome,
    RuleError,
    Setting,
    Size,
    TraceError,
    referee,
    run,
    trace_from_json,
    trace_to_json,
)
from lib.engine.replay.replay import replay
from lib.ledger.costs import Kind
from lib.ledger.setting import Game
from lib.pipelines.bounds import pipeline_time_bound, time_bound
from solutions.basic import basic
from solutions.frozen_encoder import frozen_encoder
from tests.screens.texts import approved
from tests.support import finished
from tests.support.refusals import Refused
from tests.support.schedules.splits import uneven

# === Frozen layers, and updates of full matrices ===


FROZEN = Setting("parts", frozen=(0, 2))
"""Of four layers, 1 is the first that is trained."""

ENCODER, SIZE = Setting("parts", frozen=range(7)), Size(13, 8, 4)


def training(steps: int = 1) -> Callable[[Model], Any]:
    """Trains on one microbatch, through a frozen layer above the first trained one."""

    async def schedule(model: Model) -> None:
        frozen = model.dist.setting.frozen
        held = [model.load_weights(layer) for layer in range(model.LAYERS)]
        for step in range(steps):
            inputs = [model.get_activation([0], step)]
            for layer, (weight, _) in enumerate(held):
                inputs.append(model.forward(layer, inputs[layer], weight))
            grad, new = model.loss(inputs.pop()), {}
            for layer in range(model.LAYERS - 1, 0, -1):
                inp = inputs.pop()
                if layer not in frozen:
                    more = (held[layer][0],) if model.dist.setting.layer == "block" else ()
                    new[layer] = model.backward_weight(layer, inp, grad, *more)
                if layer > 1:
                    grad = model.backward_input(layer, inp, grad, held[layer][0])
            for layer, weight_grad in new.items():
                held[layer] = model.update(layer, weight_grad, *held[layer])
        for layer in new:
            model.set_final_weight(layer, held[layer][0])

    return schedule


class FrozenStart:
    """Microbatch 0 of one rank, after its forward: the values of each layer of FROZEN."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.held = [model.load_weights(layer) for layer in range(4)]
        self.inputs = [model.get_activation([0])]
        for layer, (weight, _) in enumerate(self.held):
            self.inputs.append(model.forward(layer, self.inputs[layer], weight))
        self.grad = model.loss(self.inputs[4])

    def down_to(self, layer: int) -> Any:
        grad = self.grad
        for above in range(3, layer, -1):
            grad = self.model.backward_input(above, self.inputs[above], grad, self.held[above][0])
        return grad

    def call(self, name: str, layer: int) -> Any:
        weight = () if name == "backward_weight" else (self.held[layer][0],)
        return getattr(self.model, name)(layer, self.inputs[layer], self.down_to(layer), *weight)


REFUSED_FROZEN: list[tuple[Callable[[FrozenStart], Any], Refused]] = [
    (lambda s: s.call("backward_weight", 2), Refused("frozen layer", layer=2)),
    (lambda s: s.call("backward", 2), Refused("frozen layer", layer=2)),
    (lambda s: s.call("backward_input", 1), Refused("input needs no gradient", layer=1)),
    (lambda s: s.call("backward", 1), Refused("input needs no gradient", layer=1)),
    (lambda s: s.model.update(2, s.model.fake_grad(2, [0]), *s.held[2]), Refused("frozen layer", layer=2)),
    (lambda s: s.model.set_final_weight(2, s.held[2][0]), Refused("frozen layer", layer=2)),
]


@pytest.mark.parametrize(("wrong", "expected"), REFUSED_FROZEN)
def test_what_a_frozen_layer_does_not_have_is_refused(wrong: Callable[[FrozenStart], Any], expected: Refused) -> None:
    expected.require(run(lambda model: wrong(FrozenStart(model)), 4, 1, 1, setting=FROZEN).error)


def test_a_frozen_layer_needs_no_final_weight_and_every_other_layer_does() -> None:
    async def schedule(model: Model) -> None:
        start = FrozenStart(model)
        model.set_final_weight(3, model.update(3, start.call("backward_weight", 3), *start.held[3])[0])

    outcome = run(schedule, 4, 1, 1, setting=FROZEN)
    Refused("no final weight", layer=1).require(referee(outcome.trace).error)
    assert referee(finished(training(), 4, 1, 1, setting=FROZEN).trace).error is None


@pytest.mark.parametrize(
    "fields",
    [
        {"frozen": "01"},
        {"frozen": (0.5,)},
        {"frozen": (-1,)},
        {"frozen": {0: 1}},
        {"frozen": 0},
        {"frozen": (0,), "task": "infer"},
        {"frozen": (0,), "lag": 1},
        {"frozen": (0,), "clip": True},
        {"frozen": (0,), "layer": "attention"},
        {"frozen": (0,), "costs": "stages"},
        {"whole": 1},
    ],
)
def test_what_is_no_setting_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(RuleError, match=r"frozen|whole"):
        Setting(**{"costs": "parts", **fields})


@pytest.mark.parametrize("frozen", [(3,), (0, 1, 2)])
def test_some_layer_of_the_game_is_trained(frozen: tuple[int, ...]) -> None:
    with Refused("every layer frozen", layers=3):
        Game.of(Size(3, 1, 1), Setting("parts", frozen=frozen))


def test_settings_come_back_from_a_trace() -> None:
    setting = Setting("parts", frozen=(2, 0, 2), whole=True)
    trace = finished(training(), 4, 1, 1, setting=setting).trace
    assert trace_from_json(trace_to_json(trace)).setting == setting
    assert setting.frozen == (0, 2)
    for name, content in (("frozen", "0"), ("frozen", ["0"]), ("whole", 1)):
        data = json.loads(trace_to_json(trace))
        data[name] = content
        with pytest.raises(TraceError, match=name):
            trace_from_json(json.dumps(data))


# --- A forged trace ---


@pytest.mark.parametrize(
    ("frozen", "expected"),
    [((0, 1, 2), Refused("input needs no gradient", layer=3)), ((0, 2, 3), Refused("frozen layer", layer=3))],
)
def test_a_forged_setting_is_refused_by_the_referee(frozen: Sequence[int], expected: Refused) -> None:
    data = json.loads(trace_to_json(finished(training(), 4, 1, 1, setting=FROZEN).trace))
    data["frozen"] = [*frozen]
    expected.require(referee(trace_from_json(json.dumps(data))).error)


async def sharded(model: Model) -> None:
    """ZeRO-1: each rank updates a shard."""
    weight, _ = model.load_weights(0)
    own, state = model.load_weights(0, model.rank, model.RANKS)
    inp = model.get_activation([model.rank])
    grad, _ = model.backward(0, inp, model.loss(model.forward(0, inp, weight)), weight)
    grad = await model.scatterreduce(grad, 0)
    model.set_final_weight(0, model.update(0, grad, own, state)[0])


def test_an_update_of_a_shard_is_refused_where_it_needs_the_full_matrix() -> None:
    trace = finished(sharded, 1, 2, 2).trace
    assert referee(trace).error is None
    Refused("matrix not whole").require(run(sharded, 1, 2, 2, setting=Setting(whole=True)).error)
    data = json.loads(trace_to_json(trace))
    data.update({"costs": "classic", "whole": True})
    Refused("matrix not whole").require(referee(trace_from_json(json.dumps(data))).error)


# --- Tensors and bounds ---


@pytest.mark.parametrize(
    ("frozen", "least"), [((), 11), ((0,), 9), ((0, 1), 7), ((0, 1, 2), 5), ((3,), 10), ((0, 2), 8)]
)
def test_the_time_of_one_microbatch_on_one_rank_is_the_bound(frozen: tuple[int, ...], least: float) -> None:
    """Four forwards, a weight half of each trained layer, and an input half of each layer above the first of them."""
    assert time_bound(Size(4, 1, 1), Setting("parts", frozen=frozen)).least == least


def test_a_frozen_stage_bounds_the_time_of_a_pipeline() -> None:
    counts = [0, 6, 9, 11, 13]
    stages = [(range(a, b), 1) for a, b in pairwise(counts)]
    report = referee(finished(frozen_encoder, *SIZE, setting=ENCODER).trace)
    assert (report.error, report.timesteps) == (None, 62)
    # 48 steps of rank 0; then the last microbatch goes through 7 layers, back through 5, and layer 7 gets its gradient.
    assert pipeline_time_bound(SIZE, ENCODER, stages).least == 48 + 7 + 5 + 1
    assert pipeline_time_bound(SIZE, Setting("parts"), stages).least > 100


# === Kinds of layers, slow ranks and lengths of microbatches ===


W, A = 512 * 512, 512 * 256
STAGES = COSTS["stages"]
EMBEDDING = Kind(2 * W, 256, None, {"forward": 0, "backward": 0})
HEAD_KIND = Kind(2 * W, None, 256 * 1024, {"forward": 20, "backward": 40})
UNEVEN = replace(STAGES, name="uneven", kinds={"embedding": EMBEDDING, "head": HEAD_KIND, "wide": Kind(3 * W)})
HALVES = Fraction(1), Fraction(3, 4), Fraction(1, 2)


def kinds_setting(blocks: int = 1, **more: Any) -> Setting:
    return Setting(UNEVEN, kinds=("embedding", *["block"] * blocks, "head"), **more)


def kinds_outcome(of: Setting, counts: tuple[int, ...], batches: int) -> Outcome:
    return finished(uneven(counts), sum(counts), batches, len(counts), setting=of)


# --- Figures ---


@pytest.mark.parametrize(
    ("counts", "time", "memory"),
    [
        ((3, 3, 3, 1), 90, 4_325_376),
        ((4, 3, 2, 1), 87, 5_636_096),
        ((3, 2, 2, 3), 114, None),
        ((2, 2, 3, 3), 114, None),
    ],
)
def test_uneven_stages_take_the_time_that_a_simulator_gives(counts: Any, time: float, memory: int | None) -> None:
    report = referee(kinds_outcome(kinds_setting(8), counts, 8).trace)
    assert report.timesteps == time
    assert report.traffic == 8 * (A + 8192)
    if memory is not None:  # a player deletes what is needed no longer; values outside the dictionaries weigh the same
        assert report.peak.memory <= 1.02 * memory


def test_a_computation_is_rounded_up_for_each_microbatch_and_then_for_a_slow_rank() -> None:
    costs = replace(STAGES, ticks={**STAGES.ticks, "forward": 3, "update": 5}, slow={0: Fraction(3, 2)})
    model = run(basic, 1, 2, 1, setting=Setting(costs, lengths=(1, Fraction(1, 2))))
    assert model.error is None
    ticks = {op.name: op.end - op.start for op in model.trace.ranks[0]}
    assert ticks["forward"] == 5 + 3  # 3 x 3/2 is 4.5; 3/2 is 2 ticks, and 2 x 3/2 is 3
    assert ticks["backward"] == 30 + 15
    assert ticks["update"] == 8


def test_sizes_are_those_of_the_kind_and_the_length() -> None:
    sizes: dict[str, int] = {}

    async def schedule(model: Model) -> None:
        weights = [model.load_weights(layer) for layer in range(3)]
        inputs = [model.get_activation([2])]
        for layer in range(3):
            inputs.append(model.forward(layer, inputs[-1], weights[layer][0]))
        logits_grad = model.loss(inputs[-1])
        grad, before = model.backward(2, inputs[2], logits_grad, weights[2][0])
        named = {"weight": weights[0][1], "tokens": inputs[0], "embedded": inputs[1], "logits": inputs[3]}
        sizes.update({name: value.memory(model._costs) for name, value in named.items()})
        sizes.update(grad=grad.memory(model._costs), logits_grad=logits_grad.memory(model._costs))
        sizes.update(before=before.memory(model._costs))
        _, before = model.backward(1, inputs[1], before, weights[1][0])
        assert len(model.backward(0, inputs[0], before, weights[0][0])) == 2
        assert model.backward(0, inputs[0], before, weights[0][0])[1] is None

    assert isinstance(run(schedule, 3, 3, 1, setting=kinds_setting(lengths=HALVES)).error, (type(None), Exception))
    assert sizes == {
        "weight": 2 * W, "tokens": 128, "embedded": A // 2, "logits": 256 * 512, "grad": 2 * W,
        "logits_grad": 256 * 512, "before": 4096,
    }  # fmt: skip


# --- Notation ---


def test_a_trace_writes_kinds_lengths_and_slow_ranks_and_the_referee_reads_them() -> None:
    of = kinds_setting(lengths=HALVES)
    of = Setting(replace(of.costs, slow={1: Fraction(3, 2)}), kinds=of.kinds, lengths=of.lengths)
    trace = kinds_outcome(of, (2, 1), 3).trace
    text = trace_to_json(trace)
    assert trace_from_json(text) == trace
    assert referee(trace_from_json(text), Goal("any", trace.size, 999, 10**9, setting=of)).status == "passed"
    data = json.loads(text)
    assert (data["kinds"], data["lengths"]) == (["embedding", "block", "head"], ["1", "3/4", "1/2"])
    assert data["costs"]["slow"] == {"1": "3/2"}
    assert data["costs"]["kinds"]["embedding"] == [2 * W, 256, None, {"forward": 0, "backward": 0}]
    default = json.loads(trace_to_json(run(basic, 1, 2, 1).trace))
    assert not {"kinds", "lengths"} & default.keys()


FORGED_KINDS: list[tuple[dict[str, Any], Refused]] = [
    ({"kinds": ["embedding", "wing", "head"]}, Refused("unknown kind", layer=1, kind="wing", costs="uneven")),
    ({"kinds": ["embedding", "head"]}, Refused("setting of other size", name="kinds", given=2, what="layers", count=3)),
    ({"kinds": "head"}, Refused("unreadable list", name="kinds")),
    ({"lengths": ["1", "1"]}, Refused("setting of other size", name="lengths", given=2, what="batches", count=3)),
    ({"lengths": ["1", "1/3", "1"]}, Refused("part of a token", length="1/3", tokens=256)),
    ({"lengths": ["1", 0.5, "1"]}, Refused("unreadable fraction", name="lengths", got=0.5)),
    ({"lengths": ["1", "0", "1"]}, Refused("length out of bounds", length="0")),
]


@pytest.mark.parametrize(("changed", "expected"), FORGED_KINDS)
def test_a_trace_with_an_impossible_setting_is_refused_in_words(changed: dict[str, Any], expected: Refused) -> None:
    data = json.loads(trace_to_json(kinds_outcome(kinds_setting(lengths=HALVES), (2, 1), 3).trace))
    with pytest.raises(TraceError) as refused:
        trace_from_json(json.dumps(data | changed))
    expected.require(refused.value)


FORGED_COSTS: list[tuple[dict[str, Any], Refused]] = [
    ({"slow": {"one": "2"}}, Refused("not by rank", name="slow", got="one")),
    ({"slow": {"01": "2"}}, Refused("not by rank", name="slow", got="01")),
    ({"slow": {"1": "1/2"}}, Refused("impossible slowness", rank=1, most=1000000000, factor="1/2")),
    ({"kinds": {"head": [1, 2]}}, Refused("unreadable kind", fields="weight, inp, out, ticks", got=[1, 2])),
    (
        {"kinds": {"head": [0, None, None, {}]}},
        Refused("no number in bounds", name="Costs: the kind head: weight", minimum=1),
    ),
]


@pytest.mark.parametrize(("changed", "expected"), FORGED_COSTS)
def test_a_trace_with_impossible_costs_is_refused_in_words(changed: dict[str, Any], expected: Refused) -> None:
    data = json.loads(trace_to_json(kinds_outcome(kinds_setting(), (2, 1), 2).trace))
    data["costs"] |= changed
    with pytest.raises(TraceError) as refused:
        trace_from_json(json.dumps(data))
    expected.require(refused.value)


# --- Refusals ---


REFUSED_KINDS: list[tuple[Any, Refused]] = [
    (
        lambda: Setting(UNEVEN, kinds=("head", "block")),
        Refused(
            "kinds do not fit", layer=1, kind="block", takes=131072, previous=0, previous_kind="head", makes=262144
        ),
    ),
    (
        lambda: Setting(UNEVEN, kinds=("block", "embedding")),
        Refused("kinds do not fit", layer=1, kind="embedding", takes=256, previous=0, previous_kind="block"),
    ),
    (
        lambda: Setting(Costs("own", kinds={"head": Kind()}), kinds=("head", "block")),
        Refused("misplaced kind", layer=0, kind="head", where="last"),
    ),
    (
        lambda: Setting(Costs("own", kinds={"embedding": Kind()}), kinds=("block", "embedding")),
        Refused("misplaced kind", layer=1, kind="embedding", where="first"),
    ),
    (lambda: Setting(kinds="block"), Refused("no kinds", got="block")),
    (lambda: Setting(lengths=(0.5,)), Refused("no fraction", name="Setting: the length of a microbatch")),
    (lambda: Setting(lengths="1"), Refused("no lengths", got="1")),
    (lambda: Setting(lengths=(2,)), Refused("length out of bounds", length="2")),
    (
        lambda: Setting(replace(STAGES, gradient=3), lengths=(Fraction(1, 2),)),
        Refused("part of an element", length="1/2", elements=3),
    ),
    (lambda: Setting(layer="block", lengths=(1,)), Refused("only for dense layers", fields="lengths", layers="block")),
    (lambda: Costs(slow=[2]), Refused("slow not by rank", got=[2])),
    (lambda: Costs(slow={0: 0.5}), Refused("no fraction", name="Costs: slow of rank 0")),
    (lambda: Costs(kinds={"head": 3}), Refused("no kind", owner="Costs: the kind head", got=3)),
    (
        lambda: Costs(kinds={"head": Kind(-1)}),
        Refused("no number in bounds", name="Costs: the kind head: weight", minimum=1),
    ),
    (
        lambda: Costs(kinds={"head": Kind(ticks={"allreduce": 3})}),
        Refused(
            "kind without price", owner="Costs: the kind head", timed="forward, backward, loss, update", got="allreduce"
        ),
    ),
]


@pytest.mark.parametrize(("make", "expected"), REFUSED_KINDS, ids=[str(expected) for _, expected in REFUSED_KINDS])
def test_what_cannot_be_is_refused_in_words(make: Any, expected: Refused) -> None:
    with pytest.raises(RuleError) as refused:
        make()
    expected.require(refused.value)


def test_an_embedding_has_no_input_gradient() -> None:
    async def schedule(model: Model) -> None:
        weight, _ = model.load_weights(0)
        inp = model.get_activation([0])
        grad = model.loss(model.forward(0, inp, weight))
        model.backward_input(0, inp, grad, weight)

    costs = replace(COSTS["parts"], kinds={"embedding": EMBEDDING})
    error = run(schedule, 1, 1, 1, setting=Setting(costs, kinds=("embedding",))).error
    Refused("embedding has no input", layer=0).require(error)


def test_a_puzzle_names_the_lengths_that_differ() -> None:
    trace = kinds_outcome(kinds_setting(lengths=HALVES), (2, 1), 3).trace
    report = referee(trace, Goal("own", Size(3, 3, 2), 99, 10**9, setting=kinds_setting()))
    Refused("other setting", slug="own", setting="lengths ()").require(report.error)


# --- Replay ---


UNLIKE: dict[str, tuple[Setting, tuple[int, ...], int]] = {
    "kinds": (kinds_setting(3), (2, 3), 4),
    "lengths": (Setting(STAGES, lengths=HALVES), (1, 2), 3),
    "kinds, lengths and a slow rank": (
        Setting(replace(UNEVEN, slow={1: 2}), kinds=("embedding", "wide", "head"), lengths=HALVES),
        (1, 2),
        3,
    ),
    "kinds in halves": (
        Setting(
            replace(COSTS["parts"], kinds={"embedding": EMBEDDING, "head": HEAD_KIND}),
            kinds=("embedding", "block", "head"),
            lengths=HALVES,
        ),
        (1, 2),
        3,
    ),
}
"""Settings, the layers of each rank and microbatches, which `test_each_rule` plays."""


def test_a_replay_names_the_kinds_that_are_no_more_than_a_size() -> None:
    for name, (of, counts, batches) in UNLIKE.items():
        notes = replay(kinds_outcome(of, counts, batches).trace, small=True).notes
        assert any("kind wide" in note for note in notes) == ("slow" in name)


def test_a_replay_refuses_sizes_that_no_tensor_has() -> None:
    kinds = {"head": Kind(2 * W + 1, None, A), "odd": Kind(W, None, 2 * A), "takes": Kind(W, 2 * A)}
    costs = replace(STAGES, kinds=kinds)
    for names, words in (
        (("block", "head"), "V a multiple of 512"),
        (("odd", "takes"), "no tensors for the kind 'odd'"),
    ):
        with pytest.raises(TraceError, match=words):
            replay(kinds_outcome(Setting(costs, kinds=names), (1, 1), 2).trace, small=True)


# --- Pictures ---


@pytest.mark.slow
def test_a_picture_marks_slow_ranks_and_kinds() -> None:
    of = Setting(replace(UNEVEN, slow={1: Fraction(3, 2)}), kinds=("embedding", "block", "head"))
    trace = kinds_outcome(of, (2, 1), 3).trace
    text = drawing.text(trace)
    assert "rank 1, 3/2x slow" in text
    assert "F2H" in text
    assert "rank 1, 3/2x slow" in str(drawing.svg(drawing.draw(trace)))


# === A head that is cut by vocabulary ===


PARTS = COSTS["parts"]
CUT_HEAD = Kind(4 * W, None, 4 * A, dict.fromkeys(("forward", "backward_input", "backward_weight"), 40))
CUT = replace(PARTS, name="cut", ticks={**PARTS.ticks, "allreduce": 5}, kinds={"head": CUT_HEAD})
"""A head of four times the work of a layer, with 4 h token numbers: scores of 4 A."""


def cut_setting(blocks: int = 2, **more: Any) -> Setting:
    return Setting(CUT, kinds=("block",) * blocks + ("head",), **more)


class Head:
    """One rank with a shard of the head, and what it makes of a microbatch."""

    def __init__(self, model: Model, shard: int = 0, total: int = 0, batch: int = 0) -> None:
        self.model, self.layer = model, model.LAYERS - 1
        self.weight, self.state = model.load_weights(self.layer, shard, total or model.RANKS)
        self.inp = model.get_activation([batch])
        for layer in range(self.layer):
            self.inp = model.forward(layer, self.inp, model.load_weights(layer)[0])

    @property
    def grad(self) -> ActivationGrad:
        """What the loss makes of the scores."""
        return self.model.loss(self.model.forward(self.layer, self.inp, self.weight))

    def part(self) -> ActivationGrad:
        return self.model.backward_input(self.layer, self.inp, self.grad, self.weight)


async def data_parallel(model: Model) -> None:
    """Every rank computes all layers of every microbatch, but only its shard of the head; layer l is updated on rank l
    modulo the ranks."""
    head, ranks = model.LAYERS - 1, model.RANKS
    loaded = [model.load_weights(layer) for layer in range(head)] + [model.load_weights(head, model.rank, ranks)]
    grads: dict[int, Any] = {}
    for batch in range(model.BATCHES):
        inputs = [model.get_activation([batch])]
        for layer, (weight, _) in enumerate(loaded):
            inputs.append(model.forward(layer, inputs[-1], weight))
        known = model.loss(inputs[-1])
        part = model.backward_input(head, inputs[head], known, loaded[head][0])
        grad = await model.allreduce(part, head - 1) if ranks > 1 else part
        total = grad if ranks > 1 else None
        made = {head: model.backward_weight(head, inputs[head], known, total=total)}
        for layer in reversed(range(head)):
            made[layer], grad = model.backward(layer, inputs[layer], grad, loaded[layer][0])
        grads = {layer: grads.get(layer, 0) + made[layer] for layer in made}
    for layer, (weight, state) in enumerate(loaded):
        if layer in (head, model.rank) or layer % ranks == model.rank:
            model.set_final_weight(layer, model.update(layer, grads[layer], weight, state)[0])


def cut_outcome(of: Setting, batches: int = 2, ranks: int = 2) -> Outcome:
    return finished(data_parallel, len(of.kinds), batches, ranks, setting=of)


# --- Figures ---


def test_a_share_of_the_vocabulary_takes_that_share_of_time_and_memory() -> None:
    trace = cut_outcome(cut_setting(), batches=1, ranks=4).trace
    ticks = {op.name: op.end - op.start for op in trace.ranks[1] if op.end > op.start and op.layer in (None, 1, 2)}
    assert ticks == {
        "forward": 10, "backward_input": 10, "allreduce": 5, "backward_weight": 10, "backward": 20,
    }  # fmt: skip
    sizes: list[int] = []

    async def schedule(model: Model) -> None:
        head = Head(model, model.rank)
        scores = model.forward(head.layer, head.inp, head.weight)
        sizes.extend(value.memory(model._costs) for value in (head.weight, scores, model.loss(scores), head.part()))

    run(schedule, 3, 1, 4, setting=cut_setting())
    assert sizes[:4] == [W, A, A, A // 16]


def test_a_loss_with_a_price_takes_the_share_of_the_scores_too() -> None:
    priced = replace(CUT, kinds={"head": CUT_HEAD._replace(ticks={**CUT_HEAD.ticks, "loss": 20})})
    of = Setting(replace(priced, ticks=dict(CUT.ticks)), kinds=("block", "head"))
    trace = cut_outcome(of, batches=1, ranks=2).trace
    assert [op.end - op.start for op in trace.ranks[0] if op.name == "loss"] == [10]


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_the_weights_of_all_shards_are_complete(ranks: int) -> None:
    report = referee(cut_outcome(cut_setting(), batches=2, ranks=ranks).trace)
    assert report.status == "passed"
    assert report.traffic == 2 * (2 * (ranks - 1) * (A // 16) // ranks)


async def two_shards(model: Model) -> None:
    halves = [Head(model, shard, 2) for shard in range(2)]
    grads = [half.grad for half in halves]
    total: Any = sum(
        model.backward_input(1, half.inp, grad, half.weight) for half, grad in zip(halves, grads, strict=True)
    )
    weight, state = model.load_weights(0)
    own, _ = model.backward(0, model.get_activation([0]), total, weight)
    model.set_final_weight(0, model.update(0, own, weight, state)[0])
    for half, grad in zip(halves, grads, strict=True):
        made = model.backward_weight(1, half.inp, grad, total=total)
        model.set_final_weight(1, model.update(1, made, half.weight, half.state)[0])


# --- Refusals ---


def _no_total(head: Head) -> None:
    head.model.backward_weight(head.layer, head.inp, head.grad)


def _part_as_total(head: Head) -> None:
    head.model.backward_weight(head.layer, head.inp, head.grad, total=head.part())


def _total_of_others(head: Head) -> None:
    other = Head(head.model, 0, 2, batch=1)
    rest = Head(head.model, 1, 2, batch=1)
    head.model.backward_weight(head.layer, head.inp, head.grad, total=other.part() + rest.part())


def _scores_as_total(head: Head) -> None:
    head.model.backward_weight(head.layer, head.inp, head.grad, total=head.grad)


def _total_of_no_kind(head: Head) -> None:
    head.model.backward_weight(head.layer, head.inp, head.grad, total=head.inp)  # type: ignore[arg-type]


def _other_shard(head: Head) -> None:
    other = Head(head.model, 1, 2)
    head.model.backward_input(head.layer, head.inp, head.grad, other.weight)


def _full_scores(head: Head) -> None:
    full = Head(head.model, 0, 1)
    head.model.backward_input(head.layer, head.inp, full.grad, head.weight)


def _full_weight(head: Head) -> None:
    full = Head(head.model, 0, 1)
    head.model.backward(head.layer, head.inp, head.grad, full.weight)


def _whole_backward(head: Head) -> None:
    head.model.backward(head.layer, head.inp, head.grad, head.weight)


def _part_below(head: Head) -> None:
    weight, _ = head.model.load_weights(1)
    inp = head.model.forward(0, head.model.get_activation([0]), head.model.load_weights(0)[0])
    head.model.backward(1, inp, head.part(), weight)


def _total_of_a_full_head(head: Head) -> None:
    full = Head(head.model, 0, 1)
    head.model.backward_weight(head.layer, full.inp, full.grad, total=full.part())


def _cut_block(head: Head) -> None:
    weight, _ = head.model.load_weights(0, 1, 2)
    head.model.forward(0, head.model.get_activation([0]), weight)


def _same_part_twice(head: Head) -> None:
    part = head.part()
    part + part


def _scores_added(head: Head) -> None:
    head.grad + Head(head.model, 1, 2).grad


REFUSED_HEAD: list[tuple[Callable[[Head], None], Refused]] = [
    (_no_total, Refused("no total for scores", tokens="the vocabulary {0} of 2")),
    (_part_as_total, Refused("parts not added", parts="part 0 of 2 of a sum")),
    (_total_of_others, Refused("other total", layer=2, batches="batch 0 of 2")),
    (
        _scores_as_total,
        Refused(
            "other total",
            total="activation gradient for backward(2), batch 0 of 2, the vocabulary {0} of 2",
            layer=2,
            batches="batch 0 of 2",
        ),
    ),
    (
        _total_of_no_kind,
        Refused(
            "wrong kind for use",
            use="total",
            kind="an activation gradient",
            value="the input activation of layer 2, batch 0 of 2",
        ),
    ),
    (_other_shard, Refused("vocabulary differs", scores="the vocabulary {0} of 2", shards="shard 1 of 2")),
    (_full_scores, Refused("vocabulary differs", scores="the full vocabulary", shards="shard 0 of 2")),
    (_full_weight, Refused("vocabulary differs", scores="the vocabulary {0} of 2", shards="unsharded")),
    (_whole_backward, Refused("no total for shards", shards="shard 0 of 2")),
    (_part_below, Refused("parts not added", parts="part 0 of 2 of a sum")),
    (_total_of_a_full_head, Refused("total not needed")),
    (_cut_block, Refused("weight not gathered", shards="shard 1 of 2")),
    (_same_part_twice, Refused("parts in both", parts="part 0")),
    (_scores_added, Refused("values differ", verb="sum", differ="shards")),
]


@pytest.mark.parametrize(("what", "expected"), REFUSED_HEAD, ids=[what.__name__[1:] for what, _ in REFUSED_HEAD])
def test_what_a_cut_head_refuses(what: Callable[[Head], None], expected: Refused) -> None:
    async def schedule(model: Model) -> None:
        what(Head(model, 0, 2))

    error = run(schedule, 3, 2, 1, setting=cut_setting()).error
    assert isinstance(error, RuleError)
    expected.require(error)


def test_a_cut_head_needs_prices_of_both_halves() -> None:
    async def schedule(model: Model) -> None:
        Head(model, 0, 2).part()

    stages = Setting(replace(COSTS["stages"], kinds={"head": CUT_HEAD._replace(ticks={})}), kinds=("block", "head"))
    error = run(schedule, 2, 1, 1, setting=stages).error
    Refused("cut head not priced", costs="stages").require(error)


def test_an_all_reduce_takes_no_scores_and_no_gradient_of_a_full_head() -> None:
    async def scores(model: Model) -> None:
        await model.allreduce(Head(model, model.rank).grad, 2)

    async def full(model: Model) -> None:
        await model.allreduce(Head(model, 0, 1).part(), 1)

    Refused("values differ", verb="sum", differ="shards").require(run(scores, 3, 1, 2, setting=cut_setting()).error)
    Refused("wrong kind for use", use="the value to reduce", kind="a weight gradient").require(
        run(full, 3, 1, 2, setting=cut_setting()).error
    )


def test_values_by_hand_say_whether_a_cut_head_made_them() -> None:
    scores = Activation(3, 3, {0}, 2, shards={1}, total=4, vocabulary=True)  # type: ignore[arg-type]
    approved("vocabulary", "values by hand say whether a cut head made them", str(scores))
    assert not scores.is_complete()
    with Refused("vocabulary not boolean", got=1):
        ActivationGrad(1, 3, {0}, 2, vocabulary=1)  # type: ignore[arg-type]


# --- Notation, and forged traces ---


def _column(name: str, column: str, content: Callable[[Any], Any]) -> Callable[[dict[str, Any]], None]:
    def change(row: dict[str, Any]) -> None:
        if row["op"] == name and row["layer"] == 2:
            row[column] = content(row[column])

    return change


FORGED_HEAD: list[tuple[Callable[[dict[str, Any]], None], Refused]] = [
    (
        _column("backward_weight", "uses", lambda uses: uses[:2]),
        Refused("no total for scores", tokens="the vocabulary {0} of 2"),
    ),
    (
        _column("load_weights", "shard", lambda shard: 1),
        Refused("in both", thing="part", number=1, both="both rank 0 and rank 1"),
    ),
    (_column("forward", "at", lambda at: [at[0], at[0] + 40]), Refused("other ticks")),
]


@pytest.mark.parametrize(
    ("change", "expected"), FORGED_HEAD, ids=["no total", "another shard", "the time of a full head"]
)
def test_a_forged_trace_is_refused(change: Callable[[dict[str, Any]], None], expected: Refused) -> None:
    data = json.loads(trace_to_json(cut_outcome(cut_setting()).trace))
    for row in data["operations"][0]:
        change(row)
    expected.require(referee(trace_from_json(json.dumps(data))).error)


# --- Replay ---


TINY = replace(
    CUT, hidden=64, length=32, kinds={"head": CUT_HEAD._replace(weight=4 * 64 * 64, out=32 * 256)}, gradient=None
)


def test_a_replay_on_torch_gives_the_weights_of_one_device() -> None:
    pytest.importorskip("torch")
    pytest.importorskip("array_api_compat")
    trace = cut_outcome(Setting(TINY, kinds=("block", "block", "head"))).trace
    for small in (True, False):
        assert replay(trace, "torch", small).passed


# --- Pictures ---


def test_scores_are_drawn_with_their_share_of_the_vocabulary() -> None:
    scores = Activation(3, 3, {0}, 2, shards={1}, total=4, vocabulary=True)  # type: ignore[arg-type]
    approved(
        "vocabulary",
        "scores are drawn with their share of the vocabulary",
        drawing.svg(drawing.draw_value(scores)),
        "the vocabulary {1} of",
    )
