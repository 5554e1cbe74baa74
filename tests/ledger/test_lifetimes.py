"""Lifetimes agree with the plain definition: a value exists while it is stored, or still to be used."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib.ledger.lifetimes import lifetimes
from lib.ledger.trace import TIMED, Op
from tests.support.examples import examples

PLACES = [("weights", 0), ("weights", 1), ("activations", 0)]

Choice = tuple[str, int, int]
"""An operation that chance picks: its name, and two numbers that say which values or which place it takes."""

choices = st.lists(
    st.tuples(
        st.sampled_from(["load_weights", "forward", "forward", "add", "store", "store", "delete", "set_final_weight"]),
        st.integers(0, 5),
        st.integers(0, 5),
    ),
    min_size=8,
    max_size=25,
)


def operations(picked: list[Choice]) -> list[Op]:
    """One rank's operations: each uses only what was made, and deletes only what is stored."""
    made, full = 2, set()
    ops = [op("load_weights", made=(0, 1))]
    for name, a, b in picked:
        place = PLACES[b % len(PLACES)]
        if name == "load_weights":
            ops.append(op(name, made=(made, made + 1)))
            made += 2
        elif name == "delete" and place in full:
            ops.append(op(name, args=place))
            full.remove(place)
        elif name == "store":
            ops.append(op(name, (a % made,), args=place))
            full.add(place)
        elif name == "set_final_weight":
            ops.append(op(name, (a % made,)))
        elif name in ("forward", "add"):
            ops.append(op(name, (a % made, b % made), (made,)))
            made += 1
    return ops


def op(name: str, used: tuple[int, ...] = (), made: tuple[int, ...] = (), args: tuple[object, ...] = ()) -> Op:
    return Op(name, 0, 0, inputs=used, outputs=made, args=args)


def stored_before(ops: list[Op]) -> list[set[int]]:
    """The values that are stored just before each operation and, last, at the end."""
    places: dict[object, int] = {}
    before = [set(places.values())]
    for each in ops:
        if each.name == "store":
            places[each.args] = each.inputs[0]
        elif each.name == "delete":
            del places[each.args]
        before.append(set(places.values()))
    return before


def needed(ops: list[Op], at: int) -> Iterator[int]:
    """The values made before operation `at` that are stored then or later, are used then or later, or are final."""
    after = set[int]().union(*stored_before(ops)[at:], *(each.inputs for each in ops[at:]))
    final = {number for each in ops if each.name == "set_final_weight" for number in each.inputs}
    for each in ops[:at]:
        yield from (number for number in each.outputs if number in after | final)


@examples(400)
@given(choices)
def test_memory_is_that_of_the_definition(picked: list[Choice]) -> None:
    ops = operations(picked)
    events = [i for i, each in enumerate(ops) if each.name in TIMED]
    sizes = [2**number for number in range(2 * len(ops))]  # sums of them name the values
    lives = lifetimes(ops)
    assert (lives.events, lives.sampled(lives.held, sizes), lives.sampled(lives.stored, sizes)) == (
        events,
        [sum(sizes[number] for number in needed(ops, at)) for at in [*events, len(ops)]],
        [sum(sizes[number] for number in stored_before(ops)[at]) for at in [*events, len(ops)]],
    )


@examples(400)
@given(choices)
def test_hidden_is_what_an_event_passes_outside_the_dictionaries(picked: list[Choice]) -> None:
    ops = operations(picked)
    before = stored_before(ops)
    final = {number for each in ops if each.name == "set_final_weight" for number in each.inputs}
    hidden = {
        number
        for event, each in enumerate(ops)
        if each.name in TIMED
        for earlier in ops[:event]
        for number in earlier.outputs
        if number not in before[event] and any(number in later.inputs for later in ops[event + 1 :])
    }
    lives = lifetimes(ops)
    assert (lives.kept_outside, lives.stored_at_end) == (sorted(hidden - final), before[-1])


def test_an_empty_place_cannot_be_emptied() -> None:
    with pytest.raises(KeyError):
        lifetimes([op("delete", args=("weights", 0))])
