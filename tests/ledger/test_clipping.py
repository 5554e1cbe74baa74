"""Clipping by the global norm: what is refused, how long it takes, and what it holds."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

import drawing
from lib import Model, PuzzleError, Scalar, Setting, TraceError, referee, run, trace_from_json, trace_to_json
from lib.ledger.costs import CLASSIC
from tests.support.refusals import Refused
from tests.support.schedules.clipping import Rank, pipeline

GAME = Setting(clip=True)


# --- What is refused ---


async def some_batches(rank: Rank) -> None:
    rank.model.norm(0, rank.gradients([0])[0])


async def another_layer(rank: Rank) -> None:
    rank.model.norm(1, rank.gradients([0, 1])[0])


async def of_a_weight(rank: Rank) -> None:
    rank.model.norm(0, rank.weights[0])  # type: ignore[arg-type]


async def some_layers(rank: Rank) -> None:
    grads = rank.gradients([0, 1])
    rank.update(grads, rank.model.norm(0, grads[0]))


async def some_shards(rank: Rank) -> None:
    grads = rank.gradients([0, 1])
    rank.update(grads, rank.model.norm(0, grads[0].shard(1, 2)))


async def no_norm(rank: Rank) -> None:
    rank.update(rank.gradients([0, 1]), None)


async def a_gradient(rank: Rank) -> None:
    grads = rank.gradients([0, 1])
    rank.update(grads, grads[0])


async def added_twice(rank: Rank) -> None:
    norm = rank.model.norm(0, rank.gradients([0, 1])[0])
    norm + norm


async def reduced_twice(rank: Rank) -> None:
    await rank.model.allreduce(rank.model.norm(0, rank.gradients([0, 1])[0]), 0)


async def shard_and_layer(rank: Rank) -> None:
    grads = rank.gradients([0, 1])
    rank.model.norm(0, grads[0].shard(1, 2)) + rank.model.norm(0, grads[0])


async def another_step(rank: Rank) -> None:
    grads = rank.gradients([0, 1])
    norm = rank.model.norm(0, grads[0]) + rank.model.norm(1, grads[1])
    rank.update(grads, norm)
    rank.update(rank.gradients([0, 1], 1), norm)


async def steps_mixed(rank: Rank) -> None:
    grads = rank.gradients([0, 1])
    norm = rank.model.norm(0, grads[0])
    rank.update(grads, norm + rank.model.norm(1, grads[1]))
    norm + rank.model.norm(1, rank.gradients([0, 1], 1)[1])


async def gathered(rank: Rank) -> None:
    await rank.model.allgather(rank.model.norm(0, rank.gradients([0, 1])[0]), 0)


REFUSED: dict[Callable[[Rank], Any], Refused] = {
    some_batches: Refused("norm of some batches", batches="batch 0 of 2", missing="batch 1"),
    another_layer: Refused("norm of another layer", layer=1),
    of_a_weight: Refused(
        "wrong kind for use", use="grad", kind="a weight gradient", value="the weight of layer 0, unsharded, step 0"
    ),
    some_layers: Refused("partial norm", norm="the layers {0} of 2"),
    some_shards: Refused("partial norm", norm="shards {1} of 2 of layer 0"),
    no_norm: Refused("no scale"),
    a_gradient: Refused("scale no norm", scale="the weight gradient of layer 0, batches 0, 1 of 2, unsharded"),
    added_twice: Refused("in both", thing="layer", number=0, both="both the first value and the second value"),
    reduced_twice: Refused("in both", thing="layer", number=0, both="both rank 0 and rank 1"),
    shard_and_layer: Refused("in both", thing="shard", number=1, both="both the first value and the second value"),
    another_step: Refused(
        "norm of another step",
        scale="norm of the layers {0, 1} of 2",
        grad="weight gradient of layer 0, batches 0, 1 of 2, unsharded, step 1",
    ),
    steps_mixed: Refused(
        "values differ",
        verb="sum",
        differ="step",
        who="the first value",
        first="norm of the layers {0} of 2",
        other="norm of the layers {1} of 2, step 1",
    ),
    gathered: Refused("no shards to gather"),
}


def refused(wrong: Callable[[Rank], Any], **changes: Any) -> PuzzleError | None:
    async def schedule(model: Model) -> None:
        await wrong(Rank(model))

    return run(schedule, 2, 2, 2, setting=Setting(**{"steps": 2, "clip": True, **changes})).error


@pytest.mark.parametrize("wrong", REFUSED)
def test_what_a_norm_cannot_be_is_refused_in_words(wrong: Callable[[Rank], Any]) -> None:
    REFUSED[wrong].require(refused(wrong))


async def older_weights(rank: Rank) -> None:
    first = rank.weights[:]
    grads = rank.gradients([0, 1])
    rank.update(grads, rank.model.norm(0, grads[0]) + rank.model.norm(1, grads[1]))
    old = [*rank.weights]
    rank.weights = first
    late = rank.gradients([0, 1], 1)
    rank.weights = old
    new = rank.gradients([0, 1], 1)
    rank.update(new, rank.model.norm(0, late[0]) + rank.model.norm(1, late[1]))


def test_the_norm_is_of_gradients_of_the_same_version() -> None:
    Refused("norm of another step").require(refused(older_weights, lag=1))


@pytest.mark.parametrize("wrong", [some_batches, a_gradient])
def test_where_nothing_is_clipped_there_is_no_norm(wrong: Callable[[Rank], Any]) -> None:
    call = "norm" if wrong is some_batches else "scale="
    Refused("no clipping", call=call).require(refused(wrong, clip=False))


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"clip": 1}, Refused("not boolean", name="clip", got=1)),
        ({"clip": True, "task": "local"}, Refused("clip without training")),
    ],
)
def test_a_setting_that_cannot_be_is_refused(fields: Any, expected: Refused) -> None:
    with expected:
        Setting(**fields)


@pytest.mark.parametrize(
    ("label", "expected"),
    [
        ((2, 0, {0}, 3), Refused("no norm", layers=2, total=3)),
        ((2, 0, set(), 2), Refused("no norm", layers=2, total=2)),
        ((2, 0, {2}, 2), Refused("does not exist", thing="shard", number=2)),
        ((2, 1, {0}, 2, 1), Refused("version not older", older=1, step=1)),
    ],
)
def test_an_impossible_norm_is_refused(label: Any, expected: Refused) -> None:
    with expected:
        Scalar(*label)


# --- Time, memory and traffic ---


def test_a_norm_is_one_element_and_takes_the_time_of_an_all_reduce() -> None:
    unclipped = referee(run(pipeline, 2, 2, 2, setting=Setting()).trace)
    clipped = referee(run(pipeline, 2, 2, 2, setting=GAME).trace)
    assert clipped.error is unclipped.error is None
    assert round(clipped.makespan - unclipped.makespan, 9) == 0.3
    assert clipped.ranks[0].memory[-2] - unclipped.ranks[0].memory[-2] == 1  # when the update starts
    assert clipped.traffic - unclipped.traffic == 1  # of one element, half goes around twice
    by_hop = replace(CLASSIC, name="by hop", ticks={**CLASSIC.ticks, "allreduce": 0}, alpha={"allreduce": 7})
    report = referee(run(pipeline, 2, 2, 2, setting=Setting(by_hop, clip=True)).trace)
    assert round(report.makespan - unclipped.makespan, 9) == 1.4


# --- The record ---


def test_a_trace_says_that_gradients_are_clipped() -> None:
    text = trace_to_json(run(pipeline, 2, 2, 2, setting=GAME).trace)
    assert json.loads(text)["clip"] is True
    assert referee(trace_from_json(text)).error is None
    plain = {name: content for name, content in json.loads(text).items() if name != "clip"}
    Refused("no clipping", call="norm").require(referee(trace_from_json(json.dumps(plain))).error)
    with Refused("not boolean", name="clip", error=TraceError):
        trace_from_json(json.dumps({**plain, "clip": "yes"}))


def test_a_picture_shows_a_norm() -> None:
    assert "|∇W|" in str(drawing.svg(Scalar(2, 0, frozenset({0}), 2).draw()))
