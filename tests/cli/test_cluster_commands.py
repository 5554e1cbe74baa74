"""`solve`, `export`, `import`, `plan` and `layout`: what they compute, write, and refuse in one sentence."""

import ast
import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from lib import RuleError, referee, trace_from_json
from lib.pipelines.torch_csv import read_csv, write_csv
from lib.planning import Job, Split, Transformer, gpu, plan, transformer
from lib.planning.configs import export_config
from lib.planning.plans import time_parts
from lib.planning.presets import transformer_of_file
from puzzles.cli.layout import merges
from puzzles.cli.plan import amount
from tests.support.commands import ROOT, SOLUTIONS, as_line, puzzles, said

pytestmark = pytest.mark.usefixtures("in_an_empty_folder", "in_this_process")

# --- `puzzles solve`, `export` and `import`: what they write, and what they say to what they cannot do ---


THREE = ("--ranks", "3", "--microbatches", "4", "--memory", "3", "--effort", "0.02", "--proof-seconds", "0")


@pytest.mark.slow
def test_what_is_solved_is_the_same_in_all_its_files(capsys: pytest.CaptureFixture[str]) -> None:
    result = puzzles(
        "solve", *THREE, *(f"-osolved.{ending}" for ending in ("json", "csv", "py", "txt", "html")), code=0
    )
    assert "longest span 14" in result.output
    trace = trace_from_json(Path("solved.json").read_text())
    assert referee(trace).makespan == 14
    table = read_csv(Path("solved.csv").read_text())
    names: dict[str, object] = {"__name__": "__main__"}
    exec(compile(Path("solved.py").read_text(), "solved.py", "exec"), names)
    assert names["TABLE"] == table
    assert "longest span 14" in capsys.readouterr().out
    played = puzzles("draw", "solved.py", "solved", "--size", "3,4,3", "--costs", "parts", "--text")
    assert "makespan 14" in played.output


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("words", "facts"),
    [
        (("--ranks", "4"), "--microbatches"),
        ((*THREE, "--memory", "0.5"), "0.5|memory=1"),
        ((*THREE, "-o", "found.gif"), "found.gif|.svg|.py"),
        ((*THREE, "-o", "no/where.csv"), "cannot write no/where.csv"),
        ((*THREE, "--forward", "0.00001"), "forward|0.001"),
        ((*THREE, "--placement", "ring"), "contiguous"),
        (
            (*THREE, "--forward", "1,2"),
            "forward must be a number or a list of 3, one for each of the stages; got 2",
        ),
        ((*THREE, "--memory", "1,2,x"), "'1,2,x' is neither a number nor a list of numbers such as 1,1,2,1"),
        ((*THREE, "--forward", "1,2,1", "-o", "found.svg"), "one time for all stages|-o writes .csv only"),
    ],
)
def test_a_wrong_call_of_solve_is_one_error(words: tuple[str, ...], facts: str) -> None:
    result = puzzles("solve", *words, code=2)
    assert [fact for fact in facts.split("|") if fact not in result.output] == []


def test_stages_that_differ_are_solved_and_written() -> None:
    lists = ("--forward", "1,1,2", "--backward-input", "1,1,2", "--memory", "3,2,1")
    result = puzzles("solve", *THREE, *lists, "-o", "uneven.csv", code=0)
    assert re.search(r"a rank holds at most \d of \d on rank \d\.", result.output)
    table = read_csv(Path("uneven.csv").read_text())
    assert str(table) in result.output
    same = puzzles("solve", *THREE, "--forward", "1,1,1", "-o", "same.csv")
    assert same.output.replace("same", "one") == puzzles("solve", *THREE, "-o", "one.csv").output
    assert Path("same.csv").read_bytes() == Path("one.csv").read_bytes()


@pytest.mark.slow
def test_a_solution_goes_to_a_file_and_comes_back() -> None:
    assert puzzles("export", SOLUTIONS / "zb_v.py", "zb_v", "-o", "zb.csv").output == "Wrote zb.csv.\n"
    printed = puzzles("export", SOLUTIONS / "zb_v.py", "zb_v", "--format", "torch-csv")
    assert printed.output == Path("zb.csv").read_text()
    result = puzzles("import", "zb.csv", "-o", "back.json", "-o", "again.csv", "-o", "back.svg", code=0)
    assert "Correct: ZB-V" in result.output
    assert Path("again.csv").read_text() == Path("zb.csv").read_text()
    assert referee(trace_from_json(Path("back.json").read_text())).makespan == 51
    assert Path("back.svg").read_text().startswith("<svg")


def test_cells_that_overlap_survive_an_import_and_an_export() -> None:
    order = "0F0,0F1,(0F2;0B0)OVERLAP_F_B,0B1,0B2\n1F0,1B0,1F1,1B1,1F2,1B2\n"
    Path("dual.csv").write_text(order)
    result = puzzles("import", "dual.csv", "-o", "dual.json", "-o", "again.csv", code=0)
    assert "costs parts with pairs" in result.output
    assert "Note: here" not in result.output
    trace = trace_from_json(Path("dual.json").read_text())
    assert write_csv(trace) == Path("again.csv").read_text() == order
    exchanged = write_csv(trace, communication=True)
    assert "(0F2;0B0)OVERLAP_F_B" in exchanged
    assert read_csv(exchanged) == read_csv(order)
    deep = puzzles("import", "dual.csv", "--layers", "2", "-o", "deep.csv")
    assert "1 OVERLAP_F_B" in deep.output
    assert Path("deep.csv").read_text() == order


def test_a_schedule_that_cannot_be_said_is_refused_with_the_reason() -> None:
    for name, size, why in (
        ("ddp", (), "this is not a pipeline"),
        ("zb_h1", ("--steps", "2"), "2 steps"),
        ("checkpoint", (), "a second time"),
        ("tensor_parallel", (), "part of a weight"),
    ):
        result = puzzles("export", SOLUTIONS / f"{name}.py", name, *size, code=1)
        assert why in result.output, result.output


def test_a_file_that_cannot_be_read_is_one_error() -> None:
    Path("bad.csv").write_text("0F0,0Q0\n")
    Path("binary.csv").write_bytes(b"\xff\xfe\x00")
    Path("halves.csv").write_text("0F0,0I0,0W0\n")
    for words, why in (
        (("bad.csv",), "row 1, column 2"),
        (("binary.csv",), "not a text file"),
        (("halves.csv", "--costs", "stages"), "backward_input has no price in the costs 'stages'"),
        (("halves.csv", "--layers", "0"), "1<=x<=64"),
        (("halves.csv", "-o", "x.docx"), ".docx"),
        (("missing.csv",), "does not exist"),
    ):
        result = puzzles("import", *words, code=2)
        assert why in as_line(result.output), result.output


def test_only_a_correct_run_is_exported() -> None:
    Path("mine.py").write_text("async def one(model):\n    model.get_activation([7])\n")
    result = puzzles("export", "mine.py", "one", "--size", "1,1,1", code=1)
    assert "one is not correct" in result.output
    assert "line 2" in result.output
    assert "has no" in puzzles("export", "mine.py", "two", "--size", "1,1,1").output


# --- `puzzles plan`: what it prints as JSON, and what it refuses in one sentence with what would fit ---


SMALL = "--model gpt-1.7b --set model.layers=4 --gpus 4 --batch 16 --gpu a100"


def planned(line: str, code: int = 0) -> str:
    return puzzles("plan", *line.split(), code=code).output


def test_its_figures_are_those_of_a_run() -> None:
    shown = planned(f"{SMALL} --dp 2 --tp 2 --zero 1 --microbatch 4 --recompute none --best 1 --json")
    (found,) = json.loads(shown)
    job = Job(transformer("gpt-1.7b", layers=4), gpu("a100"), 4, 16)
    mine = plan(job, Split(2, 2, zero=1, microbatch=4))
    assert (found["seconds"], found["memory"], found["sent"]) == (mine.seconds, dict(mine.memory), dict(mine.sent))
    assert found["mfu"] == mine.mfu


def test_it_shows_each_rank_the_peak_and_the_largest_batch() -> None:
    shown = planned(f"{SMALL} --best 1 --pp 2 --dp 2 --zero 1 --ranks --largest batch")
    for fact in ("rank  layers", "GiB on rank", "activations kept for backward", "The largest batch that fits in eager",
                 "in fused code with split 1"):  # fmt: skip
        assert fact in as_line(shown) or fact in shown, fact
    assert all(len(line) <= 80 for line in shown.splitlines())


@pytest.mark.slow
def test_layers_of_each_stage_and_warm_up_are_chosen() -> None:
    shown = planned(f"{SMALL} --layers 3,1 --best 1 --ranks")
    rows = [line.split()[:2] for line in shown.splitlines() if line.split()[:2] in (["0", "3"], ["1", "1"])]
    assert rows == [["0", "3"], ["1", "1"]]
    shown = planned(f"{SMALL} --pp 2 --schedule interleaved --chunks 2 --warmup 3 --best 1")
    assert "interleaved x2 w3" in shown


def test_where_a_fixed_split_does_not_fit_the_changes_that_help_most_are_named() -> None:
    shown = planned("--model llama-3-70b --gpus 8 --batch 8 --dp 8 --zero 0 --recompute none", code=2)
    assert as_line(shown).count(" saves ") == 2


def test_an_exported_config_is_read_and_planned_again(tmp_path: Path) -> None:
    split = "--dp 2 --tp 2 --zero 1 --microbatch 4 --recompute none"
    path = tmp_path / "flags"
    shown = planned(f"{SMALL} {split} --best 1 --export megatron -o {path}")
    assert planned(f"{SMALL} {split} --best 1 --export megatron") == path.read_text(encoding="utf-8")
    again = planned(f"{SMALL.replace('--batch 16', '')} --config {path} --json")
    note, _, record = again.partition("\n")
    assert "--overlap-param-gather" in note
    (found,) = json.loads(record)
    job = Job(transformer("gpt-1.7b", layers=4), gpu("a100"), 4, 16)
    assert found["seconds"] == plan(job, Split(2, 2, zero=1, microbatch=4)).seconds
    shown = planned(f"{SMALL} --config {path}")
    for fact in ("full rate", "waiting for replicas", "It fits the 78.0 GiB of a100."):
        assert fact in as_line(shown)


def test_a_config_with_all_sizes_needs_no_model(tmp_path: Path) -> None:
    path = tmp_path / "flags"
    sizes = "--num-layers 4 --hidden-size 2304 --num-attention-heads 24 --seq-length 2048 --vocab-size 51200"
    path.write_text(f"{sizes} --global-batch-size 16 --overlap-grad-reduce --bf16 --tp-comm-overlap", encoding="utf-8")
    alone = planned(f"--gpus 4 --gpu a100 --config {path} --json")
    assert "--tp-comm-overlap" in alone.partition("\n")[0]
    named = planned(f"{SMALL.replace('--batch 16', '')} --config {path} --json")
    assert "layers" not in named.partition("[")[0]
    assert json.loads(alone.partition("\n")[2])[0]["ranks"] == json.loads(named.partition("\n")[2])[0]["ranks"]
    path.write_text("--num-layers 4 --hidden-size 2304 --bf16", encoding="utf-8")
    shown = planned(f"--gpus 4 --gpu a100 --config {path}", code=2)
    assert "--num-attention-heads" in shown
    shown = planned(f"--model llama-3-8b --gpus 4 --batch 16 --config {path}")
    assert "layers 4" in shown
    assert "hidden 2304" in shown


def test_the_fastest_plan_that_a_program_can_do_is_exported() -> None:
    shown = planned(f"{SMALL} --microbatch 1 --best 3 --export torchtitan --kernels pytorch")
    number = re.search(r"plan (\d+) is the fastest of these that torchtitan can be configured with", shown)
    assert number is not None
    listed = planned(f"{SMALL} --microbatch 1 --best 3 --kernels pytorch --json")
    splits = [Split(**{**one["split"], "layers": tuple(one["split"]["layers"])}) for one in json.loads(listed)]
    job = Job(transformer("gpt-1.7b", layers=4), gpu("a100"), 4, 16, kernels="pytorch")
    chosen = int(number[1]) - 1
    assert chosen > 0
    for split in splits[:chosen]:
        with pytest.raises(RuleError, match="torchtitan"):
            export_config(job, split, "torchtitan")
    assert export_config(job, splits[chosen], "torchtitan") in shown
    shown = planned(f"{SMALL} --zero 1 --pp 1 --export torchtitan", code=2)
    assert "zero 1" in as_line(shown)


def test_a_model_of_a_file_is_planned(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    known: dict[str, Any] = {"layers": 4, "hidden": 2304, "heads": 24, "ffn": 9216, "vocab": 51200, "sequence": 2048}
    file.write_text("[mine]\n" + "".join(f"{name} = {value}\n" for name, value in known.items()))
    planned(f"--model {file} --gpus 4 --batch 16 --gpu a100 --best 1 --set model.layers=2")
    assert transformer_of_file(file.read_text(), layers=2) == replace(Transformer("mine", **known), layers=2)
    file.write_text("[mine]\nlayers = 4\n")
    assert "ffn, heads, hidden" in as_line(planned(f"--model {file} --gpus 4", code=2))


def test_a_config_that_does_not_fit_is_said_so_with_the_changes_that_help_most(tmp_path: Path) -> None:
    path = tmp_path / "flags"
    path.write_text("--micro-batch-size 8 --global-batch-size 64 --bf16", encoding="utf-8")
    shown = planned(f"--model llama-3-8b --gpus 8 --config {path}")
    assert "78.0 GiB of h100;" in as_line(shown)


def test_a_calibrated_gpu_is_planned_with(tmp_path: Path) -> None:
    run, preset = tmp_path / "run.json", tmp_path / "mine.toml"
    split = {"dp": 2, "tp": 2, "microbatch": 4}
    measured = {"model": "gpt-1.7b", "gpu": "a100", "gpus": 4, "batch": 16, "split": split, "tokens_per_second": 40000}
    run.write_text(json.dumps(measured), encoding="utf-8")
    shown = planned(f"--calibrate {run} -o {preset}")
    line = f"--model gpt-1.7b --gpus 4 --batch 16 --gpu {preset} --dp 2 --tp 2 --zero 1 --microbatch 4"
    shown = planned(f"{line} --recompute none --best 1 --json")
    assert json.loads(shown)[0]["tokens_per_second"] == pytest.approx(40000, rel=1e-3)


def test_it_says_how_long_a_training_takes_with_failures() -> None:
    shown = planned(f"{SMALL} --dp 2 --tp 2 --best 1 --microbatch 4 --mtbf 50k --checkpoint 1GB --train 1e12")
    shown = as_line(shown)
    assert "12500.0 hours" in shown
    assert "1,000,000,000,000 tokens" in shown
    assert "of the time trains" in shown


def test_where_the_time_goes_adds_up_to_the_step() -> None:
    job = Job(transformer("llama-3-8b", layers=8), gpu("h100"), 8, 16, 4096)
    for split in (Split(dp=2, pp=2, tp=2), Split(dp=8, zero=3, recompute="full"), Split(dp=8, recompute="ops")):
        made = plan(job, split)
        parts = time_parts(made)
        assert sum(parts.values()) == pytest.approx(made.seconds)
        assert all(seconds > -1e-4 for seconds in parts.values()), parts
        assert parts["ideal"] == pytest.approx(made.mfu * made.seconds)
        assert parts["matrix"] > parts["ideal"] / 2  # products reach 0.6 of the full rate
    assert parts["recomputation"] > 0.1 * made.seconds


def test_options_of_experts_and_numbers_of_a_job_reach_the_plan(tmp_path: Path) -> None:
    split = "--dp 16 --ep 16 --zero 1 --microbatch 1 --recompute none --best 1"
    line = f"--model qwen3-30b-a3b --gpus 16 --batch 64 {split}"
    how: dict[str, Any] = {
        "dispatch": "dedup",
        "graphs": "partial",
        "ep_overlap": True,
        "balanced": True,
        "modules": ("moe_act",),
    }
    job = Job(transformer("qwen3-30b-a3b", layers=49), gpu("h100"), 16, 64, mtp=1, gradient=2, imbalance=2.0, **how)
    options = "--dispatch dedup --graphs partial --ep-overlap --balanced --modules moe_act --mtp 1"
    shown = planned(f"{line} {options} --set job.gradient=2 --set job.imbalance=2 --json")
    assert json.loads(shown)[0]["seconds"] == plan(job, Split(dp=16, ep=16)).seconds
    flags = tmp_path / "flags"
    shown = planned(f"{line} {options} --export megatron -o {flags}")
    shown = planned(f"--model qwen3-30b-a3b --gpus 16 --config {flags} --set job.gradient=2 --json")
    (found,) = json.loads(shown[shown.index("[") :])
    assert found["seconds"] == plan(replace(job, imbalance=1.5), Split(dp=16, ep=16)).seconds
    assert "Replaced by" not in shown


@pytest.mark.sampled(5)
@pytest.mark.parametrize(
    ("line", "facts"),
    [
        ("--gpus 4", ("name a model", "--list")),
        ("--model gpt-4 --gpus 4", ("no model 'gpt-4'", "did you mean")),
        (f"{SMALL} --gpu a1000", ("no gpu 'a1000'", "'a100'")),
        (f"{SMALL} --tp 3", ("tp 3", "there are 4", "may be 1, 2 or 4")),
        (f"{SMALL} --pp 2 --layers 12,x", ("'12,x' is not a list", "10,10,11,9")),
        (f"{SMALL} --schedule dualpipe", ("dualpipe", "zb_v")),
        (f"{SMALL} --set gpu.memory=3GiB", ("no split", "the least found is", "GiB")),
        (f"{SMALL} --set gpu.wifi=1", ("wifi",)),
        (f"{SMALL} --set layers=4", ("model.NAME=NUMBER", "layers=4")),
        (f"{SMALL} --set model.layers=many", ("--set", "many")),
        (f"{SMALL} --tokens 100", ("--batch", "--tokens")),
        ("--model gpt-1.7b --gpus 4 --tokens 5000", ("5,000 tokens", "2,048", "4,096")),
        ("--model gpt-1.7b --gpus four", ("'four' is not a number", "4M")),
        ("--model gpt-1.7b --gpus 0", ("gpus", "more than 0")),
        (f"{SMALL} --pareto front.html", ("front.html",)),
        (f"{SMALL} --fp8", ("a100", "8 bits")),
        (f"{SMALL} --config nowhere.toml", ("nowhere.toml cannot be read",)),
        (
            f"{SMALL} --tp 2 --dp 2 --best 1 --microbatch 4 --export nemo",
            ("'nemo' is not one of", "'megatron', 'torchtitan', 'deepspeed', 'fsdp2'"),
        ),
        (f"{SMALL} --modules moe,norms", ("modules are some of", "layernorm", "norms")),
        (f"{SMALL} --set job.graphs=2", ("job.NAME", "gradient", "job.graphs=2", "Others have options")),
        (
            f"{SMALL} --dp 4 --zero 1 --microbatch 1 --best 1 --largest gpu",
            ("'gpu' is not one of 'batch', 'sequence', 'model'",),
        ),
    ],
)
def test_it_refuses_in_one_sentence(line: str, facts: tuple[str, ...]) -> None:
    shown = planned(line, code=2)
    problem = as_line(shown.partition("Error: ")[2])
    assert all(fact in problem for fact in facts), problem
    assert "Traceback" not in shown


def test_amounts_are_read_as_people_write_them() -> None:
    assert [amount(text) for text in ("4096", "4M", "40GiB", "312e12", "1.5k", "80GB")] == [
        4096, 4_000_000, 40 * 2**30, 312 * 10**12, 1500, 80 * 10**9,
    ]  # fmt: skip
    for wrong in ("-3", "4x", "1e", "nan", "GiB"):
        with pytest.raises(ValueError, match=wrong):
            amount(wrong)


# --- `puzzles layout`: a function of JAX on a mesh, as XLA lays it out and as a plan does ---


MODEL = """
import jax

def step(p, x):
    h = jax.nn.relu(x @ p["w1"])
    return h @ p["w2"]

args = ({"w1": (64, 256), "w2": (256, 64)}, (128, 64))
"""
GATED = """
import jax

def step(p, x):
    h = jax.numpy.tanh(x)
    return (jax.nn.relu(h @ p["up"]) * (h @ p["gate"])) @ p["down"]

args = ({"up": (64, 64), "gate": (64, 64), "down": (64, 64)}, (4, 16, 64))
"""
COMPILE = """
import os
os.environ |= {"XLA_FLAGS": "--xla_force_host_platform_device_count=8", "JAX_PLATFORMS": "cpu"}
import jax
from lib.layout.xla import collectives

grid = jax.make_mesh((2, 4), ("data", "model"), axis_types=(jax.sharding.AxisType.Auto,) * 2)
P = lambda *axes: jax.sharding.NamedSharding(grid, jax.sharding.PartitionSpec(*axes))
columns, ends = P(None, "model"), P("data", "model")
names = {"P": P}
exec(PROGRAM, names)
given = {"up": columns, "gate": columns, "down": P("model")}, ends
program = jax.jit(names["step"], in_shardings=given, out_shardings=ends)
weights, x = names["args"]
structs = {name: jax.ShapeDtypeStruct(shape, "float32") for name, shape in {**weights, "x": x}.items()}
x = structs.pop("x")
text = program.lower(structs, x).compile().as_text()
print(sum(sum(each.sent) for each in collectives(text, 8)))
"""
"""Prints the bytes that XLA moves for PROGRAM, without anything of the command."""
SPECS = ("--mesh", "data=2,model=4", "--in", "*=data+model", "--out", "*=data+model")
needs_jax = pytest.mark.skipif(find_spec("jax") is None, reason="jax is not installed: pip install -e '.[jax]'")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.py"
    path.write_text(MODEL, encoding="utf-8")
    return path


def run(*words: object) -> tuple[int, str]:
    """Exit code and output of a process of its own, because JAX decides on its devices when it starts."""
    command = [sys.executable, "-m", "puzzles", "layout", *map(str, words)]
    done = subprocess.run(command, cwd=ROOT, env={**os.environ, "COLUMNS": "200"}, capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("words", "fact"),
    [
        (("model.py", *SPECS), "names no function"),
        (("no.py:step", *SPECS), "there is no file 'no.py'"),
        (("model.py:step", "--mesh", "2x4"), "'2x4' is not a mesh"),
        (("model.py:step", "--mesh", "data=0"), "'data=0' is not a mesh"),
        (("model.py:step", *SPECS, "--in", "w1"), "'w1' has no '='"),
        (("model.py:step", *SPECS, "--memory", "much"), "'much' is not a number"),
        (("model.py:step", *SPECS, "-o", "plan.png"), "does not end in .html"),
    ],
)
def test_mistakes_that_need_no_jax(words: tuple[str, ...], fact: str) -> None:
    assert fact in said("layout", *words, code=2)


def test_a_reshape_that_only_adds_or_removes_dimensions_of_one_merges_nothing() -> None:
    assert merges((8, 2048), (2, 4, 2048))
    assert not merges((8, 1, 2048), (8, 2048, 1))


def test_without_jax_it_is_said_which_extra_is_missing(monkeypatch: pytest.MonkeyPatch, model: Path) -> None:
    monkeypatch.setitem(sys.modules, "jax", None)
    monkeypatch.delenv("XLA_FLAGS", raising=False)
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    text = said("layout", f"{model}:step", *SPECS, code=2)
    assert "[jax]'" in text


@needs_jax
@pytest.mark.slow
def test_rows_of_xla_propagation_and_plans_with_a_page(model: Path, tmp_path: Path) -> None:
    code, text = run(f"{model}:step", *SPECS, "-o", tmp_path / "plan.html")
    assert code == 0, text
    rows = dict(re.findall(r"^ *(XLA|propagation|best plan|best without recomputing) +([\d,]+) ", text, re.MULTILINE))
    moved = {name: int(number.replace(",", "")) for name, number in rows.items()}
    assert moved["best plan"] == 425_984, "docs/xla.md: MLP, all stored by rows"
    assert moved["XLA"] == 917_504
    assert moved["best plan"] <= moved["best without recomputing"] <= moved["propagation"]
    assert "proven" in text
    assert re.search(r"\d  \S*model\.py:5", text), "what pays names the line of the first product"
    better = re.findall(r"XLA moves ([\d,]+) bytes:", text)
    assert all(int(number.replace(",", "")) < moved["XLA"] for number in better)
    assert better or "No single constraint" in text
    assert "<svg" in (tmp_path / "plan.html").read_text(encoding="utf-8")


@needs_jax
@pytest.mark.slow
def test_the_constraint_that_is_shown_brings_xla_down_to_the_bytes_that_are_shown(model: Path) -> None:
    model.write_text(GATED, encoding="utf-8")
    specs = [
        word for spec in ("*.up=,model", "*.gate=,model", "*.down=model", "x=data,model") for word in ("--in", spec)
    ]
    code, text = run(f"{model}:step", "--mesh", "data=2,model=4", *specs, "--out", "*=data,model")
    assert code == 0, text
    before = re.search(r"^ *XLA +([\d,]+) ", text, re.MULTILINE)
    after = re.search(r"XLA moves ([\d,]+) bytes:", text)
    ((line, column, constraint),) = re.findall(r"model\.py:(\d+):(\d+) .*?: (jax\.lax\..*\))  #", text)
    lines = GATED.splitlines()
    value = min(
        (
            ast.get_source_segment(GATED, node) or ""
            for node in ast.walk(ast.parse(GATED))
            if isinstance(node, ast.BinOp) and (node.lineno, node.col_offset) == (int(line), int(column))
        ),
        key=len,
    )
    lines[int(line) - 1] = lines[int(line) - 1].replace(value, constraint.replace("...", value), 1)
    assert before
    assert after
    shown = [int(number[1].replace(",", "")) for number in (before, after)]
    assert [compiled(GATED), compiled("\n".join(lines))] == shown
    assert shown[1] < shown[0]


def compiled(program: str) -> int:
    """The bytes that XLA moves for a program, compiled in a process of its own."""
    command = [sys.executable, "-c", COMPILE.replace("PROGRAM", repr(program))]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


@needs_jax
@pytest.mark.slow
def test_the_plan_as_data_and_mistakes_in_the_file(model: Path) -> None:
    code, text = run(f"{model}:step", *SPECS, "--code", "json")
    assert (code, json.loads(text)["bytes"]) == (0, 425_984)
    model.write_text(MODEL.replace("args = ", "shapes = "), encoding="utf-8")
    assert "has no 'args'" in run(f"{model}:step", *SPECS)[1]
    model.write_text(MODEL, encoding="utf-8")
    assert "'stop';" in run(f"{model}:stop", *SPECS)[1]
    code, text = run(f"{model}:step", *SPECS, "--in", "w3=model")
    assert code == 2
    assert "'w3'; there are p.w1," in " ".join(text.split())
    assert "has no axis 'pod'" in " ".join(run(f"{model}:step", *SPECS, "--in", "x=pod")[1].split())
