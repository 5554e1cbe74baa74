"""Pictures of measured runs: with any durations, no arrow points back, and no rank is idle while it computes."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from drawing.predicted_vs_measured import measured as scene_measured
from drawing.run_text import reasons
from drawing.scene import Scene, scene_of
from lib import Model, Setting, Trace
from lib.pipelines import one_f_one_b
from lib.pipelines.torch_csv import CellTimes, Pipeline, event_times
from tests.support import finished
from tests.support.irregular_pipeline import LAYERS, MICROBATCHES, RANKS, irregular
from tests.support.schedules.random_pipelines import TEXTBOOKS, played, random_pipeline, textbook


async def all_received_first(model: Model) -> None:
    """Rank 1 receives every activation before its first forward, and rank 0 every gradient; sends come late."""
    first = model.rank == 0
    weight, state = model.load_weights(model.rank)
    inputs = [model.get_activation([b]) if first else await model.receive(0, tag=b) for b in range(model.BATCHES)]
    made = [model.forward(model.rank, each, weight) for each in inputs]
    if first:
        for b, each in enumerate(made):
            await model.pass_to(1, each, tag=b)
    grads = [await model.receive(1, tag=b) for b in range(model.BATCHES)] if first else [*map(model.loss, made)]
    done = [model.backward(model.rank, *each, weight) for each in zip(inputs, grads)]
    if not first:
        for b, (_, grad) in enumerate(done):
            await model.pass_to(0, grad, tag=b)
    total = sum((one for one, _ in done[1:]), done[0][0])
    model.set_final_weight(model.rank, model.update(model.rank, total, weight, state)[0])


async def relayed(model: Model) -> None:
    """Ranks 0, 2 and 1 have the layers 0, 1 and 2; all between rank 0 and rank 2 goes through rank 1."""
    layer = (0, 2, 1)[model.rank]
    weight, state = model.load_weights(layer)
    total = model.fake_grad(layer, [])
    for b in range(model.BATCHES):
        if model.rank == 1:
            await model.pass_to(2, await model.receive(0))
        given = await model.receive((0, 2, 1)[model.rank]) if model.rank else model.get_activation([b])
        made = model.forward(layer, given, weight)
        if model.rank == 1:
            one, grad = model.backward(layer, given, model.loss(made), weight)
            await model.pass_to(2, grad)
            await model.pass_to(0, await model.receive(2))
        else:
            await model.pass_to(1, made)
            one, grad = model.backward(layer, given, await model.receive(1), weight)
            if model.rank == 2:
                await model.pass_to(1, grad)
        total = total + one
    model.set_final_weight(layer, model.update(layer, total, weight, state)[0])


def made_up(pipeline: Pipeline, choice: random.Random) -> CellTimes:
    """Cells of random lengths with random pauses, each after what it needs."""
    table = pipeline.table
    ends: dict[str, float] = {}
    now = [0.0] * table.ranks
    cells: list[dict[str, tuple[float, float]]] = [{} for _ in table.rows]
    rows = [[cell for slot in row for cell in slot] for row in table.rows]
    while any(rows):
        for rank, row in enumerate(rows):
            while row and all(str(need) in ends for need in table.needs.of(row[0])):
                cell = row.pop(0)
                start = max([now[rank], *(ends[str(need)] for need in table.needs.of(cell))])
                start += choice.choice((0.0, choice.random()))
                now[rank] = ends[str(cell)] = start + choice.choice((0.01, 1.0, choice.expovariate(1.0)))
                cells[rank][str(cell)] = start, now[rank]
    return cells


def require_true(pipeline: Pipeline, measured: CellTimes) -> Scene:
    """No arrow points back; a message that a cell uses is received when the first such cell starts."""
    times, only = event_times(pipeline, measured), pipeline.only()
    scene = scene_measured(scene_of(pipeline.trace), times)
    for link in scene.links:
        assert link.received is not None
        assert link.received >= link.sent, link
    for place, lane in enumerate(scene.lanes):
        used: dict[int, float] = {}
        for cell, ats in only.cells[place].items():
            for value in (value for at in ats for value in only.works[place].ops[at].inputs):
                used[value] = min(measured[place][str(cell)][0], used.get(value, float("inf")))
        for mark in lane.marks:
            starts = [used[value] for value in mark.op.outputs if value in used]
            assert mark.op.name != "receive" or not starts or mark.start == min(starts)
        busy = sum(mark.end - mark.start for mark in lane.marks)
        idle = sum(gap.end - gap.start for gap in lane.gaps)
        assert busy + idle == pytest.approx(scene.end), "what is idle is not busy"
    return scene


def trace_of(schedule: Callable[..., Any], layers: int, batches: int, ranks: int) -> Trace:
    return finished(schedule, layers, batches, ranks, setting=Setting("parts")).trace


def order(name: str) -> Trace:
    table = next(filter(None, (textbook(name, 3, m) for m in (4, 3, 6))))
    return played(table, depth=2)


TRACES: dict[str, Callable[[], Trace]] = {
    "irregular": lambda: trace_of(irregular, LAYERS, MICROBATCHES, RANKS),
    "received first": lambda: trace_of(all_received_first, 2, 3, 2),
    "relayed": lambda: trace_of(relayed, 3, 3, 3),
    **{name: partial(order, name) for name in TEXTBOOKS},
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", TRACES)
def test_no_arrow_points_back_whatever_the_durations(name: str) -> None:
    pipeline = Pipeline.of(TRACES[name]())
    for seed in range(3):
        require_true(pipeline, made_up(pipeline, random.Random(seed)))


@pytest.mark.parametrize("seed", [*range(4), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(4, 200))])
def test_no_arrow_of_a_random_order_points_back(seed: int) -> None:
    pipeline = Pipeline.of(played(random_pipeline(seed), depth=1 + seed % 2))
    require_true(pipeline, made_up(pipeline, random.Random(seed)))


def test_a_rank_that_is_idle_waits_for_the_sender() -> None:
    """The last rank receives its first activation when it starts to use it, so its picture says whom it waited for."""
    pipeline = Pipeline.of(played(one_f_one_b(3, 4)))
    scene = require_true(pipeline, made_up(pipeline, random.Random(1)))
    first = scene.lanes[2].gaps[0]
    assert first.before is not None
    assert first.before.op.name == "receive"
    assert reasons(first, scene)[0] == "waits for rank 1"
