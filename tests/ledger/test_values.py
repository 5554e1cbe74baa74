"""The laws of the values: what is split and joined again is the same, and nothing is counted twice."""

from __future__ import annotations

from dataclasses import FrozenInstanceError
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib import HIDDEN, LENGTH, Activation, ActivationGrad, OptState, PuzzleError, Weight, WeightGrad
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
