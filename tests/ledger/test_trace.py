"""A trace is complete: it reads back the same, and nothing in it can be changed without being noticed."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib import Model, Op, Report, Trace, TraceError, WeightGrad, referee, run, trace_from_json, trace_to_json
from lib.ledger.trace import FORMS
from tests.support import CLASSICS
from tests.support.examples import examples
from tests.support.refusals import Refused, edited

TRACES = {classic.slug: run(classic.solution, *classic.size).trace for classic in CLASSICS}
REPORTS = {slug: referee(trace) for slug, trace in TRACES.items()}

slugs = st.sampled_from(sorted(TRACES))


def exploring() -> Trace:
    """A trace with the records that no solution has: given values, odd keys, every operation on values."""
    model = Model(layers=2, batches=2)
    made_up = WeightGrad(0, 2, {0}, 2, {0, 1}, 4)
    model.grad_weights['a "key"', -1, (2, None)] = made_up + model.fake_grad(0, [1]).shard(0, 2).shard(0, 4).combine(
        model.fake_grad(0, [1]).shard(1, 4)
    )
    return model.run.trace()


@pytest.mark.sampled(3)
@pytest.mark.parametrize("slug", TRACES)
def test_reads_back_the_same_from_json(slug: str) -> None:
    trace = TRACES[slug]
    assert trace_from_json(trace_to_json(trace)) == trace
    assert referee(trace_from_json(trace_to_json(trace))) == REPORTS[slug]


def test_hand_made_values_and_odd_keys_read_back_the_same() -> None:
    trace = exploring()
    assert {op.name for op in trace.ranks[0]} == {"given", "fake_grad", "shard", "combine", "add", "store"}
    assert trace_from_json(trace_to_json(trace)) == trace


# --- Nothing in it can be changed unnoticed ---------------------------------------------------------


def scored(report: Report) -> Any:
    """Everything a report says of a legal run; None for one that is refused."""
    return None if report.error else (report.timesteps, report.makespan, report.peak, report.ranks, report.copies)


def without(trace: Trace, rank: int, i: int) -> Trace:
    return edited(trace, lambda ops: [*ops[:i], *ops[i + 1 :]], rank)


def noticed(slug: str, changed: Trace) -> bool:
    try:
        changed = trace_from_json(trace_to_json(changed))
    except TraceError:
        return True
    return scored(referee(changed)) != scored(REPORTS[slug])


def operations(trace: Trace) -> list[tuple[int, int]]:
    """The indices of the operations; storing and deleting are bookkeeping, of which a run may have too much."""
    return [
        (rank, i)
        for rank, ops in enumerate(trace.ranks)
        for i, op in enumerate(ops)
        if op.name not in ("store", "delete")
    ]


@pytest.mark.slow
@examples(200)
@given(slugs, st.integers(0, 10**6))
def test_an_operation_that_is_removed_is_missed(slug: str, seed: int) -> None:
    rank, i = random.Random(seed).choice(operations(TRACES[slug]))
    assert noticed(slug, without(TRACES[slug], rank, i)), TRACES[slug].ranks[rank][i]


@examples(200)
@given(slugs, st.integers(0, 10**6))
def test_an_operation_before_what_it_needs_is_refused(slug: str, seed: int) -> None:
    draw = random.Random(seed)
    rank, i = draw.choice([(r, i) for r, i in operations(TRACES[slug]) if TRACES[slug].ranks[r][i].inputs])
    ops = TRACES[slug].ranks[rank]
    source = next(j for j, op in enumerate(ops) if set(op.outputs) & set(ops[i].inputs))
    moved = edited(TRACES[slug], lambda ops: [*ops[:source], ops[i], *ops[source:i], *ops[i + 1 :]], rank)
    assert referee(moved).error is not None


def altered(op: Op, draw: random.Random, values: int) -> Op:
    """The operation with one of its numbers changed."""
    choices: list[Callable[[], Op]] = [
        lambda: op._replace(start=op.start + draw.choice([-1, 1]) * draw.randint(1, 30)),
        lambda: op._replace(end=op.end + draw.choice([-1, 1]) * draw.randint(1, 30)),
        lambda: op._replace(layer=draw.randint(0, 9) if op.layer is None else op.layer + draw.choice([-1, 1])),
        lambda: op._replace(batches=op.batches ^ {draw.randint(0, 4)}),
    ]
    if op.inputs:
        n = draw.randrange(len(op.inputs))
        other = draw.choice([v for v in range(values + 1) if v != op.inputs[n]])
        choices.append(lambda: op._replace(inputs=(*op.inputs[:n], other, *op.inputs[n + 1 :])))
    if op.outputs:
        choices.append(lambda: op._replace(outputs=tuple(number + 1 for number in op.outputs)))
    for n, arg in enumerate(op.args):
        if type(arg) is int and FORMS[op.name].args[n] != "key":
            choices.append(lambda n=n, arg=arg: op._replace(args=(*op.args[:n], arg + 1, *op.args[n + 1 :])))
    return draw.choice(choices)()


@examples(200)
@given(slugs, st.integers(0, 10**6))
def test_a_number_that_is_altered_is_noticed(slug: str, seed: int) -> None:
    draw = random.Random(seed)
    rank, i = draw.choice(operations(TRACES[slug]))
    values = sum(len(op.outputs) for op in TRACES[slug].ranks[rank])
    changed = altered(TRACES[slug].ranks[rank][i], draw, values)
    forged = edited(TRACES[slug], lambda ops: [*ops[:i], changed, *ops[i + 1 :]], rank)
    assert noticed(slug, forged), (TRACES[slug].ranks[rank][i], changed)


NONSENSE = [None, -1, "x", [], {}, 1.5, (None,), ({},), frozenset((0,))]


@examples(500)
@given(slugs, st.integers(0, 10**6), st.sampled_from(["start", "end", "inputs", "outputs"]), st.sampled_from(NONSENSE))
def test_a_column_of_the_wrong_type_is_refused_on_its_own_rank(
    slug: str, seed: int, column: str, nonsense: object
) -> None:
    rank, i = random.Random(seed).choice([(r, i) for r, ops in enumerate(TRACES[slug].ranks) for i in range(len(ops))])
    changed = TRACES[slug].ranks[rank][i]._replace(**{column: nonsense})
    error = referee(edited(TRACES[slug], lambda ops: [*ops[:i], changed, *ops[i + 1 :]], rank)).error
    assert error is not None, changed
    assert error.place.startswith(f"rank {rank}, "), error


# --- Reading is strict ------------------------------------------------------------------------------


def of_json(change: Callable[[dict[str, Any]], Any]) -> str:
    data = json.loads(trace_to_json(TRACES["basic"]))
    change(data)
    return json.dumps(data)


def row(**columns: Any) -> Callable[[dict[str, Any]], None]:
    return lambda data: data["operations"][0][0].update(columns)


BAD_JSON = [
    ("nonsense", Refused("no JSON")),
    ("[" * 100_000, Refused("no JSON")),
    ('{"format": NaN}', Refused("no JSON", why="NaN is not a number here")),
    ("[]", Refused("no trace")),
    (of_json(lambda data: data.update(version=2)), Refused("other version", version=2, read=1)),
    (of_json(lambda data: data.update(costs="free")), Refused("unknown costs read", got="free")),
    (of_json(lambda data: data.update(layers=0)), Refused("impossible count", name="layers", most=10_000, got=0)),
    (of_json(lambda data: data.update(ranks=True)), Refused("impossible count", name="ranks")),
    (of_json(lambda data: data.update(ranks=3)), Refused("ranks missing", ranks="3 ranks", count=1)),
    (of_json(lambda data: data.update(operations=[7])), Refused("no operations", rank=0)),
    (
        of_json(row(op="dance")),
        Refused("unreadable operation", operation=0, rank=0, why="there is no operation 'dance'"),
    ),
    (
        of_json(row(op=["load_weights"])),
        Refused("unreadable operation", operation=0, rank=0, why="there is no operation ['load_weights']"),
    ),
    (of_json(row(mood="good")), Refused("unreadable operation", why="load_weights has no mood")),
    (of_json(row(at=[0])), Refused("no ticks")),
    (of_json(row(at=[0, 0.5])), Refused("no numbers", column="at")),
    (of_json(row(layer=-1)), Refused("no number", column="layer", first=0, got=-1)),
    (of_json(row(layer=1.0)), Refused("no number", column="layer")),
    (of_json(row(batches=[1, 1])), Refused("batch twice")),
    (of_json(row(makes="01")), Refused("no numbers", column="makes")),
    (of_json(row(makes=[True])), Refused("no numbers", column="makes")),
    (of_json(row(shard=-1)), Refused("unreadable operation", why="shard cannot be -1")),
    (
        of_json(lambda data: data["operations"][0][0].pop("total")),
        Refused("unreadable operation", why="load_weights needs total"),
    ),
    (
        of_json(lambda data: data["operations"][0][1].update(where=7)),
        Refused("unreadable operation", why="where cannot be 7"),
    ),
    (of_json(lambda data: data["operations"][0][1].update(key={})), Refused("no key")),
    (
        of_json(
            lambda data: data["operations"][0].insert(0, {"op": "given", "at": [0, 0], "value": ["Weight", 9, 2, 0]})
        ),
        Refused(
            "unreadable operation", operation=0, rank=0, why="Weight: layer 9 does not exist; there are layers 0 to 1"
        ),
    ),
    (
        of_json(lambda data: data["operations"][0].insert(0, {"op": "given", "at": [0, 0], "value": ["Money", 9]})),
        Refused("no value"),
    ),
]


@pytest.mark.parametrize(("text", "expected"), BAD_JSON)
def test_bad_json_is_refused_in_one_sentence(text: str, expected: Refused) -> None:
    with pytest.raises(TraceError) as why:
        trace_from_json(text)
    expected.require(why.value)
