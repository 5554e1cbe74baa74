"""Kinds of layers, slow ranks and lengths of microbatches: sizes, times, notation, refusals, replay and pictures."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

import drawing
from lib import COSTS, Costs, Goal, Model, Outcome, RuleError, Setting, Size, TraceError, referee, run
from lib.engine.replay.replay import replay
from lib.ledger.costs import Kind
from lib.ledger.trace_json import trace_from_json, trace_to_json
from tests.support import finished
from tests.support.mutants import zeroed
from tests.support.refusals import Refused
from tests.support.schedules.splits import uneven

W, A = 512 * 512, 512 * 256
STAGES = COSTS["stages"]
EMBEDDING = Kind(2 * W, 256, None, {"forward": 0, "backward": 0})
HEAD = Kind(2 * W, None, 256 * 1024, {"forward": 20, "backward": 40})
UNEVEN = replace(STAGES, name="uneven", kinds={"embedding": EMBEDDING, "head": HEAD, "wide": Kind(3 * W)})
HALVES = Fraction(1), Fraction(3, 4), Fraction(1, 2)


def setting(blocks: int = 1, **more: Any) -> Setting:
    return Setting(UNEVEN, kinds=("embedding", *["block"] * blocks, "head"), **more)


def outcome(of: Setting, counts: tuple[int, ...], batches: int) -> Outcome:
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
    report = referee(outcome(setting(8), counts, 8).trace)
    assert report.timesteps == time
    assert report.traffic == 8 * (A + 8192)
    if memory is not None:  # a player deletes what is needed no longer; values outside the dictionaries weigh the same
        assert report.peak.memory <= 1.02 * memory


def test_a_computation_is_rounded_up_for_each_microbatch_and_then_for_a_slow_rank() -> None:
    costs = replace(STAGES, ticks={**STAGES.ticks, "forward": 3, "update": 5}, slow={0: Fraction(3, 2)})
    model = run(_one_layer, 1, 2, 1, setting=Setting(costs, lengths=(1, Fraction(1, 2))))
    assert model.error is None
    ticks = {op.name: op.end - op.start for op in model.trace.ranks[0]}
    assert ticks["forward"] == 5 + 3  # 3 x 3/2 is 4.5; 3/2 is 2 ticks, and 2 x 3/2 is 3
    assert ticks["backward"] == 30 + 15
    assert ticks["update"] == 8


async def _one_layer(model: Model) -> None:
    weight, state = model.load_weights(0)
    inp = model.get_activation([0, 1])
    grad, _ = model.backward(0, inp, model.loss(model.forward(0, inp, weight)), weight)
    model.set_final_weight(0, model.update(0, grad, weight, state)[0])


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

    assert isinstance(run(schedule, 3, 3, 1, setting=setting(lengths=HALVES)).error, (type(None), Exception))
    assert sizes == {
        "weight": 2 * W, "tokens": 128, "embedded": A // 2, "logits": 256 * 512, "grad": 2 * W,
        "logits_grad": 256 * 512, "before": 4096,
    }  # fmt: skip


# --- Notation ---


def test_a_trace_writes_kinds_lengths_and_slow_ranks_and_the_referee_reads_them() -> None:
    of = setting(lengths=HALVES)
    of = Setting(replace(of.costs, slow={1: Fraction(3, 2)}), kinds=of.kinds, lengths=of.lengths)
    trace = outcome(of, (2, 1), 3).trace
    text = trace_to_json(trace)
    assert trace_from_json(text) == trace
    assert referee(trace_from_json(text), Goal("any", trace.size, 999, 10**9, setting=of)).status == "passed"
    data = json.loads(text)
    assert (data["kinds"], data["lengths"]) == (["embedding", "block", "head"], ["1", "3/4", "1/2"])
    assert data["costs"]["slow"] == {"1": "3/2"}
    assert data["costs"]["kinds"]["embedding"] == [2 * W, 256, None, {"forward": 0, "backward": 0}]
    default = json.loads(trace_to_json(run(_one_layer, 1, 2, 1).trace))
    assert not {"kinds", "lengths"} & default.keys()


FORGED: list[tuple[dict[str, Any], Refused]] = [
    ({"kinds": ["embedding", "wing", "head"]}, Refused("unknown kind", layer=1, kind="wing", costs="uneven")),
    ({"kinds": ["embedding", "head"]}, Refused("setting of other size", name="kinds", given=2, what="layers", count=3)),
    ({"kinds": "head"}, Refused("unreadable list", name="kinds")),
    ({"lengths": ["1", "1"]}, Refused("setting of other size", name="lengths", given=2, what="batches", count=3)),
    ({"lengths": ["1", "1/3", "1"]}, Refused("part of a token", length="1/3", tokens=256)),
    ({"lengths": ["1", 0.5, "1"]}, Refused("unreadable fraction", name="lengths", got=0.5)),
    ({"lengths": ["1", "0", "1"]}, Refused("length out of bounds", length="0")),
]


@pytest.mark.parametrize(("changed", "expected"), FORGED)
def test_a_trace_with_an_impossible_setting_is_refused_in_words(changed: dict[str, Any], expected: Refused) -> None:
    data = json.loads(trace_to_json(outcome(setting(lengths=HALVES), (2, 1), 3).trace))
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
    data = json.loads(trace_to_json(outcome(setting(), (2, 1), 2).trace))
    data["costs"] |= changed
    with pytest.raises(TraceError) as refused:
        trace_from_json(json.dumps(data))
    expected.require(refused.value)


# --- Refusals ---


REFUSED: list[tuple[Any, Refused]] = [
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


@pytest.mark.parametrize(("make", "expected"), REFUSED, ids=[str(expected) for _, expected in REFUSED])
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
    trace = outcome(setting(lengths=HALVES), (2, 1), 3).trace
    report = referee(trace, Goal("own", Size(3, 3, 2), 99, 10**9, setting=setting()))
    Refused("other setting", slug="own", setting="lengths ()").require(report.error)


# --- Replay ---


SMALL_SETTINGS = {
    "kinds": (setting(3), (2, 3), 4),
    "lengths": (Setting(STAGES, lengths=HALVES), (1, 2), 3),
    "kinds, lengths and a slow rank": (
        Setting(replace(UNEVEN, slow={1: 2}), kinds=("embedding", "wide", "head"), lengths=HALVES),
        (1, 2),
        3,
    ),
    "halves": (
        Setting(
            replace(COSTS["parts"], kinds={"embedding": EMBEDDING, "head": HEAD}),
            kinds=("embedding", "block", "head"),
            lengths=HALVES,
        ),
        (1, 2),
        3,
    ),
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", SMALL_SETTINGS)
@pytest.mark.parametrize("small", [True, False])
def test_a_replay_gives_the_weights_of_one_device_in_the_predicted_memory(name: str, small: bool) -> None:
    of, counts, batches = SMALL_SETTINGS[name]
    if not small:  # narrower layers, with the same multiples
        narrow = {
            k: v._replace(weight=v.weight and v.weight // 64, inp=v.inp and 32) for k, v in of.costs.kinds.items()
        }
        narrow = {k: v._replace(out=v.out and 32 * 128) for k, v in narrow.items()}
        of = Setting(replace(of.costs, hidden=64, length=32, kinds=narrow), kinds=of.kinds, lengths=of.lengths)
    result = replay(outcome(of, counts, batches).trace, small=small)
    assert result.passed, (result.error, result.ranks)
    assert any("kind wide" in note for note in result.notes) == ("wide" in of.kinds)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", ["kinds", "lengths"])
def test_zeroing_any_one_result_changes_the_weights_of_a_replay(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    of, counts, batches = SMALL_SETTINGS[name]
    trace = outcome(of, counts, batches).trace
    for operation in ("forward", "loss", "backward", "add", "update"):
        with zeroed(monkeypatch, operation, 2):
            assert not replay(trace, small=True).same_weights, operation


def test_a_replay_refuses_sizes_that_no_tensor_has() -> None:
    kinds = {"head": Kind(2 * W + 1, None, A), "odd": Kind(W, None, 2 * A), "takes": Kind(W, 2 * A)}
    costs = replace(STAGES, kinds=kinds)
    for names, words in (
        (("block", "head"), "V a multiple of 512"),
        (("odd", "takes"), "no tensors for the kind 'odd'"),
    ):
        with pytest.raises(TraceError, match=words):
            replay(outcome(Setting(costs, kinds=names), (1, 1), 2).trace, small=True)


# --- Pictures ---


@pytest.mark.slow
def test_a_picture_marks_slow_ranks_and_kinds() -> None:
    of = Setting(replace(UNEVEN, slow={1: Fraction(3, 2)}), kinds=("embedding", "block", "head"))
    trace = outcome(of, (2, 1), 3).trace
    text = drawing.text(trace)
    assert "rank 1, 3/2x slow" in text
    assert "F2H" in text
    assert "rank 1, 3/2x slow" in str(drawing.svg(drawing.draw(trace)))
