"""`play`: runs, judges and shows on every track, freely at any size, and in a notebook's kernel; and cleans up."""

import asyncio
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from markupsafe import escape

import lib
from drawing.palette import OPERATIONS, batch_colour
from lib import COSTS, Model, PuzzleError, Report, referee, run
from lib.ledger.runner import PATIENCE
from lib.ledger.setting import Setting
from puzzles import play
from puzzles.catalog.schedule import PUZZLES
from puzzles.judge.grader import grade_file
from puzzles.judge.verdict import Verdict
from puzzles.player import play as module
from puzzles.player.display import FreeResult, rendered
from puzzles.player.result import Result
from puzzles.tracks import TRACKS, UnknownPuzzleError, find, track_of
from solutions.ddp import ddp
from solutions.tensor_parallel import tensor_parallel
from tests.support import CLASSICS
from tests.support.commands import ROOT
from tests.support.commands import solution as source
from tests.support.kernel import Kernel, live_kernel
from tests.support.schedules.groups import hybrid_shard
from tests.support.schedules.shards import local_sgd
from tests.support.solved import SOME_PUZZLES, solved_by

pytestmark = pytest.mark.usefixtures("in_this_process")

# --- `play` runs, judges and shows, with and without a running loop, alone and among other tasks, and cleans up ---


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
    with pytest.raises(UnknownPuzzleError, match=r"does mine solve.*play\(mine, size="):
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


# --- `play` without targets: any schedule at any size and in any setting, and what it refuses ---


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


async def test_on_a_running_loop_free_play_is_awaited(capsys: pytest.CaptureFixture[str]) -> None:
    result = await play(ddp, size=(1, 2, 2))
    assert ("2.3" in repr(result), "1,048,576" in repr(result)) == (True, True)
    assert "2.3 timesteps" in capsys.readouterr().out
    assert [task for task in asyncio.all_tasks() if "rank" in task.get_name()] == []


def crashes_on_load(model: Model) -> None:
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
        (crashes_on_load, "crash", ("rank 0, t=0", "ValueError: <b>0</b>")),
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
        ({"puzzle": "FSDP", "size": (1, 1, 1)}, ("track 'engine'",)),
    ],
)
def test_bad_input_is_refused_before_anything_runs(options: dict[str, Any], facts: tuple[str, ...]) -> None:
    with pytest.raises(PuzzleError) as why:
        play(options.pop("puzzle", "hers"), hers, **options)
    assert all(fact in str(why.value) for fact in facts), why.value


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


# --- `play` of classes and layouts; and on every track the words of `play` are those of `grade` ---


def starter(slug: str) -> str:
    track = track_of(slug)
    puzzle = track.puzzle(slug)
    return f"{track.words.starter_head([puzzle])}\n\n{puzzle.starter}"


def definition(path: Path, slug: str, text: str) -> Any:
    """A definition as a notebook has it: its lines are found, its module is no file of its own."""
    path.write_text(text, encoding="utf-8")
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(text, str(path), "exec"), names)
    return names[slug]


@pytest.fixture
def own_file(tmp_path: Path) -> Path:
    return tmp_path / "mine.py"


RING = source("engine/ring_all_reduce")
FSDP = source("engine/fsdp")

SAME = [
    ("fsdp", source("fsdp")),
    ("gpipe", source("gpipe").replace("def gpipe", "def other") + source("pipeline").replace("pipeline", "gpipe")),
    ("basic", source("basic").replace("model.BATCHES", "4")),
    ("basic", source("basic").replace("return model", "model.load_weights(0)\n    return model")),
    ("ddp", "def ddp(model):\n    pass\n"),
    ("ddp", "def ddp(model):\n    yield\n"),
    ("ddp", "async def ddp(model):\n    await model.receive()\n"),
    ("ddp", "async def ddp(model):\n    [][model.rank]\n"),
    ("FSDP", FSDP),
    (
        "RingAllReduce",
        RING.replace("return x\n", "x[0] += len(x) != 2048\n        return x\n"),
    ),
    ("RingAllReduce", RING.replace("return x\n", "x[0] += 1\n        return x\n")),
    ("FSDP", FSDP.replace("        return", "        1 / 0\n        return", 1)),
    ("FSDP", "class FSDP:\n    def forward(self, x): pass\n"),
    ("FSDP", FSDP.replace("def load_checkpoint(self, params", "def load_checkpoint(self")),
    ("FSDP", "def FSDP(): pass\n"),
    ("ddp", "\nclass ddp:\n    def __init__(self, model): pass\n"),
    ("ffn", "class ffn:\n    def __init__(self, graph): pass\n"),
    ("FSDP", starter("FSDP")),
    ("ffn", source("layout/ffn")),
    ("ffn", "def ffn(graph):\n    graph.shard('relu', ((2, 4),))\n"),
    ("ffn", "def ffn(graph):\n    graph.shard('relu', ((16, 1),))\n"),
    ("ffn", "def ffn(graph):\n    1 / 0\n"),
    ("ffn", "async def ffn(graph): pass\n"),
    ("ffn", starter("ffn")),
]


@pytest.mark.sampled(1)
@pytest.mark.sandboxed
@pytest.mark.parametrize(("slug", "text"), SAME)
def test_play_and_grade_say_the_same(slug: str, text: str, own_file: Path) -> None:
    """Except for line numbers, which `play` shows next to the message."""
    result = play(slug, definition(own_file, slug, text))
    (verdict,) = grade_file(str(own_file), [find(slug)]).verdicts
    told = verdict.as_json()
    told["message"] = re.sub(r"^line \d+: ", "", told["message"])
    told["notes"] = [re.sub(r"fails: line \d+: ", "fails: ", note) for note in told["notes"]]
    assert result.as_dict() == told
    assert result.place.line == verdict.line
    assert result.figures == (track_of(slug).words.figures_text(find(slug), verdict.figures) if verdict.figures else "")


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("slug", "name"), [("ddp", "ddp"), ("FSDP", "engine/fsdp"), ("ffn", "layout/ffn")])
def test_a_script_that_plays_is_graded_like_one_that_does_not(slug: str, name: str, own_file: Path) -> None:
    own_file.write_text(source(name) + f"\n\nfrom puzzles import play\n\nplay({slug!r}, {slug})\nplay({slug})\n")
    (verdict,) = grade_file(str(own_file), [find(slug)]).verdicts
    assert (verdict.status, verdict.message, verdict.printed) == ("passed", "", ())


def test_over_target_a_class_is_shown_what_it_calls(own_file: Path) -> None:
    once, twice = "self.all_reduce(w0_grad)", "self.all_reduce(self.all_reduce(w0_grad)) / self.num_devices"
    slug = "DataParallel"
    result = play(slug, definition(own_file, slug, source("engine/data_parallel").replace(once, twice)))
    assert result.status == "over_target"
    assert "3 all_reduce." in result.next_step
    assert "`puzzles show DataParallel --about`" in result.next_step


@pytest.mark.slow
def test_a_class_has_its_figures_its_stars_and_as_many_puppies_as_devices(own_file: Path) -> None:
    beaten = play(definition(own_file, "FSDP", FSDP))
    assert "8,576 peak bytes" in beaten.next_step
    cls = definition(own_file, "FSDP", source("engine/records/fsdp"))
    result = play(cls)
    assert (repr(result), result.values["sent"]) == ("<FSDP: passed, ★★★>", 18_432)
    assert result.text().startswith("★★★ FSDP: Solved! 18,432 of 18,432 bytes sent, 24,576 of 24,576 flops, ")
    page = result.page()
    assert "<b>18,432</b> bytes sent" in page
    assert page.count("<animateTransform") == 2 * 4
    assert (result.picture, result.trace, result.report) == ("", None, None)


def test_a_failing_class_has_the_line_in_its_method(own_file: Path) -> None:
    text = FSDP.replace("        return", "        raise KeyError('wo')  # here\n        return", 1)
    result = play("FSDP", definition(own_file, "FSDP", text))
    assert (result.status, result.reason) == ("failed", "crash")
    assert re.match(r"raised on device 3 of 4, in forward: KeyError: 'wo'", result.message)
    assert [c for line, c in result.place.excerpt() if line == result.place.line] == ["raise KeyError('wo')  # here"]


def test_a_layout_has_the_picture_of_its_plan(own_file: Path) -> None:
    result = play("layout:ffn", definition(own_file, "ffn", source("layout/ffn")))
    assert result.text().startswith("★★★ ffn: Solved! 12,288 of 12,288 bytes moved, ")
    assert result.trace.bytes == 12_288
    picture = result.picture
    assert "matmul2" in picture
    assert picture in result.page()


LOOP = "while True:  # stuck\n"
ENDLESS = {
    "FSDP": FSDP.replace(
        "        return", "        while True:  # stuck\n            pass  # stuck\n        return", 1
    ),
    "ffn": f"def ffn(graph):\n    {LOOP}        pass  # stuck\n",
}


@pytest.mark.slow
@pytest.mark.parametrize("slug", ENDLESS)
async def test_what_never_ends_is_stopped_with_its_line(slug: str, own_file: Path) -> None:
    before = asyncio.all_tasks()
    result = await play(slug, definition(own_file, slug, ENDLESS[slug]), seconds=0.3)
    assert (result.status, result.reason) == ("failed", "timeout")
    assert "0.3 s" in result.message
    marked = [code.strip() for line, code in result.place.excerpt() if line == result.place.line]
    assert marked in (["while True:  # stuck"], ["pass  # stuck"])
    assert asyncio.all_tasks() == before


INTERRUPTED = {
    "FSDP": FSDP.replace("        return", "        signal.raise_signal(2)\n        return", 1),
    "ffn": "def ffn(graph):\n    signal.raise_signal(2)\n",
}


@pytest.mark.parametrize("slug", INTERRUPTED)
async def test_ctrl_c_ends_a_class_or_a_layout(slug: str, own_file: Path) -> None:
    result = await play(slug, definition(own_file, slug, "import signal\n" + INTERRUPTED[slug]))
    assert (result.status, result.reason) == ("failed", "interrupted")
    assert "you interrupted it" in result.message


async def test_play_takes_the_class_itself(own_file: Path) -> None:
    result = await play("FSDP", None)
    words = "play got the puzzle's name, but not your class; write play('FSDP', FSDP)"
    assert (result.reason, result.message) == ("crash", words)


# --- `play` in a live kernel: out of order, again after an exception, two at once, interrupted; and in a terminal ---


BOTH = "from solutions.ddp import ddp\nfrom solutions.fsdp import fsdp\n"
TASKS = """
import asyncio
print([name for name in map(repr, asyncio.all_tasks()) if "puzzles" in name or "_rank" in name])
"""


@pytest.fixture(scope="module")
def kernel() -> Iterator[Kernel]:
    with live_kernel() as kernel:
        kernel.run("from lib import Model, WeightGrad\nfrom puzzles import play")
        yield kernel


@pytest.mark.slow
def test_a_starter_is_not_attempted_then_wrong_then_right(kernel: Kernel) -> None:
    assert "DDP: NOT ATTEMPTED" in run_and_play(kernel, PUZZLES["ddp"].starter).upper()
    wrong = PUZZLES["ddp"].starter.replace("# ----- end", "model.loss(activations[0])\n    # ----- end")
    shown = run_and_play(kernel, wrong)
    assert "rank 0, t=0, loss()" in shown
    assert "model.loss(activations[0])" in shown
    assert "Traceback" not in shown
    assert "ddp: Solved!" in run_and_play(kernel, BOTH)


def run_and_play(kernel: Kernel, cell: str) -> str:
    assert kernel.run(cell) == ""
    return kernel.run("await play('ddp', ddp)")


def test_the_result_is_shown_once_and_again_when_asked_for(kernel: Kernel) -> None:
    kernel.run(BOTH)
    shown = kernel.run("result = await play('ddp', ddp)\nresult")
    assert shown.count("text/html") == 1
    assert kernel.run("result").count("text/html") == 1
    assert kernel.run("print(result, result.as_dict()['stars'])") == "<ddp: passed, ★★☆> 2\n"


@pytest.mark.slow
def test_it_needs_no_await(kernel: Kernel) -> None:
    kernel.run(BOTH)
    shown = kernel.run("play('ddp', ddp)")
    assert "ddp: Solved!" in shown
    assert shown.count("text/html") == 1
    kernel.run("later = play('ddp', ddp)")
    assert kernel.run("print(await later)") == "<ddp: passed, ★★☆>\n"
    assert kernel.run(TASKS) == "[]\n"


@pytest.mark.slow
def test_two_at_once(kernel: Kernel) -> None:
    kernel.run(BOTH + "import asyncio")
    shown = kernel.run("print(await asyncio.gather(play('ddp', ddp), play('fsdp', fsdp), play('ddp', ddp)))")
    assert (shown.count("text/html"), shown.count("passed, ★★☆")) == (3, 3)


@pytest.mark.slow
def test_after_an_exception_and_out_of_order(kernel: Kernel) -> None:
    kernel.run(BOTH)
    crashed = kernel.run("async def half(model):\n    await model.allreduce(nonsense, 0)\nawait play('ddp', half)")
    assert "NameError" in crashed
    assert "no puzzle 'dpd'" in kernel.run("await play('dpd', ddp)")
    assert "fsdp: Solved!" in kernel.run("await play('fsdp', fsdp)")
    assert "ddp: Solved!" in kernel.run("await play('ddp', ddp)")
    assert kernel.run(TASKS) == "[]\n"


def test_the_classic_way_shows_a_refusal_without_the_machinery(kernel: Kernel) -> None:
    kernel.run("""
import asyncio
from lib import Dist
async def early(model):
    model.loss(model.get_activation([0]))
""")
    shown = kernel.run("dist = Dist(2)\nawait asyncio.gather(*[early(Model(rank, dist)) for rank in range(2)])")
    assert shown.startswith("RuleError: rank 0, t=0, loss(): ")
    places = [line.split(":")[0].strip() for line in kernel.traceback.splitlines()[1:]]
    assert places == ["line 2, in <module>", "line 4, in early"]


def test_a_spinning_cell_is_interrupted(kernel: Kernel) -> None:
    spin = """
async def spin(model):
    print("spinning", flush=True)
    while True:
        pass
await play("ddp", spin, seconds=600)
"""
    shown = kernel.run(spin, lambda text: kernel.manager.interrupt_kernel() if "spinning" in text else None)
    assert "interrupted" in shown
    assert "Traceback" not in shown
    assert kernel.run(TASKS) == "[]\n"


@pytest.mark.slow
def test_a_waiting_cell_is_interrupted(kernel: Kernel) -> None:
    wait = """
import asyncio
async def wait(model):
    print("waiting", flush=True)
    while True:
        await asyncio.sleep(0)
await play("basic", wait)
"""
    kernel.run(wait, lambda text: kernel.manager.interrupt_kernel() if "waiting" in text else None)
    assert kernel.run(TASKS) == "[]\n"
    assert kernel.run(BOTH + "(await play('ddp', ddp)).status").endswith("'passed'\n")


@pytest.mark.slow
def test_in_the_terminal_of_ipython() -> None:
    code = BOTH + "from puzzles import play\nawait play('ddp', ddp)\nplay('fsdp', fsdp)\n"
    command = [sys.executable, "-m", "IPython", "--no-banner", "--colors=NoColor", "--quick", "-c", code]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)
    assert "ddp: Solved! 5.1 timesteps" in done.stdout
    assert "<svg" not in done.stdout
    assert "fsdp: Solved! 19.9 timesteps" in done.stdout


IN_IPYTHON = """
import sys
from IPython.core.interactiveshell import InteractiveShell
InteractiveShell.instance().run_cell(sys.argv[1])
"""


@pytest.mark.slow
def test_next_to_another_lib_one_sentence_says_what_to_do(tmp_path: Path) -> None:
    """As in a clone of the original puzzles, whose folder comes first in a kernel that was started there."""
    (tmp_path / "lib.py").write_text("class Model: ...\n", encoding="utf-8")
    package = ROOT / "puzzles" / "package"
    for cell, advice in (
        ("from puzzles import play", "'import training_puzzles' first, or work in another folder"),
        ("import lib, training_puzzles", "'import training_puzzles' before anything that imports it"),
    ):
        done = subprocess.run(
            [sys.executable, "-c", IN_IPYTHON, cell],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{package}", "IPYTHONDIR": str(tmp_path / "profile")},
        )
        shown = done.stdout.strip()
        assert str(tmp_path / "lib.py") in shown
        assert advice in shown
        assert len(shown.splitlines()) == 1
