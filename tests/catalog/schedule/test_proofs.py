"""Records of schedules cannot be beaten: by a formula, by trying all orders of calls, or by shortest paths."""

from collections.abc import Callable, Iterable, Iterator
from heapq import heappop, heappush
from importlib import import_module
from itertools import accumulate, combinations, groupby, pairwise
from typing import Any, NamedTuple

import pytest

from lib import Model, Report, Trace, inflight, referee, run
from puzzles.catalog.schedule import PUZZLES
from solutions.fsdp import fsdp
from solutions.wsdp import wsdp
from solutions.zero1 import zero1
from tests.catalog.lessons import tables as lessons
from tests.catalog.lessons.families.one_rank import input_once
from tests.catalog.lessons.families.replicas import buckets
from tests.support.schedules.shards import data_parallel_steps
from tests.support.schedules.tiers import offload

# --- The times of the pipelines and of split layers cannot be beaten: by a formula, or by trying all orders of
# calls ---


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


# --- The records of the chapters are the best there are: by arithmetic, by trying everything, or by shortest paths ---


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
