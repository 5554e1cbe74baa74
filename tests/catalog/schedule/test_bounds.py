"""The times of the pipelines and of split layers cannot be beaten: by a formula, or by trying all orders of calls."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush
from importlib import import_module
from itertools import groupby
from typing import NamedTuple

import pytest

from lib import Report, Trace, inflight, referee, run
from puzzles.catalog.schedule import PUZZLES


def played(slug: str, module: str = "") -> tuple[Trace, Report]:
    """A reference, or a record, at the puzzle's size."""
    goal = PUZZLES[slug].goal
    schedule = getattr(import_module(f"solutions.{module or slug}"), slug)
    trace = run(schedule, *goal.size, setting=goal.setting).trace
    report = referee(trace, goal)
    assert report.error is None
    return trace, report


# --- Pipelines ---


def least_steps(slug: str) -> float:
    """The steps of any pipeline whose layers stay where the puzzle places them: batch 0 reaches the last rank, which
    does all its work, and if backward is whole its last gradient goes back through all others."""
    (layers, batches, ranks), setting = PUZZLES[slug].goal.size, PUZZLES[slug].goal.setting
    forward, backward = (setting.costs.steps(setting.costs.ticks[name]) for name in ("forward", "backward"))
    work = setting.steps * batches * (layers // ranks) * (forward + backward)
    home = 0 if setting.costs.priced("backward_weight") else (ranks - 1) * backward
    return (ranks - 1) * forward + work + home


@pytest.mark.parametrize("slug", ["one_f_one_b", "interleaved", "zb_h1", "zb_h2", "zb_v"])
def test_a_pipeline_takes_the_least_steps_that_are_possible(slug: str) -> None:
    _, report = played(slug)
    assert report.timesteps == report.makespan == least_steps(slug)
    assert all(record.timesteps >= least_steps(slug) for record in PUZZLES[slug].goal.records)


@pytest.mark.parametrize(
    ("slug", "module", "most"),
    [
        ("one_f_one_b", "", (4, 3, 2, 1)),
        ("interleaved", "", (11, 9, 7, 5)),
        ("interleaved", "records.interleaved_short_warm_up", (8, 7, 6, 5)),
        ("breadth_first", "", (8, 8, 8, 8)),
    ],
)
def test_activations_in_flight_are_those_that_the_texts_name(slug: str, module: str, most: tuple[int, ...]) -> None:
    assert inflight(played(slug, module)[0]) == most


@pytest.mark.parametrize(("slug", "most"), [("zb_h1", 4), ("zb_h2", 7), ("zb_v", 8)])
def test_an_activation_counts_until_its_weight_gradient(slug: str, most: int) -> None:
    assert max(inflight(played(slug)[0], 1, 1)) == most


def test_1f1b_with_two_layers_to_a_stage_takes_the_66_steps_that_the_text_names() -> None:
    goal = PUZZLES["interleaved"].goal
    batches, ranks, stage = goal.size.batches, goal.size.ranks, goal.size.layers // goal.size.ranks
    assert (batches + ranks - 1) * stage * 3 == 66
    assert f"{66} steps" in PUZZLES["interleaved"].statement


# --- Gathers of the breadth-first pipeline ---


def depth_first(stage: int, stages: int = 2, batches: int = 4) -> Iterator[int]:
    """The layers that a stage works on in the order of `interleaved`, with two layers."""
    groups = [range(start, start + stages) for start in range(0, batches, stages)]
    forwards = [layer for group in groups for layer in (0, 1) for _ in group]
    backwards = [layer for group in groups for layer in (1, 0) for _ in group]
    ahead = 2 * (stages - 1 - stage) + stages
    yield from forwards[:ahead]
    for i, layer in enumerate(backwards):
        yield from forwards[i + ahead : i + ahead + 1]
        yield layer


def test_breadth_first_gathers_3_times_and_depth_first_11_times() -> None:
    trace, _ = played("breadth_first")
    assert [sum(op.name == "allgather" for op in ops) for ops in trace.ranks] == [3] * 4
    assert max(sum(1 for _ in groupby(depth_first(stage))) for stage in (0, 1)) == 11


# --- Splitting a layer ---


def test_tensor_parallelism_takes_all_its_work_and_all_its_sums() -> None:
    """Each rank computes a quarter of each layer, and updates all; seven sums are on its way, and the last update has
    begun: nothing of this can happen at the same time."""
    goal = PUZZLES["tensor_parallel"].goal
    layers, costs = goal.size.layers, goal.costs
    forward, backward, update = (costs.ticks[name] for name in ("forward", "backward", "update"))
    total = costs.transfer("allreduce", 1, costs.activation, range(goal.size.ranks))
    ticks = layers * ((forward + backward) // 4 + update) + (2 * layers - 1) * total - update
    (record,) = goal.records
    assert record.timesteps == played("tensor_parallel")[1].timesteps == costs.steps(ticks)
    one_rank = layers * (forward + backward + update) - update
    assert costs.steps(one_rank) == 9.5
    assert "9.5" in PUZZLES["tensor_parallel"].concept


class Act(NamedTuple):
    """What happens to a microbatch: a call, or a computation of some ticks."""

    is_call: bool
    ticks: int


def journey(loss_at_home: bool, batches: int) -> list[Act]:
    """A microbatch of `batches` from each rank: to the experts of two layers and back, and the same way back."""
    trip, work = Act(True, 5 * batches), Act(False, 10 * batches)
    loss = Act(False, 0)
    return [trip, work, trip, trip, work, *([trip, loss, trip] if loss_at_home else [loss]), work, trip, trip, work]


def least_ticks(loss_at_home: bool, chained: bool, batches: int = 1) -> int:
    """The start of the last update in the best of all orders of calls and computations of two batches on each rank,
    with all ranks alike, by Dijkstra's algorithm. A state: how far each microbatch is and when its last act ends, which
    layers are updated, the clock, and when the lane is free."""
    acts, update = journey(loss_at_home, batches), 5
    done_with_the_second = len(acts) - 4 + 1  # after its first backward
    begin = ((((0, 0),) * (2 // batches)), False, False, 0, 0)
    heap, seen = [(0, begin)], set()
    while heap:
        clock, state = heappop(heap)
        if state in seen:
            continue
        seen.add(state)
        batch_states, second, first, clock, lane = state
        if first and second:
            return clock - update
        for i, (place, ready) in enumerate(batch_states):
            if place == len(acts):
                continue
            is_call, ticks = acts[place]
            if is_call:
                waits = place > 0 and acts[place - 1].is_call and not chained
                after = max(clock, ready) if waits else clock
                end = free = max(after, lane, ready) + ticks
            else:
                after = end = max(clock, ready) + ticks
                free = lane
            others = (*batch_states[:i], *batch_states[i + 1 :])
            heappush(heap, (after, (tuple(sorted([*others, (place + 1, end)])), second, first, after, free)))
        if not second and all(place >= done_with_the_second for place, _ in batch_states):
            heappush(heap, (clock + update, (batch_states, True, first, clock + update, lane)))
        if not first and all(place == len(acts) for place, _ in batch_states):
            heappush(heap, (clock + update, (batch_states, second, True, clock + update, lane)))
    raise AssertionError("no order ends")


@pytest.mark.parametrize(
    ("loss_at_home", "chained", "batches", "steps"),
    [
        (True, True, 1, 10.0),
        (True, False, 1, 11.5),
        (False, True, 1, 9.0),
        (False, False, 1, 9.5),
        (True, True, 2, 15.0),
        (False, True, 2, 13.0),
    ],
)
def test_all_orders_of_calls_to_experts(loss_at_home: bool, chained: bool, batches: int, steps: float) -> None:
    assert least_ticks(loss_at_home, chained, batches) == 10 * steps


def test_expert_parallelism_takes_what_the_best_order_takes() -> None:
    assert played("expert_parallel")[1].timesteps == least_ticks(True, True) / 10
    best = played("expert_parallel", "records.expert_parallel_loss_at_the_experts")[1]
    assert best.timesteps == least_ticks(False, True) / 10
