"""What the runtime does to be quick must not be seen: lines that are remembered, and values made without checks."""

from __future__ import annotations

import copy
import pickle
from dataclasses import FrozenInstanceError, fields
from pathlib import Path

import pytest

from lib import Dist, Model, Setting, Value, run
from lib.ledger.costs import Costs
from lib.ledger.recorder import player_line
from lib.ledger.values import (
    Activation,
    ActivationGrad,
    OptState,
    Parked,
    Weight,
    WeightGrad,
    unrecorded,
)
from tests.support import finished

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
