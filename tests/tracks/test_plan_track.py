"""The plan track from the outside: what players return, commands, pictures, own puzzles, and what is withheld."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import Result

from lib.planning import Job, Plan, Prediction, Split, search
from puzzles import play
from puzzles.catalog.fields import Fields, OwnPuzzleError
from puzzles.judge.grader import grade_file
from puzzles.judge.judge import judge_saved
from puzzles.tracks import TRACKS
from puzzles.tracks.plan import PLAN_PUZZLES
from tests.support.commands import puzzles

pytestmark = pytest.mark.usefixtures("in_this_process")

HEAD = "from lib.planning import Job, Prediction, Split\n\n"
GOOD = "    return Split(dp=16, zero=2), Prediction(gib=65, dominates='replicas')\n"


def told(result: Result) -> str:
    return " ".join(result.output.split())


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    path = tmp_path / "mine.py"
    path.write_text(f"{HEAD}def llama_8b_16(job):\n{GOOD}", encoding="utf-8")
    return path


BODIES = [
    ("return Split(dp=16, gpus=3)", "a Split has no 'gpus'; it has dp, tp, pp"),
    ("return Split(dp=16, microbatches=3)", "a Split has no 'microbatches'; did you mean 'microbatch'?"),
    ("return Split(dp=job.gpus / 2)", "dp of a Split is a whole number, a text or a flag; got 8.0; divide with //"),
    ("return {'dp': 16}", "llama_8b_16 returns an object of type dict; return a Split, such as Split(dp=8, tp=2)"),
    ("pass", "llama_8b_16 returns nothing; return a Split"),
    ("return Split(dp=16), 60", "returns a Split and an object of type int; after the Split comes a Prediction"),
    (
        "return Split(dp=16), Prediction(60, 'rate')",
        "dominates is one of recomputation, tp, cp, ep, replicas, host, bubble",
    ),
    ("return Split(dp=16), Prediction(-1, 'tp')", "gib is the GiB of the fullest GPU, more than 0; got -1"),
    ("return Split(16, 'two')", "tp must be a whole number from 1 on; got 'two'"),
    ("return Split(**{'dp': job.nodes})", "AttributeError: 'Job' object has no attribute 'nodes'"),
    ("from lib.planning import search; return search(job).best[0].split", "a graded plan cannot use the planner"),
    ("from lib.planning.plans import plan; return Split(dp=16)", "a graded plan cannot use the planner"),
    ("from lib.planning.estimate import walked; return Split(dp=16)", "a graded plan cannot use the planner"),
    ("import lib.planning; return lib.planning.search(job).best[0].split", "a graded plan cannot use the planner"),
    ("from lib import pipelines; return Split(dp=16)", "a graded schedule cannot use lib.pipelines"),
    ("yield Split(dp=16)", "must be a plain function, which returns a Split"),
]


@pytest.mark.sampled(3)
@pytest.mark.sandboxed
@pytest.mark.parametrize(("body", "words"), BODIES)
def test_what_is_no_split_is_refused_in_a_sentence(body: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(f"{HEAD}def llama_8b_16(job):\n    {body}\n", encoding="utf-8")
    (verdict,) = grade_file(str(path), [PLAN_PUZZLES["llama_8b_16"]]).verdicts
    assert verdict.status == "failed"
    assert words in verdict.message


def test_the_result_as_json_has_the_figures_and_the_limits(mine: Path) -> None:
    (row,) = json.loads(puzzles("grade", mine, "--json").output)["files"][0]["results"][-1:]
    assert row["figures"]["seconds"] == 3.475
    assert row["figures"].keys() >= {"gib", "gib_high", "mfu", "bubble", "nvlink_gb", "network_gb"}
    assert row["limits"] == {"seconds": {"at_most": PLAN_PUZZLES["llama_8b_16"].seconds}, "gib": {"at_most": 78.0}}


def test_a_play_in_a_notebook_has_the_plan_and_refuses_the_search() -> None:
    def llama_8b_16(job: Job) -> tuple[Split, Prediction]:
        return Split(dp=16, zero=2), Prediction(65, "bubble")

    result = play("llama_8b_16", llama_8b_16)
    assert result.stars == 3
    assert isinstance(result.trace, Plan)

    def cheat(job: Job) -> Split:
        return search(job).best[0].split

    assert "the planner" in play("llama_8b_16", cheat).message


@pytest.mark.parametrize(("ending", "fact"), [("svg", "the model's flops at the full rate"), ("html", "<html")])
def test_a_plan_is_drawn_as_a_picture_and_as_a_page(ending: str, fact: str, mine: Path, tmp_path: Path) -> None:
    target = tmp_path / f"plan.{ending}"
    drawn = puzzles("draw", mine, "llama_8b_16", "-o", target)
    assert drawn.exit_code == 0, drawn.output
    assert fact in target.read_text(encoding="utf-8").replace("&#x27;", "'").replace("&apos;", "'")


def test_a_plan_is_drawn_as_text(mine: Path) -> None:
    shown = told(puzzles("draw", mine, "llama_8b_16", "--text"))
    assert "collectives that slow computation" in shown
    assert "GPU sends 135.5 GB" in shown


def test_what_cannot_be_drawn_is_said(mine: Path, tmp_path: Path) -> None:
    assert "--against, --pareto and --critical" in told(puzzles("draw", mine, "llama_8b_16", "--critical"))
    mine.write_text(f"{HEAD}def llama_8b_16(job):\n    return Split(dp=5)\n", encoding="utf-8")
    refused = puzzles("draw", mine, "llama_8b_16", "-o", tmp_path / "x.svg")
    assert refused.exit_code == 1
    assert "makes 5 GPUs," in told(refused)


def test_it_runs_on_no_tensors(mine: Path) -> None:
    assert puzzles("run", mine, "llama_8b_16").exit_code != 0


def test_a_saved_split_is_judged_again() -> None:
    track = TRACKS["plan"]
    saved = '{"split": {"dp": 16, "zero": 2}, "prediction": null}'
    assert track.judge.kept(track.judge.row_of(saved))
    puzzle = track.puzzle("llama_8b_16")
    assert judge_saved(puzzle, saved.encode()).figures
    for text, reason in (('{"split": {"dp": "x"', "rule"), ('{"split": {"dp": [16]}}', "split"), ("[]", "rule")):
        assert judge_saved(puzzle, text.encode()).reason == reason


@pytest.mark.parametrize(
    ("job", "words"),
    [
        ({"model": "llama-3-9b"}, "there is no model 'llama-3-9b'; did you mean 'llama-3-8b'?"),
        ({"gpus": 0}, "'gpus' is a whole number from 1; got 0"),
        ({"kernels": "cuda"}, "there is no kernels 'cuda'"),
        ({"changed_gpu": {"speed": 3}}, "there is no number of a gpu 'speed'"),
        ({"seqence": 8}, "there is no field 'seqence'; did you mean 'sequence'?"),
    ],
)
def test_a_teachers_job_is_read_strictly(job: dict[str, object], words: str) -> None:
    texts = {"title": "t", "statement": "s", "starter": "s"}
    given = {"model": "llama-3-8b", "gpu": "h100", "gpus": 8, "batch": 8, **job}
    with pytest.raises(OwnPuzzleError) as refused:
        TRACKS["plan"].read("mine", Fields("mine.toml", {**texts, "job": given, "targets": {"seconds": 1.5}}))
    assert words in str(refused.value)
