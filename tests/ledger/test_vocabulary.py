"""A head that is cut by vocabulary: what is refused, what is computed, in how much time and memory."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from drawing import draw_value, svg
from lib import (
    COSTS,
    Activation,
    ActivationGrad,
    Model,
    Outcome,
    RuleError,
    Setting,
    referee,
    run,
    trace_from_json,
    trace_to_json,
)
from lib.engine.replay.replay import replay
from lib.ledger.costs import Kind
from tests.screens.texts import approved
from tests.support import finished
from tests.support.refusals import Refused

W, A = 512 * 512, 512 * 256
PARTS = COSTS["parts"]
HEAD = Kind(4 * W, None, 4 * A, dict.fromkeys(("forward", "backward_input", "backward_weight"), 40))
CUT = replace(PARTS, name="cut", ticks={**PARTS.ticks, "allreduce": 5}, kinds={"head": HEAD})
"""A head of four times the work of a layer, with 4 h token numbers: scores of 4 A."""


def setting(blocks: int = 2, **more: Any) -> Setting:
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


def outcome(of: Setting, batches: int = 2, ranks: int = 2) -> Outcome:
    return finished(data_parallel, len(of.kinds), batches, ranks, setting=of)


# --- Figures ---


def test_a_share_of_the_vocabulary_takes_that_share_of_time_and_memory() -> None:
    trace = outcome(setting(), batches=1, ranks=4).trace
    ticks = {op.name: op.end - op.start for op in trace.ranks[1] if op.end > op.start and op.layer in (None, 1, 2)}
    assert ticks == {
        "forward": 10, "backward_input": 10, "allreduce": 5, "backward_weight": 10, "backward": 20,
    }  # fmt: skip
    sizes: list[int] = []

    async def schedule(model: Model) -> None:
        head = Head(model, model.rank)
        scores = model.forward(head.layer, head.inp, head.weight)
        sizes.extend(value.memory(model._costs) for value in (head.weight, scores, model.loss(scores), head.part()))

    run(schedule, 3, 1, 4, setting=setting())
    assert sizes[:4] == [W, A, A, A // 16]


def test_a_loss_with_a_price_takes_the_share_of_the_scores_too() -> None:
    priced = replace(CUT, kinds={"head": HEAD._replace(ticks={**HEAD.ticks, "loss": 20})})
    of = Setting(replace(priced, ticks=dict(CUT.ticks)), kinds=("block", "head"))
    trace = outcome(of, batches=1, ranks=2).trace
    assert [op.end - op.start for op in trace.ranks[0] if op.name == "loss"] == [10]


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_the_weights_of_all_shards_are_complete(ranks: int) -> None:
    report = referee(outcome(setting(), batches=2, ranks=ranks).trace)
    assert report.status == "passed"
    assert report.traffic == 2 * (2 * (ranks - 1) * (A // 16) // ranks)


def test_one_rank_may_hold_several_shards_and_add_their_parts() -> None:
    assert run(_two_shards, 2, 1, 1, setting=setting(1)).error is None
    assert replay(run(_two_shards, 2, 1, 1, setting=setting(1)).trace, small=True).passed


async def _two_shards(model: Model) -> None:
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


REFUSED: list[tuple[Callable[[Head], None], Refused]] = [
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


@pytest.mark.parametrize(("what", "expected"), REFUSED, ids=[what.__name__[1:] for what, _ in REFUSED])
def test_what_a_cut_head_refuses(what: Callable[[Head], None], expected: Refused) -> None:
    async def schedule(model: Model) -> None:
        what(Head(model, 0, 2))

    error = run(schedule, 3, 2, 1, setting=setting()).error
    assert isinstance(error, RuleError)
    expected.require(error)


def test_a_cut_head_needs_prices_of_both_halves() -> None:
    async def schedule(model: Model) -> None:
        Head(model, 0, 2).part()

    stages = Setting(replace(COSTS["stages"], kinds={"head": HEAD._replace(ticks={})}), kinds=("block", "head"))
    error = run(schedule, 2, 1, 1, setting=stages).error
    Refused("cut head not priced", costs="stages").require(error)


def test_an_all_reduce_takes_no_scores_and_no_gradient_of_a_full_head() -> None:
    async def scores(model: Model) -> None:
        await model.allreduce(Head(model, model.rank).grad, 2)

    async def full(model: Model) -> None:
        await model.allreduce(Head(model, 0, 1).part(), 1)

    Refused("values differ", verb="sum", differ="shards").require(run(scores, 3, 1, 2, setting=setting()).error)
    Refused("wrong kind for use", use="the value to reduce", kind="a weight gradient").require(
        run(full, 3, 1, 2, setting=setting()).error
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


FORGED: list[tuple[Callable[[dict[str, Any]], None], Refused]] = [
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


@pytest.mark.parametrize(("change", "expected"), FORGED, ids=["no total", "another shard", "the time of a full head"])
def test_a_forged_trace_is_refused(change: Callable[[dict[str, Any]], None], expected: Refused) -> None:
    data = json.loads(trace_to_json(outcome(setting()).trace))
    for row in data["operations"][0]:
        change(row)
    expected.require(referee(trace_from_json(json.dumps(data))).error)


# --- Replay ---


TINY = replace(
    CUT, hidden=64, length=32, kinds={"head": HEAD._replace(weight=4 * 64 * 64, out=32 * 256)}, gradient=None
)


def test_a_replay_on_torch_gives_the_weights_of_one_device() -> None:
    pytest.importorskip("torch")
    pytest.importorskip("array_api_compat")
    trace = outcome(Setting(TINY, kinds=("block", "block", "head"))).trace
    for small in (True, False):
        assert replay(trace, "torch", small).passed


# --- Pictures ---


def test_scores_are_drawn_with_their_share_of_the_vocabulary() -> None:
    scores = Activation(3, 3, {0}, 2, shards={1}, total=4, vocabulary=True)  # type: ignore[arg-type]
    approved(
        "vocabulary",
        "scores are drawn with their share of the vocabulary",
        svg(draw_value(scores)),
        "the vocabulary {1} of",
    )
