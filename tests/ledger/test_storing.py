"""What is wrong with a record of storing or deleting is refused, and of several refusals the first is given.

The referee follows what ranks store when all have gone as far as they can. So a trace is also executed with every
record checked where it comes: both must refuse the same, and leave the ranks at the same operations.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace as changed
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib import COSTS, Op, PuzzleError, Setting, Trace, Weight, referee, run
from lib.ledger.recomputation import Recomputation
from lib.ledger.trace import NO_BATCHES
from solutions.fsdp_prefetch import fsdp_prefetch
from tests.support import CLASSICS
from tests.support.examples import examples
from tests.support.refusals import Refused

BASIC = run(CLASSICS[0].solution, 2, 4, 1).trace
FSDP = next(classic for classic in CLASSICS if classic.slug == "fsdp")
TRACES = [
    BASIC,
    run(FSDP.solution, 2, 3, 3).trace,
    run(next(classic for classic in CLASSICS if classic.slug == "pipeline").solution, 3, 2, 3).trace,
    run(fsdp_prefetch, 3, 2, 2, setting=Setting(COSTS["overlap"])).trace,
]


def stores(trace: Trace, name: str = "store", rank: int = 0) -> int:
    """The index of a rank's first operation of a name."""
    return next(i for i, op in enumerate(trace.ranks[rank]) if op.name == name)


def with_row(trace: Trace, at: int, row: Op, rank: int = 0) -> Trace:
    ops = list(trace.ranks[rank])
    ops[at] = row
    return changed(trace, ranks=(*trace.ranks[:rank], tuple(ops), *trace.ranks[rank + 1 :]))


WRONG: list[tuple[dict[str, Any], Refused]] = [
    ({"start": 1, "end": 1}, Refused("takes no time", name="store")),
    ({"end": 1}, Refused("takes no time", name="store")),
    ({"layer": 0}, Refused("takes no time", name="store")),
    ({"batches": frozenset({0})}, Refused("takes no time", name="store")),
    ({"outputs": (2,)}, Refused("takes no time", name="store")),
    ({"args": ("weights", 0, 0)}, Refused("takes no time", name="store")),
    ({"inputs": [0]}, Refused("takes no time", name="store")),
    ({"inputs": ()}, Refused("senseless record")),
    ({"inputs": (99,)}, Refused("stored value not made", number=99)),
    ({"inputs": (-1,)}, Refused("stored value not made", number=-1)),
    ({"inputs": (4,)}, Refused("stored value not made", number=4)),
    ({"inputs": (1,)}, Refused("wrong dictionary", dictionary="weights", kind="an optimizer state")),
    ({"args": ("attic", 0)}, Refused("wrong dictionary", dictionary="attic", kind="a weight")),
    ({"args": ("weights", [])}, Refused("senseless record", why="unhashable type: 'list'")),
    ({"name": "delete", "inputs": ()}, Refused("nothing stored")),
    ({"name": "delete"}, Refused("nothing stored")),
]


@pytest.mark.parametrize(("wrong", "expected"), WRONG, ids=lambda given: str(given)[:50])
def test_a_wrong_record_is_refused_with_its_place(wrong: dict[str, Any], expected: Refused) -> None:
    at = stores(BASIC)
    error = referee(with_row(BASIC, at, BASIC.ranks[0][at]._replace(**wrong))).error
    assert error is not None
    expected.require(error)
    assert str(error).startswith("rank 0, t=0")


def test_a_deleted_value_is_deleted_once() -> None:
    at = stores(BASIC, "delete")
    ops = BASIC.ranks[0]
    error = referee(changed(BASIC, ranks=((*ops[: at + 1], ops[at], *ops[at + 1 :]),))).error
    Refused("nothing stored").require(error)


def test_what_a_call_makes_is_stored_after_it_is_awaited() -> None:
    trace = TRACES[-1]
    ops = trace.ranks[0]
    at = next(i for i, op in enumerate(ops) if op.name == "allgather" and ops[i + 1].name != "await")
    clock = next(op.start for op in ops[at + 1 :] if op.name not in ("allgather", "store", "delete"))
    early = Op("store", clock, clock, None, NO_BATCHES, ops[at].outputs, (), ("weights", "early"))
    awaited = next(i for i, op in enumerate(ops) if op.name == "await" and op.args == (at,))
    moved = [op._replace(args=(op.args[0] + (op.args[0] > at),)) if op.name == "await" else op for op in ops]
    error = referee(changed(trace, ranks=((*moved[: at + 1], early, *moved[at + 1 :]), *trace.ranks[1:]))).error
    assert awaited > at + 1
    Refused("still pending").require(error)


def test_what_no_operation_made_is_not_stored_in_a_puzzle() -> None:
    first, *others = BASIC.ranks[0]
    made = max(n for op in BASIC.ranks[0] for n in op.outputs) + 1
    end = others[-1].end
    ops = (first, *others, Op("given", end, end, outputs=(made,), args=(Weight(0, 2, 0),)))
    stored = Op("store", end, end, None, NO_BATCHES, (made,), (), ("weights", "given"))
    trace = changed(BASIC, ranks=((*ops, stored),))
    assert referee(trace).error is None
    Refused("made by hand").require(referee(trace, CLASSICS[0].goal).error)


def test_of_two_refusals_the_first_is_given() -> None:
    at = stores(BASIC)
    ops = list(BASIC.ranks[0])
    computed = stores(BASIC, "forward")
    ops[computed] = ops[computed]._replace(inputs=(99, 0))
    Refused("value not made", number=99).require(referee(changed(BASIC, ranks=(tuple(ops),))).error)
    ops[at] = ops[at]._replace(layer=0)
    assert at < computed
    Refused("takes no time", name="store").require(referee(changed(BASIC, ranks=(tuple(ops),))).error)


@pytest.mark.parametrize(("after", "expected"), [(0, Refused("values not numbered")), (1, Refused("senseless record"))])
def test_a_value_is_numbered_by_a_whole_number(after: int, expected: Refused) -> None:
    ops = BASIC.ranks[0]
    final, stored = ops[stores(BASIC, "set_final_weight")], ops[stores(BASIC)]
    end: dict[str, Any] = {"start": ops[-1].end, "end": ops[-1].end}
    again = final._replace(**{**end, "inputs": (float(final.inputs[0]),)})
    error = referee(changed(BASIC, ranks=((*ops, again, *[stored._replace(**end)] * after),))).error
    expected.require(error)


def other_record(draw: Random, op: Op, made: int) -> Op:
    """A record with one column changed."""
    changes: list[Callable[[], dict[str, Any]]] = [
        lambda: {"inputs": (draw.randrange(-1, made + 1),)},
        lambda: {"inputs": tuple(draw.randrange(made + 1) for _ in op.inputs)},
        lambda: {"args": (draw.choice(["weights", "opt_states", "activations"]), draw.randrange(3))},
        lambda: {"name": draw.choice(["store", "delete", "forward", "add"])},
        lambda: {"start": op.start + 1, "end": op.end + 1},
        lambda: {"layer": draw.choice([None, 0, 1])},
        lambda: {"inputs": ()},
    ]
    return op._replace(**draw.choice(changes)())


def altered(trace: Trace, draw: Random) -> Trace:
    """One to three records changed, dropped, repeated or moved; most of them store or delete."""
    ranks = [list(ops) for ops in trace.ranks]
    for _ in range(draw.randrange(1, 4)):
        ops = draw.choice(ranks)
        places = [i for i, op in enumerate(ops) if op.name in ("store", "delete") or draw.random() < 0.1]
        if not places:
            continue
        at, kind = draw.choice(places), draw.random()
        if kind < 0.6:
            ops[at] = other_record(draw, ops[at], sum(len(op.outputs) for op in ops))
        elif kind < 0.7:
            ops.insert(at, ops[at])
        elif kind < 0.8:
            ops.insert(draw.randrange(len(ops)), ops.pop(at))
        else:
            del ops[at]
    return changed(trace, ranks=tuple(map(tuple, ranks)))


def outcome(trace: Trace, in_order: bool) -> tuple[str, list[int], list[Any]]:
    """What is refused, how far each rank has come, and what it has stored by then."""
    recomputation = Recomputation(trace)
    if in_order:
        recomputation._begin(in_order=True)
    refused = ""
    try:
        recomputation.run()
    except PuzzleError as why:
        refused = f"{type(why).__name__} {why}"
    return (
        refused,
        [rank.at for rank in recomputation.ranks],
        [rank.liveness.lifetimes() for rank in recomputation.ranks],
    )


@examples(400)
@given(st.sampled_from(range(len(TRACES))), st.integers(0, 10**9))
def test_storage_that_is_followed_later_is_judged_as_if_in_order(which: int, seed: int) -> None:
    trace = altered(TRACES[which], Random(seed))
    assert outcome(trace, in_order=False) == outcome(trace, in_order=True)


def test_altered_records_are_refused_and_accepted() -> None:
    found = {
        outcome(altered(trace, Random(seed)), False)[0].partition(" ")[0] for trace in TRACES for seed in range(20)
    }
    assert found >= {"", "RuleError", "TraceError"}
