"""The records of the chapters are the best there are: by arithmetic, by trying everything, or by shortest paths."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from heapq import heappop, heappush
from itertools import accumulate, combinations, pairwise
from typing import Any

import pytest

from lib import Model, Report
from puzzles.catalog.schedule import PUZZLES
from solutions.fsdp import fsdp
from solutions.wsdp import wsdp
from solutions.zero1 import zero1
from tests.catalog.lessons import judged as lessons
from tests.catalog.lessons.families.buckets import buckets
from tests.catalog.lessons.families.input_once import input_once
from tests.support.schedules.shards import data_parallel_steps
from tests.support.schedules.tiers import offload


def judged(schedule: Callable[[Model], Any], slug: str) -> Report:
    """The report on another schedule under the rules of a puzzle."""
    return lessons.judged(schedule, PUZZLES[slug].goal)


def figures(report: Report) -> tuple[float, int]:
    return report.timesteps, report.peak.memory


def fastest(slug: str) -> tuple[float, int]:
    """The fastest record of a puzzle, and of those the smallest."""
    return min((record.timesteps, record.peak_memory) for record in PUZZLES[slug].goal.records)


# --- Checkpointing: shortest paths over the sets of stored activations ---

State = tuple[int, tuple[int, ...]]
"""How many layers are still to go back, one more before the loss; and the stored activations, by layer."""


def fewest_forwards(layers: int, room: int) -> float:
    """The fewest forwards with which a model of so many layers is trained, if before each operation the activations and
    the gradient on its way back are no more than `room`. Dijkstra's algorithm over all states.

    The model's input is not stored, since it can be had at any time; it takes room while it is used.
    """
    queue: list[tuple[int, State]] = [(0, (layers + 1, ()))]
    done: set[State] = set()
    while queue:
        cost, state = heappop(queue)
        if state[0] == 0:
            return cost
        if state not in done:
            done.add(state)
            for price, follower in followers(state, layers, room):
                heappush(queue, (cost + price, follower))
    return float("inf")


def followers(state: State, layers: int, room: int) -> Iterator[tuple[int, State]]:
    """The states that one operation makes, or that forget one activation; each with the number of its forwards."""
    to_go, kept = state
    stored, is_back = frozenset(kept), to_go <= layers

    def then(left: int, activations: frozenset[int]) -> State:
        return left, tuple(sorted(activations))

    for layer in range(min(to_go, layers)):
        if (layer in stored or layer == 0) and len(stored | {layer}) + is_back <= room:
            yield 1, then(to_go, stored | {layer + 1})
    if not is_back and layers in stored and len(stored) <= room:
        yield 0, then(layers, stored - {layers})  # the loss
    needed = to_go - 1
    if is_back and (needed in stored or needed == 0) and len(stored | {needed}) + 1 <= room:
        yield 0, then(needed, stored - {needed})  # backward
    for layer in stored:
        yield 0, then(to_go, stored - {layer})


@pytest.mark.sampled(2)
@pytest.mark.parametrize("room", range(2, 10))
def test_checkpointing_has_no_better_plan_with_this_room(room: int) -> None:
    goal = PUZZLES["checkpoint"].goal
    layers, costs = goal.size.layers, goal.costs
    forwards = fewest_forwards(layers, room)
    work = costs.steps(int(forwards) * 10 + layers * 10 + (layers - 1) * 5)  # up to the start of the last update
    memory = layers * 2 * costs.weight + room * costs.activation
    assert (work, memory) in {(record.timesteps, record.peak_memory) for record in goal.records}


def test_with_less_room_there_is_no_plan_and_with_more_none_is_faster() -> None:
    records = PUZZLES["checkpoint"].goal.records
    assert fewest_forwards(9, 1) == float("inf")
    assert fewest_forwards(9, 9) == 9, "every layer once"
    assert len(records) == len(range(2, 10))


# --- Overlap ---


def ways_to_cut(layers: int) -> Iterator[tuple[int, ...]]:
    """All ways to cut a list of layers into buckets of neighbours: the sizes of the buckets."""
    for count in range(layers):
        for cuts in combinations(range(1, layers), count):
            yield tuple(end - start for start, end in pairwise((0, *cuts, layers)))


@pytest.mark.slow
def test_no_way_to_cut_buckets_is_faster() -> None:
    ways = list(ways_to_cut(PUZZLES["ddp_overlap"].goal.size.layers))
    found = {sizes: figures(judged(buckets(*sizes), "ddp_overlap")) for sizes in ways}
    assert len(ways) == 32
    assert min(found.values())[0] == fastest("ddp_overlap")[0] == found[2, 2, 2][0] == 14.5
    assert sum(PUZZLES["ddp_overlap"].goal.meets_time(time) for time, _ in found.values()) == 12
    others = {"15.4": [(1, 1, 1, 1, 1, 1), (3, 3)], "18.4": [(6,)]}
    assert all(found[cut][0] == float(text) for text, cuts in others.items() for cut in cuts)
    assert all(text in PUZZLES["ddp_overlap"].concept for text in ("32 ways", "14.5", *others))


def ways_to_update(buckets: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """How many buckets to update after each backward: any number of those that were called before it."""
    ends, layers = list(accumulate(buckets)), sum(buckets)

    def after(place: int, updated: int) -> Iterator[tuple[int, ...]]:
        if place == layers:
            yield ()
            return
        for count in range(sum(end <= place for end in ends) - updated + 1):
            yield from ((count, *rest) for rest in after(place + 1, updated + count))

    return after(0, 0)


def orders_of_updates(ways: Iterable[tuple[int, ...]]) -> list[tuple[float, int]]:
    return [
        figures(judged(buckets(*sizes, early=early), "ddp_overlap"))
        for sizes in ways
        for early in ways_to_update(sizes)
    ]


def test_no_order_of_updates_is_faster_for_buckets_of_two() -> None:
    assert min(orders_of_updates([(2, 2, 2)]))[0] == 14.5


@pytest.mark.slow
def test_no_buckets_and_no_order_of_updates_are_better_than_the_records() -> None:
    goal = PUZZLES["ddp_overlap"].goal
    found = {point for point in orders_of_updates(ways_to_cut(goal.size.layers)) if goal.meets_time(point[0])}
    front = {one for one in found if not any(a <= one[0] and b <= one[1] for a, b in found - {one})}
    assert front == {(record.timesteps, record.peak_memory) for record in goal.records}


def test_prefetching_leaves_only_work_and_the_first_gather() -> None:
    """A rank's 6 forwards, 6 backwards and 6 updates, after the first gather; the last update starts 0.5 before."""
    costs = PUZZLES["fsdp_prefetch"].goal.costs
    price, gather = costs.duration, costs.transfer("allgather", 1, costs.weight // 4, range(4))
    work = gather + 6 * (price("forward") + price("backward") + price("update")) - price("update")
    assert fastest("fsdp_prefetch")[0] == work / 10 == 15


def test_streaming_leaves_only_work_and_the_first_fetch() -> None:
    goal = PUZZLES["stream_inference"].goal
    fetch, forward = goal.costs.tiers["host"].fetch, goal.costs.duration("forward", goal.size.batches)
    assert fetch is not None
    assert fastest("stream_inference")[0] == (fetch + (goal.size.layers - 1) * forward) / 10 == 15


# --- Work that nobody can avoid ---


def test_the_time_of_zero1_is_the_work_of_each_rank() -> None:
    """Each layer is scattered, updated and gathered. Of the last event only the start counts: with full weights at the
    end it is a gather; the record has shards there, gathers at the beginning, and ends with an update."""
    costs, layers = PUZZLES["zero1"].goal.costs, PUZZLES["zero1"].goal.size.layers
    scatter = costs.transfer("scatterreduce", 1, costs.weight, range(4))
    gather = costs.transfer("allgather", 1, costs.weight // 4, range(4))
    update = costs.duration("update")
    work = layers * (costs.duration("forward") + costs.duration("backward") + update + scatter + gather)
    assert judged(zero1, "zero1").timesteps == (work - gather) / 10 == 12.1
    assert fastest("zero1")[0] == (work - update) / 10 == 11.9


def test_plain_data_parallelism_is_as_fast_as_zero1_sends_as_much_and_is_larger() -> None:
    plain, sharded = judged(input_once(data_parallel_steps), "zero1"), judged(zero1, "zero1")
    assert plain.makespan == sharded.makespan == 12.4
    assert plain.traffic == sharded.traffic == 1_572_864
    assert round(1 - sharded.peak.memory / plain.peak.memory, 2) == 0.27
    facts = ("12.4", "1,572,864", "27%", f"{plain.peak.memory:,}", f"{sharded.peak.memory:,}")
    assert all(text in " ".join(PUZZLES["zero1"].concept.split()) for text in facts)


def test_the_figures_of_zero2_in_its_text_are_those_of_its_records() -> None:
    facts = {f"{figure:,}" for record in PUZZLES["zero2"].goal.records for figure in record.figures[1:] if figure}
    assert all(text in PUZZLES["zero2"].concept for text in facts)


def test_the_time_of_local_sgd_is_that_of_eight_steps_and_two_averages() -> None:
    goal = PUZZLES["local_sgd"].goal
    price, layers, ranks = goal.costs.duration, goal.size.layers, range(goal.size.ranks)
    average = goal.costs.transfer("allreduce", 1, goal.costs.weight, ranks)
    step = layers * (price("forward") + price("backward") + price("update"))
    work = goal.setting.steps * step + 2 * layers * average - average
    assert fastest("local_sgd")[0] == work / 10 == 52


def test_data_parallelism_takes_as_long_as_local_sgd_says() -> None:
    report = judged(data_parallel_steps, "local_sgd")
    assert report.timesteps == 103.5
    assert "103.5" in PUZZLES["local_sgd"].statement


def test_the_traffic_of_an_all_reduce_in_fsdp_is_as_its_text_says() -> None:
    sharded, reduced = judged(fsdp, "fsdp"), judged(wsdp, "fsdp")
    assert reduced.timesteps == sharded.timesteps
    assert all(f"{report.traffic:,}" in PUZZLES["fsdp"].concept for report in (sharded, reduced))


# --- Offloading ---


def offloads(parked: Iterable[tuple[int, ...]], leads: Iterable[int]) -> Iterator[tuple[float, int]]:
    """The figures of parking these inputs and fetching them so early, where the host has room."""
    goal = PUZZLES["offload"].goal
    for layers in parked:
        for lead in leads:
            report = judged(offload(layers, lead), "offload")
            if goal.meets_host(report.peaks["host"].memory):
                yield figures(report)


def test_offloading_takes_no_longer_than_the_work() -> None:
    """Every forward, backward and update runs on the one rank; the last update starts 0.5 before the end."""
    goal = PUZZLES["offload"].goal
    price = goal.costs.duration
    work = goal.size.layers * sum(map(price, ("forward", "backward", "update"))) - price("update")
    assert fastest("offload")[0] == work / 10 == 19.5


def test_parking_any_five_neighbours_is_no_better() -> None:
    fives = [tuple(range(first, first + 5)) for first in (1, 2, 3)]
    assert min(offloads(fives, (1, 2))) == fastest("offload")


@pytest.mark.slow
def test_no_set_of_parked_inputs_and_no_lead_is_better() -> None:
    layers = range(1, PUZZLES["offload"].goal.size.layers)
    sets = [chosen for count in range(len(layers) + 1) for chosen in combinations(layers, count)]
    found = list(offloads(sets, (1, 2, 3)))
    assert len(found) > 3 * 100
    assert min(found) == fastest("offload")
