"""The schedule catalog: eight puzzles whose words, figures and starters agree with the runtime and with each other."""

from __future__ import annotations

import ast
import re
from importlib import import_module
from pathlib import Path

import pytest

from lib import CLASSIC_SETTING, Goal, Model, Size, referee, run
from puzzles.catalog.puzzle import END_OF_GAP, GAP
from puzzles.catalog.schedule import CLASSICS, PUZZLES, SchedulePuzzle, differences
from puzzles.judge.starters import is_unchanged_starter, starter_file
from puzzles.sandbox.worker.reading import Sketch, sketch
from puzzles.tracks import UnknownPuzzleError, find
from puzzles.tracks.schedule.words import reminder
from tests.screens.texts import approved
from tests.support.solved import reference_of

TABLE = {
    "basic": (Size(2, 4, 1), 17, 2_600_000),
    "grad_accum": (Size(2, 4, 1), 17, 2_000_000),
    "ddp": (Size(2, 4, 4), 5, 1_800_000),
    "wsdp": (Size(6, 4, 4), 20, 2_800_000),
    "fsdp": (Size(6, 4, 4), 20, 2_300_000),
    "pipeline": (Size(8, 4, 4), 66, 3_300_000),
    "gpipe": (Size(8, 4, 4), 33, 4_100_000),
    "pipeline_fsdp": (Size(4, 4, 16), 15, 1_000_000),
}

AWAITED = {
    "reduce",
    "broadcast",
    "allreduce",
    "allgather",
    "scatterreduce",
    "pass_to",
    "receive",
    "dispatch",
    "collect",
    "offload",
    "fetch",
} | {*("heads", "tokens")}

every_puzzle = pytest.mark.parametrize("puzzle", [pytest.param(p, id=slug) for slug, p in PUZZLES.items()])


def test_the_catalog_is_the_table_of_the_classic_puzzles():
    classics = [PUZZLES[slug] for slug in CLASSICS.slugs]
    assert {p.slug: (p.goal.size, p.goal.time, p.goal.memory) for p in classics} == TABLE
    assert all(p.goal.setting == CLASSIC_SETTING for p in classics)


@every_puzzle
def test_the_starter_is_a_valid_function_of_the_right_name_with_a_gap(puzzle: SchedulePuzzle):
    (function,) = ast.parse(puzzle.starter).body
    is_async = not {"basic", "grad_accum", "checkpoint"} & {puzzle.slug}
    assert isinstance(function, ast.AsyncFunctionDef if is_async else ast.FunctionDef)
    assert function.name == puzzle.slug
    assert ast.get_docstring(function)
    before, _, rest = puzzle.starter.partition(GAP)
    assert "model.storage()" in before
    result = "set_output" if puzzle.goal.setting.task == "infer" else "set_final_weight"
    gap, _, after = rest.partition(END_OF_GAP)
    assert result in after
    assert all(not line.strip() or line.strip().startswith("#") for line in gap.splitlines()), "a line of the solution"


@pytest.mark.sampled(12)
@every_puzzle
def test_the_starter_runs_up_to_its_gap_and_is_then_refused_not_crashed(puzzle: SchedulePuzzle):
    names: dict = {}
    exec(starter_file([puzzle], "mine.py"), names)
    error = run(names[puzzle.slug], *puzzle.goal.size, setting=puzzle.goal.setting).error
    assert re.match(r"rank \d+, t=0\b", str(error))


@pytest.mark.sampled(4)
@every_puzzle
def test_untouched_is_seen_through_comments_but_not_through_code(puzzle: SchedulePuzzle):
    def found(source: str) -> Sketch:
        return sketch(ast.parse(source).body[0])

    starter, gap = puzzle.starter, GAP + "\n    "
    for same in (
        starter,
        starter.replace(GAP, gap + "# later!\n"),
        starter.replace("(model: Model) -> Model", "(model)").replace("async def", "def"),
        starter.replace(GAP, gap + "assert False, 'TODO: Implement me'\n"),
        starter.replace(GAP, gap + "raise NotImplementedError('later')\n"),
        starter.replace(GAP, gap + "...\n").replace("for layer in", "for l in"),
    ):
        assert is_unchanged_starter(puzzle, found(same)), same
    for other in (
        starter.replace(GAP, gap + "pass\n"),
        starter.replace(GAP, gap + "assert False, model.loss(activations[0])\n"),
        starter.replace(GAP, gap + "forward(model)\n    raise NotImplementedError\n"),
        starter.replace(GAP, gap + "assert model.RANKS, 'TODO'\n"),
        starter.replace(GAP, gap + "raise ValueError\n"),
    ):
        assert not is_unchanged_starter(puzzle, found(other)), other
    assert not is_unchanged_starter(puzzle, Sketch())


def test_a_starter_file_holds_every_starter_and_says_how_to_go_on():
    text = starter_file(list(PUZZLES.values()), "folder/mine.py")
    assert [f.name for f in ast.parse(text).body if hasattr(f, "name") and f.name in PUZZLES] == list(PUZZLES)
    assert all(puzzle.starter in text for puzzle in PUZZLES.values())
    assert "puzzles grade mine.py" in text
    assert all(len(line) <= 110 for line in text.splitlines())


@pytest.mark.slow
def test_a_file_name_cannot_spoil_the_starter_file():
    ast.parse(starter_file(list(PUZZLES.values()), 'a"""\\n.py'))


@pytest.mark.sampled(4)
@every_puzzle
def test_the_reference_is_right_at_the_other_sizes_too(puzzle: SchedulePuzzle):
    assert 1 <= len(puzzle.other_sizes) <= 2
    for size in puzzle.other_sizes:
        assert size != puzzle.goal.size
        goal = Goal(puzzle.slug, size, 10**6, 10**9, setting=puzzle.goal.setting)
        outcome = run(reference_of(puzzle.slug), *size, setting=goal.setting)
        assert (outcome.error, referee(outcome.trace, goal).error) == (None, None)


@every_puzzle
def test_the_reminder_is_about_calls_that_exist_and_that_the_reference_makes(puzzle: SchedulePuzzle):
    source = Path(import_module(f"solutions.{puzzle.slug}").__file__).read_text()
    starter = puzzle.starter
    for name, (call, meaning) in zip(puzzle.calls, reminder(puzzle), strict=True):
        assert f"model.{name}(" in source
        assert meaning
        is_async = name in AWAITED
        assert call.startswith(f"await model.{name}(" if is_async else f"model.{name}(")
    used = {name for name in dir(Model) if f"model.{name}(" in source}
    assert used - set(puzzle.calls) <= {name for name in dir(Model) if f"model.{name}(" in starter}


def test_the_bubbles_are_what_the_texts_say():
    """Three quarters for the naive pipeline; for GPipe (K - 1) / (M + K - 1), three sevenths."""

    def bubble(slug: str) -> float:
        return referee(run(reference_of(slug), *PUZZLES[slug].goal.size).trace).bubble

    assert "three quarters" in PUZZLES["pipeline"].concept
    assert "three sevenths" in PUZZLES["gpipe"].concept
    assert bubble("pipeline") == pytest.approx(3 / 4, abs=0.02)
    assert bubble("gpipe") == pytest.approx(3 / 7, abs=0.01)


@pytest.mark.parametrize(
    ("wrong", "advice"),
    [
        ("fsdb", "did you mean 'fsdp'?"),
        ("grad_acum", "did you mean 'grad_accum'?"),
        ("pipelines", "did you mean 'pipeline'?"),
        ("accum", "did you mean 'grad_accum'?"),
        ("sdp", "did you mean 'wsdp' or 'fsdp'?"),
        ("nope", "'puzzles list' names them all"),
        ("zebra", "'puzzles list' names them all"),
        ("", "'puzzles list' names them all"),
        ("99", "'puzzles list' names them all"),
    ],
)
def test_a_wrong_name_is_answered_with_the_nearest_right_one(wrong: str, advice: str):
    with pytest.raises(UnknownPuzzleError) as refused:
        find(f"schedule:{wrong}")
    assert str(refused.value).startswith(f"there is no schedule puzzle '{wrong}'; {advice}")


def test_a_setting_is_shown_as_what_differs_from_the_classics():
    rows = {slug: [tuple(row) for row in differences(p.goal.setting, p.calls)] for slug, p in PUZZLES.items()}
    assert all(rows[slug] == [] for slug in CLASSICS.slugs)
    by_size = "0.15 steps a hop and 1 step for each 786,432 elements sent"
    assert ("`allreduce`", by_size, "0.3 steps") in rows["ddp_overlap"]
    approved(
        "schedule_puzzles", "a setting is shown as what differs from the classics", rows["zero1"], "1 step for each"
    )
    assert ("a weight", "1,048,576 elements", "262,144 elements") in rows["expert_parallel"]
    assert ("communication", "overlaps with computation", "blocks") in rows["ddp_overlap"]
    assert ("`offload`", "1 step", "none") in rows["offload"]
    assert ("an activation", "1,048,576 elements", "131,072 elements") in rows["checkpoint"]
    machines = "1 step for each 163,840 elements sent"
    assert ("- between machines", machines, "one machine") in rows["hybrid_shard"]
    approved(
        "schedule_puzzles", "a setting is shown as what differs from the classics, 2", rows["three_d"], "dp 2, pp 2,"
    )
    assert ("training steps", "8", "1") in rows["local_sgd"]
    assert not any(row[0] == "`forward`" for slug in ("ddp_overlap", "three_d") for row in rows[slug])


def test_the_table_of_a_setting_is_in_the_starter_file_too():
    text = starter_file([PUZZLES["ddp_overlap"]], "mine.py")
    assert "# costs 'buckets'" in text
    assert any(line.startswith("# allreduce") and "for each 786,432 elements" in line for line in text.splitlines())
    assert "# costs" not in starter_file([PUZZLES["ddp"]], "mine.py")


def test_the_reminder_has_the_prices_and_the_parameters_of_the_setting():
    def call(slug: str, name: str) -> tuple[str, str]:
        return next(pair for pair in reminder(PUZZLES[slug]) if f"model.{name}(" in pair[0])

    assert call("ddp", "allreduce")[0] == "await model.allreduce(v, layer)"
    assert "0.3 steps" in call("ddp", "allreduce")[1]
    assert "group" in call("three_d", "allreduce")[0]
    assert "axis of the mesh" in call("three_d", "allreduce")[1]
    assert "step" in call("local_sgd", "get_activation")[0]
    approved(
        "schedule_puzzles",
        "the reminder has the prices and the parameters of the setting",
        call("local_sgd", "allreduce")[1],
        "1 step for each",
    )
    assert "handle" in call("ddp_overlap", "allreduce")[1]
    assert "0.15 steps a hop" in call("ddp_overlap", "allreduce")[1]
    assert "handle" not in call("ddp", "allreduce")[1]
    assert call("grad_accum", "update")[0] == "model.update(layer, weight_grad, weight, opt_state)"
    approved(
        "schedule_puzzles",
        "the reminder has the prices and the parameters of the setting, 2",
        call("host_update", "update")[0],
    )
    assert call("grad_accum", "get_activation")[0] == "model.get_activation(batches)"
    assert "shares" in call("ulysses", "get_activation")[0]
    assert "total" in call("vocab_parallel", "backward_weight")[0]
    assert "total" not in call("zb_h1", "backward_weight")[0]
