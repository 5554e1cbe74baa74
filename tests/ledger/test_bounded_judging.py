"""Judging costs no more than a trace is long, whatever its head says and however often its values are joined."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pytest

from lib import Model, Size, Trace, TraceError, referee, run, trace_from_json, trace_to_json
from lib.ledger import notes
from lib.ledger.trace_json import MAX_COUNT
from tests.support import CLASSICS
from tests.support.refusals import Refused

HUGE = 20_000_000
RANKS = 4
MIB = 1 << 20


def head(**changed: Any) -> str:
    return json.dumps({**json.loads(trace_to_json(run(CLASSICS[0].solution, 2, 4, 1).trace)), **changed})


def value(*label: Any) -> str:
    return head(operations=[[{"op": "given", "at": [0, 0], "makes": [0], "value": label}]])


TOO_LARGE = [
    (head(layers=HUGE), Refused("impossible count", name="layers", most=10_000, got=20000000)),
    (head(batches=HUGE), Refused("impossible count", name="batches")),
    (head(ranks=HUGE), Refused("impossible count", name="ranks")),
    (value("Weight", 0, HUGE, 0), Refused("unreadable operation", operation=0, rank=0)),
    (
        value("Weight", 0, 2, 0, list(range(MAX_COUNT + 1)), MAX_COUNT + 1),
        Refused("unreadable operation", operation=0, rank=0),
    ),
    (
        head(operations=[[{"op": "load_weights", "at": [0, 0], "layer": 0, "shard": 0, "total": HUGE}]]),
        Refused("unreadable operation", why="total cannot be 20000000"),
    ),
    (head(operations=[[{"op": "loss", "at": [0, 10**13]}]]), Refused("no numbers", column="at")),
]


@pytest.mark.parametrize(("text", "expected"), TOO_LARGE, ids=lambda x: x if isinstance(x, str) and len(x) < 80 else "")
def test_what_is_too_large_is_refused_when_it_is_read(text: str, expected: Refused) -> None:
    with pytest.raises(TraceError) as why:
        trace_from_json(text)
    expected.require(why.value)
    assert len(str(why.value)) < 300


def test_the_largest_counts_are_read() -> None:
    assert trace_from_json(head(layers=MAX_COUNT)).size.layers == MAX_COUNT


@pytest.mark.parametrize("goal", [CLASSICS[0].goal, None])
def test_layers_that_no_operation_names_cost_nothing(goal: Any) -> None:
    """A trace that was never read, so that no bound of the reader protects the judge."""
    trace = Trace(Size(HUGE // 20, 4, 1), ((),))
    tracemalloc.start()
    try:
        report = referee(trace, goal)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert report.error is not None
    assert report.notes == ()
    assert most < 20 * MIB, "eight bytes for the copies of each layer, and nothing else"


def joined(parts: int) -> Callable[[Model], Any]:
    """Each rank updates half of its shards and stores them joined in every length; it sends and reads the others."""

    async def schedule(model: Model) -> None:
        inp, whole = model.get_activation(range(4)), model.load_weights(0)[0]
        grad, _ = model.backward(0, inp, model.loss(model.forward(0, inp, whole)), whole)
        held = None
        for i in range(parts):
            weight, state = model.load_weights(0, model.rank * parts + i, RANKS * parts)
            if i % 2:
                weight, state = model.update(0, grad, weight, state)
                held = weight if held is None else held.combine(weight)
                model.weights[i] = held
            else:
                await model.pass_to((model.rank + 1) % RANKS, weight)
                await model.receive()

    return schedule


@pytest.mark.parametrize("parts", [40, pytest.param(400, marks=pytest.mark.slow)])
def test_shards_that_are_joined_again_and_again_are_compared_once(parts: int, monkeypatch: pytest.MonkeyPatch) -> None:
    made = 0

    def counted(*given: int) -> Fraction:
        nonlocal made
        made += 1
        return Fraction(*given)

    trace = run(joined(parts), 1, 4, RANKS).trace
    monkeypatch.setattr(notes, "Fraction", counted)
    report = referee(trace)
    assert any(note.about == "missing" for note in report.notes)
    assert made <= 4 * sum(map(len, trace.ranks))
