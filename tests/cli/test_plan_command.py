"""`puzzles plan`: what it prints as JSON, and what it refuses in one sentence with what would fit."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lib import RuleError
from lib.planning import Job, Split, Transformer, gpu, plan, transformer
from lib.planning.configs import export_config
from lib.planning.plans import time_parts
from lib.planning.presets import transformer_of_file
from puzzles.cli.plan import amount
from tests.support.commands import puzzles

SMALL = "--model gpt-1.7b --set model.layers=4 --gpus 4 --batch 16 --gpu a100"


def invoked(line: str) -> tuple[int, str]:
    result = puzzles("plan", *line.split())
    return result.exit_code, result.output


def test_its_figures_are_those_of_a_run() -> None:
    code, shown = invoked(f"{SMALL} --dp 2 --tp 2 --zero 1 --microbatch 4 --recompute none --best 1 --json")
    assert code == 0, shown
    (found,) = json.loads(shown)
    job = Job(transformer("gpt-1.7b", layers=4), gpu("a100"), 4, 16)
    mine = plan(job, Split(2, 2, zero=1, microbatch=4))
    assert (found["seconds"], found["memory"], found["sent"]) == (mine.seconds, dict(mine.memory), dict(mine.sent))
    assert found["mfu"] == mine.mfu


def test_the_table_has_a_row_for_each_plan() -> None:
    code, shown = invoked(f"{SMALL} --best 2 --microbatch 4")
    assert code == 0, shown
    names = [line.split()[0].rstrip("*") for line in shown.splitlines() if line.split()]
    counts = {names.count(str(n)) for n in (1, 2)}
    assert counts == {3}  # the splits, what they send, what they hold
    assert all(len(line) <= 80 for line in shown.splitlines())


def test_it_shows_each_rank_the_peak_and_the_largest_batch() -> None:
    code, shown = invoked(f"{SMALL} --best 1 --pp 2 --dp 2 --zero 1 --ranks --largest batch")
    assert code == 0, shown
    for fact in ("rank  layers", "GiB on rank", "activations kept for backward", "The largest batch that fits in eager",
                 "in fused code with split 1"):  # fmt: skip
        assert fact in " ".join(shown.split()) or fact in shown, fact
    assert all(len(line) <= 80 for line in shown.splitlines())


@pytest.mark.slow
def test_layers_of_each_stage_and_warm_up_are_chosen() -> None:
    code, shown = invoked(f"{SMALL} --layers 3,1 --best 1 --ranks")
    assert code == 0, shown
    rows = [line.split()[:2] for line in shown.splitlines() if line.split()[:2] in (["0", "3"], ["1", "1"])]
    assert rows == [["0", "3"], ["1", "1"]]
    code, shown = invoked(f"{SMALL} --pp 2 --schedule interleaved --chunks 2 --warmup 3 --best 1")
    assert code == 0, shown
    assert "interleaved x2 w3" in shown


def test_where_a_fixed_split_does_not_fit_the_changes_that_help_most_are_named() -> None:
    code, shown = invoked("--model llama-3-70b --gpus 8 --batch 8 --dp 8 --zero 0 --recompute none")
    problem = " ".join(shown.split())
    assert code == 2
    assert problem.count(" saves ") == 2


def test_an_exported_config_is_read_and_planned_again(tmp_path: Path) -> None:
    split = "--dp 2 --tp 2 --zero 1 --microbatch 4 --recompute none"
    path = tmp_path / "flags"
    code, shown = invoked(f"{SMALL} {split} --best 1 --export megatron -o {path}")
    assert code == 0, shown
    code, printed = invoked(f"{SMALL} {split} --best 1 --export megatron")
    assert (code, printed) == (0, path.read_text(encoding="utf-8"))
    code, again = invoked(f"{SMALL.replace('--batch 16', '')} --config {path} --json")
    assert code == 0, again
    note, _, record = again.partition("\n")
    assert "--overlap-param-gather" in note
    (found,) = json.loads(record)
    job = Job(transformer("gpt-1.7b", layers=4), gpu("a100"), 4, 16)
    assert found["seconds"] == plan(job, Split(2, 2, zero=1, microbatch=4)).seconds
    code, shown = invoked(f"{SMALL} --config {path}")
    assert code == 0, shown
    for fact in ("full rate", "waiting for replicas", "It fits the 78.0 GiB of a100."):
        assert fact in " ".join(shown.split())


def test_a_config_with_all_sizes_needs_no_model(tmp_path: Path) -> None:
    path = tmp_path / "flags"
    sizes = "--num-layers 4 --hidden-size 2304 --num-attention-heads 24 --seq-length 2048 --vocab-size 51200"
    path.write_text(f"{sizes} --global-batch-size 16 --overlap-grad-reduce --bf16 --tp-comm-overlap", encoding="utf-8")
    code, alone = invoked(f"--gpus 4 --gpu a100 --config {path} --json")
    assert code == 0, alone
    assert "--tp-comm-overlap" in alone.partition("\n")[0]
    code, named = invoked(f"{SMALL.replace('--batch 16', '')} --config {path} --json")
    assert code == 0, named
    assert "layers" not in named.partition("[")[0]
    assert json.loads(alone.partition("\n")[2])[0]["ranks"] == json.loads(named.partition("\n")[2])[0]["ranks"]
    path.write_text("--num-layers 4 --hidden-size 2304 --bf16", encoding="utf-8")
    code, shown = invoked(f"--gpus 4 --gpu a100 --config {path}")
    assert code == 2
    assert "--num-attention-heads" in shown
    code, shown = invoked(f"--model llama-3-8b --gpus 4 --batch 16 --config {path}")
    assert code == 0
    assert "layers 4" in shown
    assert "hidden 2304" in shown


def test_the_fastest_plan_that_a_program_can_do_is_exported() -> None:
    code, shown = invoked(f"{SMALL} --microbatch 1 --best 3 --export torchtitan --kernels pytorch")
    assert code == 0, shown
    number = re.search(r"plan (\d+) is the fastest of these that torchtitan can be configured with", shown)
    assert number is not None
    _, listed = invoked(f"{SMALL} --microbatch 1 --best 3 --kernels pytorch --json")
    splits = [Split(**{**one["split"], "layers": tuple(one["split"]["layers"])}) for one in json.loads(listed)]
    job = Job(transformer("gpt-1.7b", layers=4), gpu("a100"), 4, 16, kernels="pytorch")
    chosen = int(number[1]) - 1
    assert chosen > 0
    for split in splits[:chosen]:
        with pytest.raises(RuleError, match="torchtitan"):
            export_config(job, split, "torchtitan")
    assert export_config(job, splits[chosen], "torchtitan") in shown
    code, shown = invoked(f"{SMALL} --zero 1 --pp 1 --export torchtitan")
    assert code == 2
    assert "zero 1" in " ".join(shown.split())


def test_a_model_of_a_file_is_planned(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    known: dict[str, Any] = {"layers": 4, "hidden": 2304, "heads": 24, "ffn": 9216, "vocab": 51200, "sequence": 2048}
    file.write_text("[mine]\n" + "".join(f"{name} = {value}\n" for name, value in known.items()))
    code, shown = invoked(f"--model {file} --gpus 4 --batch 16 --gpu a100 --best 1 --set model.layers=2")
    assert code == 0, shown
    assert transformer_of_file(file.read_text(), layers=2) == replace(Transformer("mine", **known), layers=2)
    file.write_text("[mine]\nlayers = 4\n")
    code, shown = invoked(f"--model {file} --gpus 4")
    assert (code, "ffn, heads, hidden" in " ".join(shown.split())) == (2, True)


def test_a_config_that_does_not_fit_is_said_so_with_the_changes_that_help_most(tmp_path: Path) -> None:
    path = tmp_path / "flags"
    path.write_text("--micro-batch-size 8 --global-batch-size 64 --bf16", encoding="utf-8")
    code, shown = invoked(f"--model llama-3-8b --gpus 8 --config {path}")
    assert code == 0
    assert "78.0 GiB of h100;" in " ".join(shown.split())


def test_a_calibrated_gpu_is_planned_with(tmp_path: Path) -> None:
    run, preset = tmp_path / "run.json", tmp_path / "mine.toml"
    split = {"dp": 2, "tp": 2, "microbatch": 4}
    measured = {"model": "gpt-1.7b", "gpu": "a100", "gpus": 4, "batch": 16, "split": split, "tokens_per_second": 40000}
    run.write_text(json.dumps(measured), encoding="utf-8")
    code, shown = invoked(f"--calibrate {run} -o {preset}")
    assert code == 0, shown
    line = f"--model gpt-1.7b --gpus 4 --batch 16 --gpu {preset} --dp 2 --tp 2 --zero 1 --microbatch 4"
    code, shown = invoked(f"{line} --recompute none --best 1 --json")
    assert code == 0, shown
    assert json.loads(shown)[0]["tokens_per_second"] == pytest.approx(40000, rel=1e-3)


def test_it_says_how_long_a_training_takes_with_failures() -> None:
    code, shown = invoked(f"{SMALL} --dp 2 --tp 2 --best 1 --microbatch 4 --mtbf 50k --checkpoint 1GB --train 1e12")
    assert code == 0, shown
    shown = " ".join(shown.split())
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
    code, shown = invoked(f"{line} {options} --set job.gradient=2 --set job.imbalance=2 --json")
    assert code == 0, shown
    assert json.loads(shown)[0]["seconds"] == plan(job, Split(dp=16, ep=16)).seconds
    flags = tmp_path / "flags"
    code, shown = invoked(f"{line} {options} --export megatron -o {flags}")
    assert code == 0, shown
    code, shown = invoked(f"--model qwen3-30b-a3b --gpus 16 --config {flags} --set job.gradient=2 --json")
    assert code == 0, shown
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
    code, shown = invoked(line)
    problem = " ".join(shown.partition("Error: ")[2].split())
    assert code == 2, shown
    assert all(fact in problem for fact in facts), problem
    assert "Traceback" not in shown


def test_amounts_are_read_as_people_write_them() -> None:
    assert [amount(text) for text in ("4096", "4M", "40GiB", "312e12", "1.5k", "80GB")] == [
        4096, 4_000_000, 40 * 2**30, 312 * 10**12, 1500, 80 * 10**9,
    ]  # fmt: skip
    for wrong in ("-3", "4x", "1e", "nan", "GiB"):
        with pytest.raises(ValueError, match=wrong):
            amount(wrong)
