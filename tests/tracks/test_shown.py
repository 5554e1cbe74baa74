"""What a track shows: why a peak is where it is, layouts on real tensors, and plans from the outside."""

import json
import re
import textwrap
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import nbformat
import numpy as np
import pytest
from click.testing import Result

from lib.layout import GraphPlan, propagate
from lib.layout.examples import embedding_and_head
from lib.layout.execution import Executed
from lib.planning import Job, Plan, Prediction, Split, search
from puzzles import play
from puzzles.catalog.fields import Fields, OwnPuzzleError
from puzzles.catalog.schedule import PUZZLES
from puzzles.judge.grader import grade_file
from puzzles.judge.judge import judge_saved
from puzzles.screens.feedback import achieved, built
from puzzles.tracks import TRACKS
from puzzles.tracks.layout import LAYOUT_PUZZLES
from puzzles.tracks.layout.show import CLOSE, run_plan, whole_values
from puzzles.tracks.plan import PLAN_PUZZLES
from tests.support import CLASSICS
from tests.support.commands import ROOT, puzzles
from tests.support.mpi import mpiexec_or_skip

pytestmark = pytest.mark.usefixtures("in_an_empty_folder", "in_this_process")

# --- Why is my peak here? The same explanation in the terminal, in JSON, in a notebook and in the HTML report ---


COLUMNS = 200

DDP = (ROOT / "solutions" / "ddp.py").read_text(encoding="utf-8")

BACKWARD, ALLREDUCE = (
    next(number for number, line in enumerate(DDP.splitlines(), 1) if f"model.{name}(" in line)
    for name in ("backward", "allreduce")
)
GREEDY = DDP.replace("del ", "len(model.storage()); # del ")
"""Deletes nothing, so it is over target in memory."""

STORAGE = "grad_weights = model.storage()\n"
SLOW = DDP.replace(
    STORAGE, f"{STORAGE}    for _ in range(4):\n        await model.allreduce(model.fake_grad(0, []), 0)\n"
)


def grade(*arguments: str) -> str:
    result = puzzles("grade", *arguments)
    return result.stdout


def written(name: str, text: str) -> str:
    Path(name).write_text(text, encoding="utf-8")
    return name


def rows(text: str) -> list[int]:
    """The elements at the beginning of the rows of an explanation, without those on traffic."""
    of_peak = re.sub(r"^[^\n]* sends [\d,]+ elements, and all ranks.*?(?=^\S|\Z)", "", text, flags=re.M | re.S)
    return [int(figure.replace(",", "")) for figure in re.findall(r"^ +([\d,]+)  ", of_peak, re.MULTILINE)]


def peak(text: str) -> int:
    found = re.search(r"The peak, ([\d,]+) elements", text)
    assert found is not None
    return int(found[1].replace(",", ""))


def test_a_pass_is_explained_on_request_only() -> None:
    path = written("ddp.py", DDP)
    asked = grade(path, "--puzzle", "ddp", "--why")
    assert sum(rows(asked)) == peak(asked) == 1_835_008
    assert f"(made at line {BACKWARD})" in " ".join(asked.split())
    assert "The peak," not in grade(path, "--puzzle", "ddp")


def test_too_much_memory_is_explained_at_once() -> None:
    shown = grade(written("ddp.py", GREEDY), "--puzzle", "ddp")
    assert "over target" in shown
    assert sum(rows(shown)) == peak(shown) > 1_900_000
    assert "Nobody reads" in shown


def test_too_much_time_is_not_a_question_of_memory() -> None:
    shown = grade(written("ddp.py", SLOW), "--puzzle", "ddp")
    assert "over target" in shown
    assert "The peak," not in shown


@pytest.mark.slow
def test_a_class_is_explained_on_request_with_each_file_named() -> None:
    for name, text in (("a.py", DDP), ("b.py", GREEDY)):
        written(name, text)
    asked = grade("a.py", "b.py", "--puzzle", "ddp", "--why")
    assert re.findall(r"(\w\.py), ddp, where", asked) == ["a.py", "b.py"]
    assert "The peak," not in grade("a.py", "b.py", "--puzzle", "ddp")


def test_json_has_it_when_asked() -> None:
    path = written("ddp.py", DDP)
    (asked,) = json.loads(grade(path, "--puzzle", "ddp", "--json", "--why"))["files"][0]["results"]
    (plain,) = json.loads(grade(path, "--puzzle", "ddp", "--json"))["files"][0]["results"]
    assert sum(rows("\n".join(asked["why"]))) == asked["peak_memory"]
    assert asked == {**plain, "why": asked["why"]}


@pytest.mark.parametrize("source", ["async def ddp(model):\n    await model.receive()\n", "x = 1\n"])
def test_where_nothing_is_correct_there_is_nothing_to_explain(source: str) -> None:
    shown = grade(written("ddp.py", source), "--puzzle", "ddp", "--why")
    assert "--why explains" in shown


@pytest.mark.slow
def test_a_class_has_no_schedule_to_explain() -> None:
    shown = grade(str(ROOT / "solutions" / "engine" / "data_parallel.py"), "--why")
    assert "there is none here" in shown


def test_the_lines_of_a_notebook_are_counted_by_cell() -> None:
    made = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(text) for text in ("import math", DDP)])
    nbformat.write(made, "mine.ipynb")
    asked = " ".join(grade("mine.ipynb", "--puzzle", "ddp", "--why").split())
    assert f"cell 2, line {BACKWARD})" in asked
    assert f"starts (cell 2, line {ALLREDUCE})" in asked


@pytest.mark.slow
def test_the_page_explains_every_schedule_and_opens_what_matters() -> None:
    grade(written("a.py", DDP), "--puzzle", "ddp", "-o", "a.html")
    grade(written("b.py", GREEDY), "--puzzle", "ddp", "-o", "b.html")
    passed, over = (Path(name).read_text(encoding="utf-8") for name in ("a.html", "b.html"))
    for page, tag in ((passed, "<details>"), (over, "<details open>")):
        (text,) = re.findall(rf"{tag}<summary>Where memory and traffic go</summary><pre>(.*?)</pre>", page, re.DOTALL)
        assert sum(rows(text)) == peak(text)


def test_play_explains_on_request_in_text_and_on_the_page(capsys: pytest.CaptureFixture[str]) -> None:
    classic = next(classic for classic in CLASSICS if classic.slug == "ddp")
    asked = play("ddp", classic.solution, why=True)
    shown = capsys.readouterr().out
    assert sum(rows(shown)) == peak(shown) == asked.report.peak.memory
    assert sum(rows(asked.page())) == asked.report.peak.memory
    plain = play("ddp", classic.solution)
    assert "The peak," not in capsys.readouterr().out
    assert "The peak," not in plain.page()
    assert plain.why == asked.why


def test_play_explains_too_much_memory_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    result = play("fsdp", import_module("solutions.records.fsdp_one_activation_twice").fsdp)
    assert not result.shown_why
    scope: dict[str, object] = {}
    exec(compile(GREEDY, "greedy.py", "exec"), scope)
    capsys.readouterr()
    over = play("ddp", scope["ddp"])
    assert over.status == "over_target"
    assert peak(capsys.readouterr().out) == over.report.peak.memory > PUZZLES["ddp"].goal.memory


# --- Classes ---


FSDP = (ROOT / "solutions" / "engine" / "fsdp.py").read_text(encoding="utf-8")


def test_the_peak_of_a_class_is_explained_by_lines() -> None:
    """The rows add up to the peak, and the activation that ends too late is named."""
    shown = grade(written("mine.py", FSDP), "--why")
    assert "9,088" in shown
    assert sum(int(one.replace(",", "")) for one in re.findall(r"^ +([\d,]+)  (?:made|given)", shown, re.M)) == 9_088
    assert re.search(r" 512  made at line 32; no operation reads it again", shown)
    assert re.search(r" 128  given to the class; no operation reads it again", shown)
    assert re.search(r" 128  made at line 34$", shown, re.M)  # 'x' is returned, so it is read


@pytest.mark.slow
def test_a_class_over_its_target_is_told_why_without_being_asked() -> None:
    kept = FSDP.replace("        w1_grad = self", "        whole = self.all_gather(self.w0)\n        w1_grad = self")
    shown = grade(written("mine.py", kept))
    assert "9,088" in shown
    assert re.search(r"4,096  made at line 31; no operation reads it again", shown)


# --- After a pass ---


@pytest.mark.sampled(1)
@pytest.mark.parametrize("why", [False, True])
def test_the_peak_of_a_second_step_has_its_reason_also_without_why(why: bool) -> None:
    result = play("interleaved", import_module("solutions.interleaved").interleaved, why=why)
    reason = "elements (rank 0), because a message takes memory until it is read."
    assert f"3,153,920 {reason}" in result.next_step
    assert achieved(result.verdict).startswith("1 timestep, 54,272 elements and 71,776 elements ")


@pytest.mark.slow
@pytest.mark.parametrize("slug", ["pipeline_fsdp", "fsdp_prefetch", "host_update"])
def test_what_is_built_has_six_lines(slug: str) -> None:
    result = play(slug, getattr(import_module(f"solutions.{slug}"), slug))
    assert len(textwrap.wrap(f"{slug}: {built(result.verdict)}", 80)) <= 6


# --- `puzzles run` of a layout: real tensors on the engine, here and on MPI; predicted and measured bytes ---


LAYOUTS = ROOT / "solutions" / "layout"
FFN = "def ffn(graph):\n    "


def run(source: str, slug: str, *options: str) -> Result:
    Path("mine.py").write_text(source)
    result = puzzles("run", "mine.py", slug, *options)
    return result


def sent(page: str) -> list[tuple[int, int]]:
    """Bytes sent and predicted, by device, as the page shows them."""
    rows = re.findall(r"^ +\d+ +([\d,]+) +([\d,]+) +(?:equal|DIFFERS)", page, re.MULTILINE)
    return [(int(a.replace(",", "")), int(b.replace(",", ""))) for a, b in rows]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("slug", LAYOUT_PUZZLES)
def test_every_reference_sends_its_target_in_bytes(slug: str):
    result = run((LAYOUTS / f"{slug}.py").read_text(encoding="utf-8"), slug)
    assert result.exit_code == 0, result.output
    assert "device's" in result.stdout
    figures = sent(result.stdout)
    assert len(figures) == LAYOUT_PUZZLES[slug].graph().devices
    assert all(measured == predicted for measured, predicted in figures)
    assert sum(measured for measured, _ in figures) == LAYOUT_PUZZLES[slug].best


def test_a_plan_that_costs_too_much_runs_too_and_shows_who_pays():
    result = run(FFN + "graph.shard('relu', ((4, 2),))", "ffn")
    assert result.exit_code == 0
    for told in (
        "All 5 results equal a single device's, exactly.",
        "matmul2 pays 32,768 bytes (all-reduce)",
        "add1 -> relu pays 12,288 bytes (exchange)",
        "1 all_reduce, 2 receive, 2 send",
        "45,056 bytes moved; 45,056 were predicted.",
        "equal   28,864   equal",
        "A device holds at most 28,864 bytes at a time, when 'matmul2' reduces its output.",
    ):
        assert told in result.stdout


@pytest.mark.slow
def test_the_same_on_mpi():
    mpiexec_or_skip()
    source = FFN + "graph.shard('matmul2', ((8, 1), (1, 1)))"
    here, there = run(source, "ffn"), run(source, "ffn", "--on", "mpi")
    assert (there.exit_code, there.stdout) == (0, here.stdout.replace("inprocess", "mpi"))


REFUSED = [
    (FFN + "1 / 0", "ffn", (), "ffn was not run: line 2: ZeroDivisionError: division by zero"),
    (
        FFN + "graph.shard('relu', ((3, 1),))",
        "ffn",
        (),
        "ffn was not run: line 2: relu: the strategy ((3,1)) makes 3 parts",
    ),
    (FFN + "graph.strategies['relu'] = 5", "ffn", (), "the strategies that the graph was left with cannot be read"),
    ("def matmul(graph):\n    pass  # tried", "matmul", (), "matmul was not run: no operator is configured"),
    ("", "ffn", (), "mine.py has no function ffn; write 'def ffn(graph):'"),
    ("def ffn(graph:", "ffn", (), "ffn was not run: line 1: this is not valid Python"),
    (FFN + "pass", "ffn", ("-n", "4"), "ffn is laid out on 8 devices; leave out -n, or use -n 8"),
]


@pytest.mark.parametrize(("source", "slug", "options", "sentence"), REFUSED)
def test_what_cannot_be_run_is_reported_in_a_sentence(source, slug, options, sentence):
    result = run(source, slug, *options)
    assert (result.exit_code, sentence in result.output) == (1, True), result.output


def test_values_are_whole_small_and_of_the_size_that_was_counted():
    graph = embedding_and_head()
    values = whole_values(graph)
    assert {value.dtype.itemsize for value in values.values()} == {graph.itemsize}
    assert (values["tokens"].dtype.kind, values["tokens"].min() >= 0, values["tokens"].max() < 512) == ("i", True, True)
    assert all((value == np.round(value)).all() for value in values.values())


def test_a_run_with_another_number_or_another_byte_does_not_pass(monkeypatch: pytest.MonkeyPatch):
    plan = propagate(LAYOUT_PUZZLES["ffn"].graph())
    honest = run_plan(plan, "inprocess")
    assert honest.passed
    assert not replace(honest, sent=(honest.sent[0] - 1, *honest.sent[1:])).passed
    assert not replace(honest, peaks=(honest.peaks[0] + 4, *honest.peaks[1:])).passed
    on_engine = GraphPlan.on_engine

    def spoilt(self: GraphPlan, values, on=None) -> Executed:
        done = on_engine(self, values, on)
        for piece in done.pieces["add2"].values():
            piece += 1
        return done

    monkeypatch.setattr(GraphPlan, "on_engine", spoilt)
    assert run_plan(plan, "inprocess").error > CLOSE
    page = run(FFN + "pass  # tried", "ffn")
    assert (page.exit_code, "Tensors DIFFER" in page.stdout) == (1, True)


# --- The plan track from the outside: what players return, commands, pictures, own puzzles, and what is withheld ---


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
    ("from lib.pipelines import gpipe; return Split(dp=16)", "a graded schedule cannot use lib.pipelines"),
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
    puzzles("draw", mine, "llama_8b_16", "-o", target, code=0)
    assert fact in target.read_text(encoding="utf-8").replace("&#x27;", "'").replace("&apos;", "'")


def test_a_plan_is_drawn_as_text(mine: Path) -> None:
    shown = told(puzzles("draw", mine, "llama_8b_16", "--text"))
    assert "collectives that slow computation" in shown
    assert "GPU sends 135.5 GB" in shown


def test_what_cannot_be_drawn_is_said(mine: Path, tmp_path: Path) -> None:
    assert "--against, --pareto and --critical" in told(puzzles("draw", mine, "llama_8b_16", "--critical"))
    mine.write_text(f"{HEAD}def llama_8b_16(job):\n    return Split(dp=5)\n", encoding="utf-8")
    refused = puzzles("draw", mine, "llama_8b_16", "-o", tmp_path / "x.svg", code=1)
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
