"""Values: laws of splitting and joining, labels, memory, and shortcuts of the runtime that must not be seen."""

import copy
import pickle
from dataclasses import FrozenInstanceError, fields
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib import (
    HIDDEN,
    LENGTH,
    Activation,
    ActivationGrad,
    Dist,
    Model,
    OptState,
    PuzzleError,
    Setting,
    Value,
    Weight,
    WeightGrad,
    run,
)
from lib.ledger.costs import Costs
from lib.ledger.recorder import player_line
from lib.ledger.values import Parked, unrecorded
from tests.support import finished
from tests.support.refusals import Refused

WEIGHT = HIDDEN * HIDDEN

weights = st.builds(
    lambda kind, layer, step: kind(layer, 4, step),
    st.sampled_from([Weight, OptState]),
    st.integers(0, 3),
    st.integers(0, 1),
)
batch_sets = st.sets(st.integers(0, 7))
grads = st.builds(lambda layer, batches: WeightGrad(layer, 4, batches, 8), st.integers(0, 3), batch_sets)


def split(value: Any, n: int) -> list[Any]:
    return [value.shard(i, n) for i in range(n)]


def combined(parts: list[Any]) -> Any:
    whole = parts[0]
    for part in parts[1:]:
        whole = whole.combine(part)
    return whole


@given(weights | grads, st.integers(1, 9))
def test_shard_then_combine_gives_all_shards_again(value: Any, n: int) -> None:
    whole = combined(split(value, n))
    assert (whole.shards, whole.total, whole.label()[:-2]) == (frozenset(range(n)), n, value.label()[:-2])


@given(weights | grads, st.integers(1, 9))
def test_shards_share_the_memory_exactly(value: Any, n: int) -> None:
    assert sum(part.memory() for part in split(value, n)) == value.memory() == WEIGHT


@given(weights, st.integers(1, 6), st.integers(1, 6))
def test_a_shard_of_a_shard_is_a_shard(value: Any, n: int, m: int) -> None:
    for i in range(n):
        for j in range(m):
            assert value.shard(i, n).shard(i * m + j, n * m) == value.shard(i * m + j, n * m)


@given(st.permutations(range(5)), weights)
def test_combining_does_not_depend_on_the_order(order: list[int], value: Any) -> None:
    parts = split(value, 5)
    assert combined([parts[i] for i in order]) == combined(parts)


def test_sum_starts_from_zero_and_from_nothing_else() -> None:
    grads = [WeightGrad(0, 1, {batch}, 3) for batch in range(3)]
    assert sum(grads) == WeightGrad(0, 1, {0, 1, 2}, 3)
    for start in (1, 0.0, False, "0"):
        with pytest.raises(TypeError):
            start + grads[0]


@given(batch_sets, batch_sets, batch_sets)
def test_a_sum_counts_each_batch_once_or_refuses(a: set[int], b: set[int], c: set[int]) -> None:
    x, y, z = (WeightGrad(0, 1, batches, 8) for batches in (a, b, c))
    if a & b or (a | b) & c:
        with Refused("in both", thing="batch"):
            x + y + z
    else:
        assert x + y + z == z + (y + x) == WeightGrad(0, 1, a | b | c, 8)


def test_a_zero_changes_nothing() -> None:
    grad = WeightGrad(0, 1, {2}, 4)
    assert grad + WeightGrad(0, 1, [], 4) == grad


def test_kinds_with_equal_fields_are_not_equal() -> None:
    assert Weight(0, 1, 0) != OptState(0, 1, 0)
    assert Activation(0, 1, {0}, 1) != ActivationGrad(0, 1, {0}, 1)


def test_a_value_cannot_be_changed_and_keeps_no_link_to_what_it_was_built_from() -> None:
    batches = {0}
    grad = WeightGrad(0, 1, batches, 4)
    batches.add(1)
    assert grad.batches == {0}
    with pytest.raises(FrozenInstanceError):
        grad.layer = 1  # type: ignore[misc]


MEMORY = [
    (Weight(0, 2, 0), WEIGHT),
    (OptState(1, 2, 1, {0, 1}, 4), WEIGHT // 2),
    (WeightGrad(0, 2, [], 4), WEIGHT),
    (WeightGrad(0, 2, {0, 1, 2}, 4, {3}, 4), WEIGHT // 4),
    (Activation(0, 2, {0}, 4), HIDDEN * LENGTH),
    (Activation(2, 2, {0, 1, 3}, 4), 3 * HIDDEN * LENGTH),
    (ActivationGrad(-1, 2, {0, 1}, 4), 2 * HIDDEN * LENGTH),
]


@pytest.mark.parametrize(("value", "elements"), MEMORY)
def test_memory_in_elements(value: Any, elements: int) -> None:
    assert value.memory() == elements


SHOWN = [
    (Weight(0, 2, 0), "weight of layer 0, unsharded, step 0"),
    (Weight(0, 2, 1, {0, 1, 2, 3}, 4), "weight of layer 0, unsharded (all 4 shards), step 1"),
    (OptState(1, 2, 0, {2}, 4), "optimizer state of layer 1, shard 2 of 4, step 0"),
    (
        WeightGrad(0, 2, {0, 1, 2, 6}, 8, {0, 1, 2}, 4),
        "weight gradient of layer 0, batches 0-2, 6 of 8, shards 0-2 of 4",
    ),
    (WeightGrad(0, 2, [], 8), "weight gradient of layer 0, no batches (zero), unsharded"),
    (Activation(1, 2, {3}, 4), "input activation of layer 1, batch 3 of 4"),
    (Activation(2, 2, {3}, 4), "activation after the last layer, batch 3 of 4"),
    (ActivationGrad(1, 2, {0, 1}, 4), "activation gradient for backward(1), batches 0, 1 of 4"),
    (ActivationGrad(-1, 2, {0}, 4), "activation gradient of the model's input, which nothing needs, batch 0 of 4"),
]


@pytest.mark.parametrize(("value", "text"), SHOWN)
def test_what_is_shown_agrees_with_the_label(value: Any, text: str) -> None:
    assert str(value) == text


COMPLETE = [
    (Weight(0, 1, 0), True),
    (Weight(0, 1, 0, {0}, 2), False),
    (WeightGrad(0, 1, {0, 1}, 2), True),
    (WeightGrad(0, 1, {0}, 2), False),
    (WeightGrad(0, 1, {0, 1}, 2, {0}, 2), False),
    (Activation(0, 1, {0, 1}, 2), True),
    (Activation(0, 1, {0}, 2), False),
]


@pytest.mark.parametrize(("value", "complete"), COMPLETE)
def test_complete_means_that_nothing_is_missing(value: Any, complete: bool) -> None:
    assert value.is_complete() is complete


BAD = [
    (lambda: Weight(2, 2, 0), Refused("does not exist", thing="layer", number=2, limit=2)),
    (lambda: Weight(-1, 2, 0), Refused("does not exist", thing="layer", number=-1)),
    (lambda: Weight(0, 0, 0), Refused("too small", thing="layers", least=1, got=0)),
    (lambda: Weight(0, 1, -1), Refused("too small", thing="step", least=0, got=-1)),
    (lambda: Weight(0, 1, 0, {4}, 4), Refused("does not exist", thing="shard", number=4, limit=4)),
    (lambda: Weight(0, 1, 0, [], 4), Refused("no shards", owner="Weight")),
    (lambda: OptState(0, 1, 0, [1, 1], 4), Refused("listed twice", thing="shard", number=1)),
    (lambda: WeightGrad(0, 1, {4}, 4), Refused("does not exist", thing="batch", number=4, limit=4)),
    (lambda: WeightGrad(0, 1, 0, 4), Refused("no list", things="batches")),
    (lambda: WeightGrad(0, 1, {0.5}, 4), Refused("no whole number", thing="batch", got="0.5")),
    (lambda: Activation(3, 2, {0}, 1), Refused("no layer", owner="Activation", layer=3)),
    (lambda: Activation(0, 2, [], 1), Refused("no batches", owner="Activation")),
    (lambda: ActivationGrad(2, 2, {0}, 1), Refused("no layer", owner="ActivationGrad", layer=2, layers=2)),
    (lambda: ActivationGrad(-2, 2, {0}, 1), Refused("no layer", owner="ActivationGrad", layer=-2, layers=2)),
]


@pytest.mark.parametrize(("build", "expected"), BAD)
def test_a_value_that_cannot_exist_is_not_built(build: Any, expected: Refused) -> None:
    with pytest.raises(PuzzleError) as why:
        build()
    expected.require(why.value)


def test_numpy_numbers_become_plain_ones() -> None:
    import numpy

    grad = WeightGrad(numpy.int64(0), 1, numpy.arange(2), 4)
    assert repr(grad) == "WeightGrad(0, 1, {0, 1}, 4, {0}, 1)"


def test_adding_something_else_is_a_type_error() -> None:
    with pytest.raises(TypeError):
        WeightGrad(0, 1, {0}, 4) + 1  # type: ignore[operator]


# === Lines that are remembered, and values made without checks ===


HERE = Path(__file__)


# --- The line of a call ---


async def steps_on_lines(model: Model) -> None:
    weight, state = model.load_weights(0)
    inp = model.get_activation([0])
    for _ in range(3):
        out = model.forward(0, inp, weight)
    grad = model.loss(out)
    weight_grad = model.backward(0, inp, grad, weight)[0] + model.fake_grad(0, [])
    weight_grad = await model.allreduce(weight_grad, 0)
    weight, state = model.update(
        0,
        weight_grad,
        weight,
        state,
    )
    model.set_final_weight(0, weight)


def test_every_operation_has_the_line_that_it_is_called_on() -> None:
    source = HERE.read_text(encoding="utf-8").splitlines()
    for _ in range(2):  # the second time from memory
        outcome = finished(steps_on_lines, 1, 1, 1)
        shown = {op.name: source[op.line - 1] for op in outcome.trace.ranks[0]}
        assert shown.pop("add").strip().startswith("weight_grad = ")
        assert [name for name, line in shown.items() if f"model.{name}(" not in line] == []


def test_equal_code_on_other_lines_has_lines_of_its_own() -> None:
    def text(lines_before: int) -> str:
        return "\n" * lines_before + "def load(model):\n    return model.load_weights(0)\n"

    lines = []
    for before in (0, 7, 0, 300):
        scope: dict[str, object] = {}
        exec(text(before), scope)
        outcome = run(scope["load"])  # type: ignore[arg-type]  # a schedule
        lines.append(outcome.trace.ranks[0][0].line)
    assert lines == [2, 9, 2, 302]


def test_a_line_is_found_from_any_depth_below_the_player() -> None:
    """A caller says how far away the player's code is at least; there may be more calls of the library in between."""
    scope: dict[str, object] = {"__package__": "lib.ledger", "player_line": player_line}
    exec("def far():\n    return near()\ndef near():\n    return player_line(1)\n", scope)
    here = scope["near"]() - scope["far"]()  # type: ignore[operator]  # functions
    assert here == 0


# --- Elements stored now ---


def test_memory_is_what_is_stored_each_value_once() -> None:
    costs = Costs(hidden=8, length=4)
    model = Model(0, Dist(2, setting=Setting(costs)), layers=2, batches=3)
    weight, state = model.load_weights(0, 1, 2)
    batches = model.get_activation([0, 2])
    assert model.memory() == 0
    model.weights["a"] = model.weights["b"] = weight
    assert model.memory() == 8 * 8 // 2
    model.opt_states[0] = state
    model.activations[0] = batches
    assert model.memory() == 2 * (8 * 8 // 2) + 2 * 8 * 4
    del model.weights["a"]
    assert model.memory() == 2 * (8 * 8 // 2) + 2 * 8 * 4
    del model.weights["b"], model.activations[0]
    assert model.memory() == 8 * 8 // 2


# --- Values made without checks ---

WHOLE = frozenset({0})
CHECKED = [
    Weight(1, 4, 0),
    Weight(1, 4, 1, frozenset({2, 3}), 8),
    OptState(0, 4, 1, WHOLE, 2),
    WeightGrad(3, 4, frozenset({0, 5}), 6, frozenset({1}), 2, 1),
    Activation(4, 4, frozenset({1}), 2),
    ActivationGrad(-1, 4, frozenset({0, 1}), 2, 0, frozenset({1}), 2, WHOLE, 1),
    Parked(Weight(1, 4, 0), "host"),
]


@pytest.mark.parametrize("checked", CHECKED, ids=repr)
def test_a_value_made_without_checks_is_as_a_checked_one(checked: Value) -> None:
    kind = type(checked)
    label = [getattr(checked, field.name) for field in fields(checked)]  # type: ignore[arg-type]  # a dataclass
    for value in (kind.made(*label), checked.copied(), checked.copied(), pickle.loads(pickle.dumps(checked))):
        assert type(value) is kind
        assert value is not checked
        assert (value, hash(value), repr(value), str(value)) == (checked, hash(checked), repr(checked), str(checked))
        assert value.label() == checked.label()
        assert value.memory() == checked.memory()
        assert copy.deepcopy(value) is copy.copy(value) is value
        assert pickle.loads(pickle.dumps(value)) == checked
        assert eval(repr(value)) == checked
        for field in fields(value):  # type: ignore[arg-type]  # as above
            with pytest.raises(FrozenInstanceError):
                setattr(value, field.name, None)
            with pytest.raises(FrozenInstanceError):
                delattr(value, field.name)
        with pytest.raises((AttributeError, TypeError)):
            value.other = 1  # type: ignore[attr-defined]


@pytest.mark.parametrize("checked", CHECKED, ids=repr)
def test_a_value_differs_from_one_with_another_field(checked: Value) -> None:
    name = "tier" if isinstance(checked, Parked) else "layer"
    changed = checked.copied(**{name: "disk" if name == "tier" else 2})
    assert changed != checked
    assert getattr(changed, name) in ("disk", 2)
    assert len({changed, checked, checked.copied()}) == 2


def test_a_copy_belongs_to_no_record() -> None:
    own, _ = Model().load_weights(0)
    assert unrecorded(own) is not own
    assert unrecorded(own) == own
    fresh = Weight(0, 2, 0)
    assert unrecorded(fresh) is fresh


def test_a_printed_dictionary_names_values_as_messages_do() -> None:
    model = Model()
    model.weights[0], _ = model.load_weights(0)
    assert repr(model.weights) == f"{{0: {model.weights[0]}}}"
