"""`python -m lib.planning.measure`: the steps that it takes, the preset that follows, and a run on a processor."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from lib.planning import gpu
from lib.planning.measure import Measurement, Step, calibrated, report, steps_for
from lib.planning.presets import gpu_of_file

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
    used = found.gpu
    again = steps_for(used, small=False)
    assert again[1].predicted == pytest.approx(1.1 * steps[1].predicted, rel=1e-4)
    assert (
        gpu_of_file("[mine]\n" + "\n".join(f"{name} = {getattr(used, name)}" for name in NUMBERS)).memory == used.memory
    )


NUMBERS = (
    "flops", "flops8", "memory", "bandwidth", "nvlink", "network", "host", "machine", "efficiency", "core_megatron",
    "core_pytorch", "context", "efficiency_alone", "core_alone",
)  # fmt: skip


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
