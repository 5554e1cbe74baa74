"""docs/solver.md and docs/torch.md: their commands work."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from lib.engine.replay.pipelining import missing
from lib.extras import install_command
from tests.support.commands import puzzles
from tests.test_imports import ROOT

PAGES = {name: (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8") for name in ("solver", "torch")}


def commands(name: str) -> list[str]:
    return re.findall(r"^puzzles .*", PAGES[name], re.MULTILINE)


@pytest.mark.slow
def test_the_commands_of_the_solver_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shown = []
    for line in commands("solver"):
        result = puzzles(*line.split()[1:], *(["--effort", "0.2", "--proof-seconds", "1"] if "solve" in line else []))
        assert result.exit_code == 0, result.output
        shown.append(result.output)
    assert "longest span 104.7" in shown[0]
    assert "Optimal" in shown[0]
    assert "rank 7" in shown[0]
    assert "104.7 timesteps" in " ".join(shown[1].split())
    assert "over at 53" in shown[3]
    assert {path.name for path in tmp_path.iterdir()} == {"found.svg", "found.csv", "found.py", "found.json"}
    spaces: dict[str, object] = {"__name__": "found"}
    exec(compile(Path("found.py").read_text(), "found.py", "exec"), spaces)
    assert spaces["SIZE"] == (8, 32, 8)


@pytest.mark.slow
def test_the_commands_for_pytorch_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text((ROOT / "solutions" / "zb_h1.py").read_text(encoding="utf-8"))
    ran = []
    for line in commands("torch"):
        if "--on torch" in line:
            continue  # tests/engine/test_pipelining.py and tests/profiles/test_recording.py run them
        result = puzzles(*line.split()[1:])
        assert result.exit_code == 0, result.output
        ran.append(" ".join(result.output.split()))
    assert len(ran) == 5
    assert "0SEND_F0" in Path("zb_comms.csv").read_text()
    assert "Correct: ZB-H1" in ran[2]
    assert "8 layers, 8 batches," in ran[3]
    assert "4 ranks" in ran[3]
    assert "27 timesteps" in ran[4]


def test_the_example_for_torchtitan_loads_the_file_that_is_exported(tmp_path: Path) -> None:
    config = tomllib.loads(re.findall(r"^```toml\n(.*?)^```", PAGES["torch"], re.MULTILINE | re.DOTALL)[0])
    chosen, file = config["parallelism"], tmp_path / config["parallelism"]["pipeline_parallel_schedule_csv"]
    args = ["export", str(ROOT / "solutions" / "zb_h1.py"), "zb_h1", "--format", "torch-csv", "-o", str(file)]
    assert puzzles(*args).exit_code == 0
    assert len(file.read_text().splitlines()) == chosen["pipeline_parallel_degree"]


@pytest.mark.slow
def test_pytorch_has_the_schedule_of_the_example_for_torchtitan() -> None:
    if why := missing():
        pytest.skip(why)
    from torch.distributed.pipelining.schedules import get_schedule_class

    config = tomllib.loads(re.findall(r"^```toml\n(.*?)^```", PAGES["torch"], re.MULTILINE | re.DOTALL)[0])
    assert hasattr(get_schedule_class(config["parallelism"]["pipeline_parallel_schedule"]), "_load_csv")


def test_the_page_says_how_to_install_what_a_refusal_asks_for() -> None:
    why = missing()
    assert ".[torch]" in PAGES["torch"]
    assert not why or install_command("torch") in why
