"""`play` runs, judges and shows, with and without a running loop, alone and among other tasks, and cleans up."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from typing import Any

import pytest
from markupsafe import escape

import lib
from lib import Model
from lib.ledger.runner import PATIENCE
from puzzles import play
from puzzles.catalog.schedule import PUZZLES
from puzzles.judge.verdict import Verdict
from puzzles.player import play as module
from puzzles.player.display import rendered
from puzzles.player.result import Result
from puzzles.tracks import TRACKS, UnknownPuzzleError
from tests.support import CLASSICS
from tests.support.solved import SOME_PUZZLES, solved_by

SECONDS = TRACKS["schedule"].judge.turn_seconds

CLASSIC = {classic.slug: classic for classic in CLASSICS}


def solution(slug: str) -> Callable[[Model], Any]:
    return CLASSIC[slug].solution


@pytest.mark.sampled(1)
@pytest.mark.parametrize("slug", SOME_PUZZLES)
def test_a_record_gets_three_stars_and_as_many_puppies_as_ranks(slug: str) -> None:
    goal = PUZZLES[slug].goal
    best = [
        r
        for r in goal.records_to_beat(goal.family)
        if goal.meets_time(r.timesteps) and goal.meets_memory(r.peak_memory)
    ]
    functions = (function for record in best for puzzle, function in solved_by(record) if puzzle.slug == slug)
    result = play(slug, next(functions))
    assert (result.status, result.stars) == ("passed", 3)
    smile = rendered("three_stars", result)
    assert smile.count("<animateTransform") == 2 * PUZZLES[slug].goal.size.ranks
    assert escape(PUZZLES[slug].praise) in result.page()
    assert len({puzzle.praise for puzzle in PUZZLES.values()}) == len(PUZZLES)
    assert "http" not in smile.replace("http://www.w3.org/2000/svg", "")


def test_two_stars_show_no_puppies_but_what_is_known_to_be_better() -> None:
    result = play("fsdp", solution("fsdp"))
    goal, peak = PUZZLES["fsdp"].goal, result.report.peak.memory
    point = result.report.timesteps, peak, result.report.traffic
    best = min((r for r in goal.rivals(goal.family) if r.dominates(*point)), key=lambda record: record.figures)
    assert (result.stars, rendered("three_stars", result)) == (2, "")
    assert goal.words(best) in result.next_step
    assert "show checkpoint" in result.next_step


async def test_on_a_running_loop_it_is_awaited() -> None:
    result = await play("ddp", solution("ddp"))
    assert repr(result) == "<ddp: passed, ★★☆>"


async def test_an_unawaited_play_still_runs(capsys: pytest.CaptureFixture[str]) -> None:
    under_way = play("ddp", solution("ddp"))
    await asyncio.wait([under_way])
    assert "ddp: Solved!" in capsys.readouterr().out


@pytest.mark.slow
def test_the_puzzle_may_be_named_in_several_ways() -> None:
    fsdp = solution("fsdp")
    assert {
        repr(play(*call)) for call in [("fsdp", fsdp), (7, fsdp), ("7", fsdp), (PUZZLES["fsdp"], fsdp), (fsdp,)]
    } == {"<fsdp: passed, ★★☆>"}


def test_a_wrong_name_is_refused_immediately() -> None:
    with pytest.raises(UnknownPuzzleError, match="did you mean 'fsdp'"):
        play("fdsp", solution("fsdp"))
    with pytest.raises(UnknownPuzzleError, match="does mine solve"):
        play(mine)
    with pytest.raises(UnknownPuzzleError, match="does <lambda> solve"):
        play(lambda model: None)


def mine(model: Model) -> None: ...


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), float("inf"), "x"])
def test_a_limit_that_is_not_a_time_is_refused_before_anything_runs(seconds: Any) -> None:
    with pytest.raises(ValueError, match="seconds=60"):
        play("ddp", mine, seconds=seconds)


# --- What goes wrong ---


async def without_allreduce(model: Model) -> None:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()
    activations[0] = model.get_activation([model.rank])
    for layer in range(model.LAYERS):
        weights[layer], opt_states[layer] = model.load_weights(layer)
        activations[layer + 1] = model.forward(layer, activations[layer], weights[layer])
    grad_activations[2] = model.loss(activations[2])
    grad_weights[1], grad_activations[1] = model.backward(1, activations[1], grad_activations[2], weights[1])
    model.update(1, grad_weights[1], weights[1], opt_states[1])  # refused here


async def waits_for_nothing(model: Model) -> None:
    if model.rank == 1:
        await model.receive()  # waits here


async def hangs_outside(model: Model) -> None:
    await asyncio.Event().wait()  # hangs here


async def never_ends(model: Model) -> None:
    while True:  # spins here
        model.memory()


async def crashes(model: Model) -> None:
    if model.rank == 3:
        raise ZeroDivisionError("one over none")  # crashes here
    await model.allreduce(model.fake_grad(0, []), 0)


def yields(model: Model) -> Any:
    yield model


def lies(model: Model) -> None:
    model.forward(0, model.get_activation([0]), lib.Weight(0, 2, 0))  # lies here


def unfinished(model: Model) -> None:
    model.get_activation([0])


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("function", "reason", "words", "line"),
    [
        (without_allreduce, "rule", "rank 0, t=3, update(layer=1): ", "# refused here"),
        (waits_for_nothing, "deadlock", "rank 1 waits in receive()", "# waits here"),
        (hangs_outside, "deadlock", "for something outside the game", "# hangs here"),
        (never_ends, "timeout", f"rank 0, t=0: time was up after {SECONDS:g} s; look for a loop", ""),
        (crashes, "crash", "rank 3, t=0: ZeroDivisionError: one over none", "# crashes here"),
        (yields, "crash", "'yield' in ddp", ""),
        (lies, "rule", "weight of layer 0", "# lies here"),
        (unfinished, "incomplete", "layer 0", ""),
        (None, "crash", "play('ddp', ddp)", ""),
        (lambda: None, "crash", "one argument", ""),
    ],
    ids=lambda value: getattr(value, "__name__", None) if callable(value) else "",
)
async def test_a_failure_has_a_message_and_a_line(function: Any, reason: str, words: str, line: str) -> None:
    before = asyncio.all_tasks()
    result = await play("ddp", function)
    assert (result.status, result.reason, result.stars) == ("failed", reason, 0)
    assert words in result.message
    marked = [code for number, code in result.place.excerpt() if number == result.place.line]
    assert line in "".join(marked)
    assert line in result.page()
    assert asyncio.all_tasks() == before


async def test_the_picture_goes_as_far_as_the_run_went() -> None:
    result = await play("ddp", without_allreduce)
    shown = result.page()
    assert shown.count("<svg") == 1
    assert "batch 0 of 4" in shown
    assert "Traceback" not in shown
    assert (await play("ddp", None)).picture == ""


def test_a_hang_is_waited_for_less_than_a_second() -> None:
    assert max(PATIENCE, SECONDS) < 1


@pytest.mark.slow
async def test_a_hang_is_reported_within_a_second() -> None:
    clock = asyncio.get_running_loop().time
    start = clock()
    for function in (waits_for_nothing, hangs_outside, never_ends):
        assert (await play("ddp", function)).status == "failed"
    assert clock() - start < 6  # three times what is allowed to two of them, for a machine that is busy


async def test_a_rank_may_wait_for_its_own_helpers() -> None:
    async def helped(model: Model) -> None:
        first, second = asyncio.Event(), asyncio.Event()

        async def helper() -> None:
            await first.wait()
            await asyncio.gather(asyncio.sleep(0), asyncio.sleep(0))
            second.set()

        task = asyncio.create_task(helper())
        first.set()
        await second.wait()
        await task
        await solution("ddp")(model)

    assert (await play("ddp", helped)).status == "passed"


async def test_over_target_says_by_how_much_and_where_to_look() -> None:
    def hoards(model: Model) -> None:
        model.activations["hoard"] = model.get_activation(range(model.BATCHES))
        solution("basic")(model)

    result = await play("basic", hoards)
    assert (result.status, result.stars) == ("over_target", 1)
    assert "< 2.7M" in result.message
    assert "524,288" in result.next_step


# --- Nothing is left behind ---


async def test_tasks_that_a_schedule_forgets_are_ended() -> None:
    async def forgets(model: Model) -> None:
        async def inner() -> None:
            kept.append(asyncio.create_task(asyncio.Event().wait(), name="grandchild"))
            await asyncio.Event().wait()

        kept.append(asyncio.create_task(inner(), name="child"))
        await asyncio.sleep(0)
        await solution("ddp")(model)

    kept: list[asyncio.Task[Any]] = []
    before = asyncio.all_tasks()
    assert (await play("ddp", forgets)).status == "passed"
    assert asyncio.all_tasks() == before
    assert {task.get_name() for task in kept} == {"child", "grandchild"}


async def test_cancelling_a_play_cancels_its_ranks() -> None:
    started = asyncio.Event()

    async def patient(model: Model) -> None:
        started.set()
        await asyncio.Event().wait()

    before = asyncio.all_tasks()
    under_way = play("ddp", patient)
    await started.wait()
    under_way.cancel()
    await asyncio.wait([under_way])
    assert under_way.cancelled()
    assert asyncio.all_tasks() == before
    assert (await play("ddp", solution("ddp"))).status == "passed"


async def test_ctrl_c_ends_a_turn_and_is_reported() -> None:
    async def interrupted(model: Model) -> None:
        signal.raise_signal(signal.SIGINT)

    before = signal.getsignal(signal.SIGINT), asyncio.all_tasks()
    result = await play("ddp", interrupted)
    assert result.reason == "interrupted"
    assert (signal.getsignal(signal.SIGINT), asyncio.all_tasks()) == before


def test_ctrl_c_ends_a_script() -> None:
    def interrupted(model: Model) -> None:
        signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        play("basic", interrupted)


# --- Small things ---


def test_the_page_escapes_what_comes_from_the_player() -> None:
    verdict = Verdict("ddp", "schedule", "failed", {}, message="<script>`x<y`", notes=("a & b",))
    result = Result(PUZZLES["ddp"], verdict)
    assert "&lt;script&gt;" in result.page()
    assert "<script>" not in result.page()
    assert "a &amp; b" in result.page()


def test_the_text_marks_the_line() -> None:
    result = play("ddp", without_allreduce)
    (marked,) = [line for line in result.text().splitlines() if line.startswith("->")]
    assert marked.endswith("# refused here")


def test_play_is_what_the_package_exports() -> None:
    assert play is module.play
    import puzzles

    with pytest.raises(AttributeError, match="nothing"):
        puzzles.nothing
