"""`play` without targets: any schedule at any size and in any setting, and what it refuses."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from drawing.palette import OPERATIONS, batch_colour
from lib import COSTS, Model, PuzzleError, Report, referee, run
from lib.ledger.setting import Setting
from puzzles import play
from puzzles.player.display import FreeResult
from puzzles.player.result import Result
from puzzles.tracks import UnknownPuzzleError
from solutions.ddp import ddp
from solutions.tensor_parallel import tensor_parallel
from tests.support.schedules.groups import hybrid_shard
from tests.support.schedules.shards import local_sgd

MESH = {"replica": 2, "shard": 4}


def free(*arguments: Any, **options: Any) -> FreeResult:
    result = play(*arguments, **options)
    assert isinstance(result, FreeResult)
    return result


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("schedule", "size", "options"),
    [
        (ddp, (3, 5, 5), {}),
        (ddp, (3, 4, 4), {"costs": "slow"}),
        (hybrid_shard, (2, 8, 8), {"costs": "islands", "mesh": MESH}),
        (tensor_parallel, (2, 1, 4), {"costs": "quarters", "layer": "block"}),
        (local_sgd(2), (2, 2, 2), {"costs": "slow", "steps": 4, "task": "local"}),
    ],
)
def test_it_takes_what_the_referee_says_of_the_same_run(schedule: Any, size: Any, options: Any) -> None:
    result = free(schedule, size=size, **options)
    report = referee(run(schedule, *size, setting=Setting(**options)).trace)
    assert result.status == "correct"
    assert (result.values["timesteps"], result.values["peak_memory"]) == (report.timesteps, report.peak.memory)
    assert isinstance(result.report, Report)
    assert f"{report.timesteps:g} timesteps" in result.text()
    assert "★" not in result.text() + result.page()
    assert "target <" not in result.text()
    assert "<svg" in result.page()


def test_a_puzzles_name_gives_what_is_left_out_and_its_targets_do_not_apply() -> None:
    for arguments in ((ddp,), ("ddp", ddp), ("3", ddp), (3, ddp)):
        result = free(*arguments, costs="slow")
        assert result.trace is not None
        assert result.trace.size == (2, 4, 4)
        assert "4 ranks, costs classic" in result.text()


def test_a_puzzles_own_size_is_that_puzzle() -> None:
    result = play(ddp, size=(2, 4, 4), costs=COSTS["classic"])
    assert isinstance(result, Result)
    assert result.stars == 2


def test_why_explains_the_peak() -> None:
    plain, asked = free(ddp, size=(2, 2, 2)), free(ddp, size=(2, 2, 2), why=True)
    assert asked.why == plain.why
    assert asked.why[0] in asked.text()
    assert asked.why[0] not in plain.text()
    assert "<pre" in asked.page()


async def test_on_a_running_loop_it_is_awaited(capsys: pytest.CaptureFixture[str]) -> None:
    result = await play(ddp, size=(1, 2, 2))
    assert ("2.3" in repr(result), "1,048,576" in repr(result)) == (True, True)
    assert "2.3 timesteps" in capsys.readouterr().out
    assert [task for task in asyncio.all_tasks() if "rank" in task.get_name()] == []


def crashes(model: Model) -> None:
    weight, _ = model.load_weights(0)
    raise ValueError(f"<b>{weight.layer}</b>")


def halves(model: Model) -> None:
    weight, _ = model.load_weights(0)
    inp = model.get_activation([0])
    model.backward_weight(0, inp, model.loss(model.forward(0, inp, weight)))


def endless(model: Model) -> None:
    while True:
        pass


def forged(model: Model) -> None:
    weight, state = model.load_weights(0)
    model.set_final_weight(0, model.update(0, model.fake_grad(0, [0]), weight, state)[0])


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("schedule", "reason", "facts"),
    [
        (crashes, "crash", ("rank 0, t=0", "ValueError: <b>0</b>")),
        (halves, "rule", ("backward_weight has no price", "costs that price it: parts")),
        (endless, "timeout", ("rank 0", "0.2 s")),
        (forged, "rule", ("never computed", "fake_grad")),
        (lambda: None, "crash", ("one argument, the model",)),
    ],
)
def test_a_failure_shows_the_line_and_the_reason(schedule: Any, reason: str, facts: tuple[str, ...]) -> None:
    result = free(schedule, size=(1, 1, 1), seconds=0.2)
    assert (result.status, result.reason, result.report, result.values) == ("failed", reason, None, {})
    assert all(fact in result.message for fact in facts), result.message
    assert result.place.line
    assert any(number == result.place.line for number, _ in result.place.excerpt())
    assert "->" in result.text()
    assert "<b>0</b>" not in result.page()


def test_a_run_that_failed_is_drawn_as_far_as_it_got() -> None:
    result = free(halves, size=(1, 1, 1))
    assert result.trace is not None
    assert [op.name for op in result.trace.events(0)] == ["forward", "loss"]
    assert "<svg" in result.page()


@pytest.mark.parametrize("given", [None, 3, "text"])
def test_what_is_no_function_is_refused_by_name(given: Any) -> None:
    assert "not " in free("mine", given, size=(1, 1, 1)).message
    assert "mine" in free("mine", given, size=(1, 1, 1)).message


def test_a_coroutine_in_place_of_the_function() -> None:
    async def mine(model: Model | None) -> None: ...

    assert "coroutine" in free(mine(None), size=(1, 1, 1)).message


def hers(model: Model) -> None: ...


@pytest.mark.parametrize(
    ("options", "facts"),
    [
        ({"costs": "slow"}, ("no puzzle hers", "size=(layers, batches, ranks)")),
        ({"size": (2, 2)}, ("layers, batches and ranks", "got 2,2")),
        ({"size": "2,2,2"}, ("layers, batches and ranks", "got 2,2,2")),
        ({"size": (2, 2, True)}, ("whole number", "True")),
        ({"size": (2, 2, 2), "costs": "partz"}, ("no costs 'partz'", "'parts'")),
        ({"size": (2, 2, 2), "mesh": 3}, ("mesh", "got 3")),
    ],
)
def test_bad_input_is_refused_before_anything_runs(options: dict[str, Any], facts: tuple[str, ...]) -> None:
    with pytest.raises(PuzzleError) as why:
        play(hers, **options)
    assert all(fact in str(why.value) for fact in facts), why.value


def test_a_class_of_another_track_has_no_size() -> None:
    with pytest.raises(PuzzleError, match="track 'engine'"):
        play("FSDP", hers, size=(1, 1, 1))


def test_without_a_size_the_way_to_play_freely_is_shown() -> None:
    with pytest.raises(UnknownPuzzleError, match=r"play\(hers, size="):
        play(hers)


@pytest.mark.slow
def test_the_picture_has_the_colours_that_are_asked_for() -> None:
    from solutions.gpipe import gpipe

    result = play("gpipe", gpipe, colour="microbatch")
    shown = [
        result.picture,
        play("gpipe", gpipe).picture,
        free(gpipe, size=(4, 2, 4), colour="microbatch").page(),
    ]
    assert [batch_colour(1) in picture for picture in shown] == [True, False, True]
    failed = play(
        "gpipe", lambda model: model.forward(0, model.get_activation([1]), model.load_weights(0)[0]), colour="operation"
    )
    assert (failed.status, OPERATIONS["forward"] in failed.picture) == ("failed", True)


def test_a_colour_that_there_is_not_is_refused_before_anything_runs() -> None:
    def untouched(model: Model) -> None:
        raise AssertionError

    for size in ({}, {"size": (1, 1, 1)}):
        with pytest.raises(PuzzleError) as refusal:
            play("gpipe", untouched, colour="stage", **size)
        assert all(word in str(refusal.value) for word in ("'layer'", "'microbatch'", "'operation'", "'stage'"))
    for slug in ("ffn", "FSDP"):
        with pytest.raises(PuzzleError, match=f"leave it out for {slug}"):
            play(slug, untouched, colour="microbatch")
