"""Calibration: checkpoints and failures, rates from one step, and lib.planning.measure."""

import json
import subprocess
import sys
from dataclasses import replace
from math import exp
from pathlib import Path
from typing import Any

import pytest

from lib import RuleError
from lib.planning import Job, Split, gpu, plan, transformer
from lib.planning.calibration import calibrate, calibrate_stages, preset_text, read_run
from lib.planning.job import SHARES, checkpoint_bytes, goodput, training_seconds
from lib.planning.measure import Measurement, Step, calibrated, report, steps_for
from lib.planning.presets import gpu_of_file
from lib.planning.prices import layer_times, prices, shared
from tests.screens.texts import approved

# === Checkpoints, failures and rates from one step ===


JOB = Job(transformer("llama-3-405b"), gpu("h100"), 16384, 2048)
SMALL = Job(transformer("llama-3-8b", layers=8), gpu("h100"), 8, 16, 4096)
SPLIT = Split(dp=4, pp=2)


def test_the_interval_is_nearly_the_best_of_all() -> None:
    found = goodput(JOB, 50_000, 200e9)
    assert found.checkpoint == pytest.approx(14 * JOB.model.weights / 200e9)
    mean = found.between_failures

    def share(interval: float) -> float:
        return interval / (mean * exp(300 / mean) * (exp((interval + found.checkpoint) / mean) - 1))

    assert found.share == pytest.approx(share(found.interval))
    best = max(share(found.interval * (1 + k / 1000)) for k in range(-500, 500))
    assert found.share == pytest.approx(best, rel=1e-5)
    assert found.interval == pytest.approx((2 * found.checkpoint * mean) ** 0.5, rel=0.05)  # Young


def test_failures_of_more_gpus_and_slower_checkpoints_cost_more() -> None:
    shares = [
        goodput(replace(JOB, gpus=gpus), 50_000, rate).share
        for gpus, rate in ((1024, 2e11), (16384, 2e11), (16384, 2e10))
    ]
    assert 1 > shares[0] > shares[1] > shares[2] > 0


def test_a_training_takes_as_long_as_its_steps() -> None:
    assert training_seconds(JOB, 6.5, 10 * JOB.tokens) == pytest.approx(65)
    assert training_seconds(JOB, 6.5, 10 * JOB.tokens, 0.5) == pytest.approx(130)
    assert checkpoint_bytes(JOB) == 14 * JOB.model.weights


@pytest.mark.parametrize(
    ("given", "fact"),
    [((0, 1e9), "mtbf must be a number more than 0"), ((1.0, float("nan")), "bandwidth must be"),
     ((100, 1e9), "nothing is ever trained"), ((50_000, 1e11, -1), "restart must be")],
)  # fmt: skip
def test_numbers_with_which_nothing_trains_are_refused(given: Any, fact: str) -> None:
    with pytest.raises(RuleError, match=fact):
        goodput(JOB, *given)


# --- Calibration ---


@pytest.mark.parametrize("factor", [0.8, 1.1])
def test_a_step_of_known_rates_gives_these_rates(factor: float) -> None:
    known = replace(SMALL, gpu=replace(SMALL.gpu, **{name: getattr(SMALL.gpu, name) * factor for name in SHARES}))
    found = calibrate(SMALL, SPLIT, plan(known, SPLIT).tokens_per_second)
    assert found.factor == pytest.approx(factor, rel=1e-4)
    assert found.low < found.factor < found.high
    again = plan(replace(SMALL, gpu=found.gpu), SPLIT)
    assert again.seconds == pytest.approx(plan(known, SPLIT).seconds, rel=1e-4)


def profiled(job: Job, split: Split, *slower: float) -> list[dict[str, Any]]:
    """Stages as `puzzles profile` writes them, in ms, each so many times slower; one with its backward in halves."""
    priced, stages = prices(job, split), []
    for stage, factor in enumerate(slower):
        halves = {"I": priced.back_input, "W": priced.back_weight}
        ticks = {"F": priced.forward, **(halves if stage == 1 else {"B": sum(halves.values())})}
        times = {op: factor * priced.units[stage] * n / 1000 for op, n in ticks.items()}
        times["F"] += factor * priced.loss / 1000 if stage == split.stages - 1 else 0
        row = {op: {"median": ms, "low": ms, "high": ms} for op, ms in times.items()}
        stages.append({"stage": stage, "rank": stage, "times": row, "held": 1})
    return stages


def test_measured_stages_give_the_rates_of_their_median() -> None:
    known = replace(SMALL, gpu=replace(SMALL.gpu, **{name: getattr(SMALL.gpu, name) * 0.9 for name in SHARES}))
    split = Split(dp=2, pp=4)
    stages = profiled(known, split, 1, 1, 1.2, 1)
    found = calibrate_stages(
        SMALL, split, [sum(one["median"] for one in row["times"].values()) / 1e3 for row in stages]
    )
    assert found.factor == pytest.approx(0.9, rel=1e-3)
    assert found.low < 0.8 < found.high == pytest.approx(0.9, rel=1e-3)
    assert f"({found.low:.3f} to {found.high:.3f} of the stages)" in preset_text(found, "mine")


def test_stages_of_a_profile_are_read() -> None:
    split, job = Split(dp=2, pp=4), Job(transformer("llama-3-8b"), gpu("h100"), 8, 16, kernels="pytorch")
    found = read_run(run_of("stages", profiled(job, split, 1, 1, 1, 1), split={"dp": 2, "pp": 4}))
    assert found.by_stage
    assert found.factor == pytest.approx(1, rel=1e-3)


def test_a_measured_layer_of_experts_gives_the_rates() -> None:
    model, split = transformer("qwen3-30b-a3b"), Split(dp=8, ep=8)
    job = Job(model, gpu("h100", efficiency=0.5, core_megatron=0.65 * 0.5 / 0.6), 8, 16, graphs="full")
    seconds = sum(layer_times(job, shared(split))[:3])
    given = {"model": model.name, "split": {"dp": 8, "ep": 8}, "kernels": "megatron", "graphs": "full"}
    found = read_run(run_of("layer", seconds, **given))
    assert found.factor == pytest.approx(0.5 / 0.6, rel=1e-4)
    assert found.low < found.factor < found.high


def test_a_preset_file_is_read_back() -> None:
    found = calibrate(SMALL, SPLIT, 100_000, peak_gib=20)
    text = preset_text(found, "mine")
    approved("goodput", "a preset file is read back", text, "Measured peak 20.0 GiB;")
    assert f"x {found.factor:.3f}" in text
    read = gpu_of_file(text)
    assert (read.name, read.efficiency, read.context) == ("mine", found.gpu.efficiency, found.gpu.context)
    assert gpu_of_file(text, network=1e9).network == 1e9


def run_of(measured: str = "tokens_per_second", value: Any = 60000, **changed: Any) -> str:
    given = {"model": "llama-3-8b", "gpu": "h100", "gpus": 8, "batch": 16, "split": {"dp": 8, "zero": 3}}
    return json.dumps({**given, measured: value, "kernels": "pytorch", **changed})


def test_a_measured_run_is_json() -> None:
    found = read_run(run_of(peak_gib=60))
    job = Job(transformer("llama-3-8b"), found.gpu, 8, 16, kernels="pytorch")
    assert plan(job, Split(dp=8, zero=3)).tokens_per_second == pytest.approx(60000, rel=1e-3)
    assert found.peak == 60 * 2**30


@pytest.mark.parametrize(
    ("text", "facts"),
    [
        ("{", ("a measured run is JSON",)),
        ("[]", ("has model, gpu, gpus", "may have peak_gib")),
        (run_of(speed=1), ("may have peak_gib",)),
        (run_of(split={"ddp": 8}), ("fields of a split", "microbatch")),
        (run_of(tokens_per_second=1e9), ("cannot be explained by the rates of h100", "at the data sheet's rate")),
        (run_of(tokens_per_second=-1), ("tokens_per_second must be a number more than 0",)),
        (run_of(split={"dp": 4}), ("makes 4 GPUs, and there are 8",)),
        (run_of(stages=[]), ("tokens_per_second or stages", "may have peak_gib")),
        (run_of("layer", 0), ("layer must be a number more than 0",)),
        (run_of("layer", 1e-9), ("a layer with dp 8", "data sheet's rate")),
        (run_of(dispatch="flex"), ("dispatch is one of alltoall, dedup",)),
        (run_of("stages", [3]), ("stages is the list that puzzles profile",)),
        (run_of("stages", []), ("0 stages were measured", "has 1")),
        (run_of("stages", [{"times": {"F": {"median": 0}}}]), ("the time of stage 0 must be a number more than 0",)),
        (run_of("stages", [{"times": {"F": {"median": 1}}}]), ("a microbatch in stage 0 takes", "data sheet's rate")),
    ],
)
def test_a_run_that_cannot_be_calibrated_is_refused(text: str, facts: tuple[str, ...]) -> None:
    with pytest.raises(RuleError) as why:
        read_run(text)
    assert all(fact in str(why.value) for fact in facts), why.value


@pytest.mark.parametrize(
    ("text", "fact"), [("x", "a preset file is TOML"), ("[a]\nflops = 1", "one table"), ("a = 1", "one table")]
)
def test_a_file_that_is_no_preset_is_refused(text: str, fact: str) -> None:
    with pytest.raises(RuleError, match=fact):
        gpu_of_file(text)


# === Steps that a GPU takes ===


ROOT = Path(__file__).parents[2]
H100 = gpu("h100")


@pytest.mark.parametrize("name", ["h100", "a100-40gb", "v100"])
def test_the_steps_fit_the_gpu(name: str) -> None:
    used = gpu(name)
    steps = steps_for(used, small=False)
    assert [step.compiled for step in steps] == [False, True, False, False]
    assert all(step.plan.peak <= used.usable for step in steps)
    assert steps[0].plan.job == steps[1].plan.job
    assert {step.plan.split.recompute for step in steps} == {"none", "full"}


def measured(steps: list[Step], factor: float) -> list[Measurement]:
    return [Measurement(factor * step.predicted, 0.02, 60 * 2**30) for step in steps]


def test_the_preset_gives_the_compiled_step_its_measured_time() -> None:
    steps = steps_for(H100, small=False)
    found = calibrated(steps, measured(steps, 1.1))
    assert 0.8 < found.factor < 1
    again = steps_for(found.gpu, small=False)
    assert again[1].predicted == pytest.approx(1.1 * steps[1].predicted, rel=1e-4)


def test_predicted_is_beside_measured() -> None:
    steps = steps_for(H100, small=False)
    _, *rows = report(steps, measured(steps, 2.0))
    assert len(rows) == len(steps)
    assert all("-50.0%" in row for row in rows)


@pytest.mark.slow
def test_it_runs_on_a_processor_and_writes_a_preset(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="needs the extra: pip install -e '.[torch]'")
    command = [sys.executable, "-m", "lib.planning.measure", "--device", "cpu", "-o", str(tmp_path / "mine.toml")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 4
    found = gpu_of_file((tmp_path / "mine.toml").read_text(encoding="utf-8"))
    assert found.name == "mine"
    assert 0 < found.efficiency_alone < 1


def test_a_gpu_that_is_not_there_is_refused() -> None:
    torch = pytest.importorskip("torch", reason="needs the extra: pip install -e '.[torch]'")
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    command = [sys.executable, "-m", "lib.planning.measure", "--device", "cuda"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=ROOT)
    assert (done.returncode, done.stdout, "finds no GPU" in done.stderr) == (1, "", True)
