"""Pairs: a forward and a backward at once: what is refused, what it takes, on tensors, in pictures and in files."""

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from lib import (
    COSTS,
    Model,
    Outcome,
    Setting,
    Size,
    TraceError,
    referee,
    run,
    trace_from_json,
    trace_to_json,
)  # fmt: skip
from lib.engine.replay.replay import replay
from lib.errors import PuzzleError
from lib.ledger.memory import inflight
from lib.pipelines import Timetable, dualpipev, pipeline
from lib.pipelines.bounds import time_bound
from lib.pipelines.torch_csv import read_csv, write_csv
from tests.support import finished
from tests.support.refusals import Refused
from tests.support.schedules.random_pipelines import random_pipeline

PAIRS = replace(COSTS["parts"], name="pairs", ticks={**COSTS["parts"].ticks, "pair": 20})
SETTING = Setting(PAIRS)
DUALPIPEV = pipeline(dualpipev)


def played(schedule: Callable[[Model], Any], size: tuple[int, int, int], setting: Setting = SETTING) -> Outcome:
    return finished(schedule, *size, setting=setting)


# --- Refusals ---


class Start:
    """One rank that has gone forward through two layers with microbatch 0, and back through the second."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.weights = [model.load_weights(layer)[0] for layer in (0, 1)]
        self.inputs = [model.get_activation([0])]
        for layer in (0, 1):
            self.inputs.append(model.forward(layer, self.inputs[-1], self.weights[layer]))
        self.grad = model.loss(self.inputs[2])

    def pair(self, batches: list[int]) -> Any:
        ahead = 0, self.model.get_activation(batches), self.weights[0]
        return self.model.forward_backward(ahead, (1, self.inputs[1], self.grad, self.weights[1]))


def of_two(start: Start) -> None:
    start.pair([1, 2])


def of_two_behind(start: Start) -> None:
    model, inputs = start.model, [start.model.get_activation([1, 2])]
    for layer in (0, 1):
        inputs.append(model.forward(layer, inputs[-1], start.weights[layer]))
    ahead = 0, start.inputs[0], start.weights[0]
    model.forward_backward(ahead, (1, inputs[1], model.loss(inputs[2]), start.weights[1]))


def of_one(start: Start) -> None:
    start.pair([0])


def without_a_side(start: Start) -> None:
    start.model.forward_backward((0, start.inputs[0]), (1, start.inputs[1], start.grad, start.weights[1]))  # type: ignore[arg-type]


def of_swapped(start: Start) -> None:
    ahead = 0, start.model.get_activation([1]), start.weights[0]
    start.model.forward_backward(ahead, (1, start.grad, start.inputs[1], start.weights[1]))  # type: ignore[arg-type]


def of_another_layer(start: Start) -> None:
    ahead = 0, start.model.get_activation([1]), start.weights[0]
    start.model.forward_backward(ahead, (7, start.inputs[1], start.grad, start.weights[1]))


def of_another_weight(start: Start) -> None:
    ahead = 0, start.model.get_activation([1]), start.weights[1]
    start.model.forward_backward(ahead, (1, start.inputs[1], start.grad, start.weights[1]))


REFUSED: dict[Callable[[Start], None], Refused] = {
    of_two: Refused("pair of several batches", batches="batches 1, 2 of 3", behind="batch 0 of 3"),
    of_two_behind: Refused("pair of several batches", batches="batch 0 of 3", behind="batches 1, 2 of 3"),
    of_one: Refused("pair of one batch", batch=0),
    without_a_side: Refused("arguments of a pair"),
    of_swapped: Refused("arguments swapped"),
    of_another_layer: Refused("does not exist", thing="layer", number=7),
    of_another_weight: Refused("other weight", weight="weight of layer 1, unsharded, step 0"),
}


@pytest.mark.parametrize("wrong", REFUSED)
def test_what_cannot_be_paired_is_refused_in_words(wrong: Callable[[Start], None]) -> None:
    error = run(lambda model: wrong(Start(model)), 2, 3, 1, setting=SETTING).error
    assert isinstance(error, PuzzleError)
    assert "forward_backward(" in error.place
    REFUSED[wrong].require(error)


def test_a_pair_without_a_price_is_refused() -> None:
    error = run(lambda model: of_one(Start(model)), 2, 3, 1, setting=Setting("parts")).error
    Refused("no price", operation="pair", costs="parts").require(error)


@pytest.mark.parametrize("price", [19, 31])
def test_a_pair_takes_as_long_as_its_longer_half_or_as_both(price: int) -> None:
    with Refused("impossible pair", least=20, most=30, got=price):
        replace(PAIRS, ticks={**PAIRS.ticks, "pair": price})


def test_pairs_are_of_layers_and_microbatches_that_are_alike() -> None:
    for unlike in ({"lengths": (1, 1)}, {"layer": "block"}, {"kinds": ("block",)}):
        with Refused("pairs of unequal work"):
            Setting(PAIRS, **unlike)


@pytest.mark.parametrize(
    ("column", "content", "expected"),
    [
        ("batch", 1, Refused("pair of another batch")),
        ("back", 9, Refused("does not exist", thing="layer", number=9)),
        ("at", [0, 1], Refused("other ticks")),
        ("batches", [0], Refused("other batches")),
    ],
)
def test_a_forged_row_is_refused(column: str, content: Any, expected: Refused) -> None:
    data = json.loads(trace_to_json(played(DUALPIPEV, (4, 6, 2)).trace))
    row = next(
        row for row in data["operations"][1] if row["op"] == "pair" and row["batch"] != 1 and row["batches"] != [0]
    )
    row[column] = content
    expected.require(referee(trace_from_json(json.dumps(data))).error)
    del row[column]
    with pytest.raises(TraceError):
        trace_from_json(json.dumps(data)) if column in ("batch", "back", "at") else fail()


def fail() -> None:
    raise TraceError("a row may leave batches out")


# --- What it takes ---


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("p", "m"), [(2, 4), (2, 8), (4, 8), (4, 12)])
@pytest.mark.parametrize("price", [20, 25, 30])
def test_pairs_are_as_fast_as_their_price(p: int, m: int, price: int) -> None:
    """At F + B a pair is as fast as its halves in turn, below that it is faster; nothing beats the bound."""
    setting = Setting(replace(PAIRS, ticks={**PAIRS.ticks, "pair": price}))
    report, apart = (referee(played(DUALPIPEV, (2 * p, m, p), one).trace) for one in (setting, Setting("parts")))
    assert report.error is apart.error is None
    assert report.timesteps >= time_bound(Size(2 * p, m, p), setting).least
    assert (report.timesteps < apart.timesteps) == (price < 30)
    assert report.makespan <= apart.makespan


def test_memory_counts_the_operands_of_both() -> None:
    async def schedule(model: Model) -> None:
        start = Start(model)
        weights = [*start.weights]
        out, (_, before) = start.pair([1])
        model.backward(0, start.inputs[0], before, weights[0])
        model.forward(1, out, weights[1])

    trace = run(schedule, 2, 3, 1, setting=SETTING).trace
    memory = referee(trace).ranks[0].memory
    at = [op.name for op in trace.events(0)].index("pair")
    weight, activation, gradient = 512 * 512, 512 * 256, 8192
    assert memory[at] == 2 * weight + 3 * activation + gradient  # the inputs of both, and that of layer 0, used later


def test_pairs_are_counted_as_their_halves_in_flight() -> None:
    traces = [played(DUALPIPEV, (4, 6, 2), one).trace for one in (SETTING, Setting("parts"))]
    assert inflight(traces[0]) == inflight(traces[1])


# --- On tensors, in pictures, in files ---


def test_files_for_pytorch_carry_pairs_both_ways() -> None:
    trace = played(DUALPIPEV, (4, 6, 2)).trace
    text = write_csv(trace)
    assert "OVERLAP_F_B" in text
    table = read_csv(text)
    assert [sorted(slot) for slot in table.rows[1]] == [sorted(slot) for slot in dualpipev(2, 6).rows[1]]
    again = played(pipeline(table), (4, 6, 2)).trace
    assert write_csv(again) == text
    assert sum(op.name == "pair" for op in again.ranks[0]) == sum(op.name == "pair" for op in trace.ranks[0]) > 0
    assert Timetable.read(str(table)) == table


# --- Random pipelines ---


def paired(table: Timetable, choice: Random) -> Timetable:
    """The same with some neighbours F and B of different microbatches as one slot, as far as it can be played."""
    for _ in range(8):
        rows = [list(row) for row in table.rows]
        row = choice.choice(rows)
        at = choice.randrange(len(row) - 1)
        both = (*row[at], *row[at + 1])
        if sorted(cell.op for cell in both) != ["B", "F"] or len({cell.batch for cell in both}) < 2:
            continue
        row[at : at + 2] = [both]
        with suppress(PuzzleError):
            table = Timetable.of(rows)
    return table


def simulated(table: Timetable, price: int) -> int:
    """The ticks until the last cell ends, in a few plain lines: a slot starts when its rank is free and every cell that
    one of its cells needs has ended."""
    ends: dict[tuple[int, str, int], int] = {}
    clock, at = [0] * len(table.rows), [0] * len(table.rows)
    while any(at[r] < len(row) for r, row in enumerate(table.rows)):
        for r, row in enumerate(table.rows):
            while at[r] < len(row):
                slot = row[at[r]]
                needs = [need for cell in slot for need in needed(cell, table.stages)]
                if any(need not in ends for need in needs):
                    break
                start = max([clock[r], *(ends[need] for need in needs)])
                ticks = price if len(slot) == 2 else {"F": 10, "B": 20, "I": 10, "W": 10}[slot[0].op]
                clock[r] = start + ticks
                for stage, op, batch in slot:
                    for half in {"B": "IW"}.get(op, op):
                        ends[stage, half, batch] = clock[r]
                at[r] += 1
    return max(clock)


def needed(cell: Any, stages: int) -> list[tuple[int, str, int]]:
    stage, op, batch = cell
    if op == "F":
        return [(stage - 1, "F", batch)] if stage else []
    if op == "W":
        return [(stage, "I", batch)]
    return [(stage, "F", batch)] if stage == stages - 1 else [(stage + 1, "I", batch)]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("seed", range(40))
def test_random_pipelines_with_pairs_take_the_time_of_a_second_simulator_in_any_order(seed: int) -> None:
    choice = Random(seed)
    table = paired(random_pipeline(seed), choice)
    price = choice.choice((20, 24, 30))
    setting = Setting(replace(PAIRS, ticks={**PAIRS.ticks, "pair": price}))
    size = table.stages, table.batches, table.ranks
    schedule = pipeline(table, buffered=True)
    trace = run(schedule, *size, setting=setting).trace
    report = referee(trace)
    assert report.error is None, report.error
    assert report.makespan * 10 == simulated(table, price)
    assert report.timesteps >= time_bound(Size(*size), setting).least
    order = choice.sample(range(size[2]), size[2])
    assert run(schedule, *size, order, setting=setting).trace == trace
    assert replay(trace, small=True).passed
    assert read_csv(write_csv(trace)).stages == table.stages
