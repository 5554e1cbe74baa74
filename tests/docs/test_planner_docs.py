"""docs/planner.md: its commands work, print what is shown, and lead to the decision that it tells of."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import Result

from lib.planning import plan
from lib.planning.plans import time_parts
from tests.support.commands import puzzles
from tests.support.pages import blocks, page
from tests.support.published_runs import EXPERTS, seconds_of

PAGE = page("docs/planner.md")
COMMANDS = re.findall(r"^puzzles plan .*", PAGE, re.MULTILINE)
SHOWN = blocks(PAGE, "text")
EXAMPLE = next(line for line in COMMANDS if "--pareto" in line)
CONFIGS = [line for line in COMMANDS if "run.toml" in line]
MEASURED = [line for line in COMMANDS if "run.json" in line or "mine.toml" in line]
HEAVY = [line for line in COMMANDS if "mixtral" in line or "gpt-3" in line or "32768" in line or "qwen3" in line]


def ran(line: str) -> Result:
    result = puzzles(*line.split()[1:])
    assert result.exit_code == 0, result.output
    return result


def plain(text: str) -> str:
    """Without the blanks that fill a table's rows."""
    return "\n".join(line.rstrip() for line in text.strip("\n").splitlines())


@pytest.mark.slow
def test_the_example_prints_and_draws_what_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert plain(ran(EXAMPLE).stdout) == plain(SHOWN[0])
    assert "of the fullest GPU" in Path("front.svg").read_text(encoding="utf-8")
    assert "one replica, in milliseconds" in Path("fastest.html").read_text(encoding="utf-8")


@pytest.mark.slow
def test_the_python_of_the_page_prints_what_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    (code,) = blocks(PAGE, "python")
    exec(compile(code, "planner.md", "exec"), {})
    assert capsys.readouterr().out == SHOWN[1]


@pytest.mark.slow
def test_a_slow_network_changes_the_decision() -> None:
    slow, alone = (line for line in COMMANDS if "gpu.network" in line)
    fast = json.loads(ran(f"{EXAMPLE.partition(' --pareto')[0]} --json").stdout)[0]
    first, other = (json.loads(ran(f"{line} --json").stdout)[0] for line in (slow, alone))
    assert [f"{one['seconds']:.2f}" for one in (first, fast, other)] == re.findall(
        r"\d\.\d\d(?= s instead|\. It sends| s\. It gathers)", PAGE
    )
    assert (first["split"]["pp"], first["split"]["tp"], first["split"]["zero"]) == (2, 2, 1)
    assert (first["links"]["pp"], first["links"]["tp"], first["links"]["dp"]) == ("nvlink", "nvlink", "network")
    assert (other["split"]["shards"], other["links"]["dp"], other["links"]["groups"]) == (8, "nvlink", "network")
    sent = [round(first["sent"]["dp"] / 1e9), round(other["sent"]["groups"] / 1e9)]
    assert [f"{count} GB" for count in sent] == re.findall(r"sends (\d+ GB)", PAGE)


@pytest.mark.slow
def test_the_config_of_the_page_is_written_and_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write, read = CONFIGS
    ran(write)
    assert Path("run.toml").read_text(encoding="utf-8").startswith("# torchtitan v0.2.2")
    shown = " ".join(ran(read).stdout.split())
    assert "It fits the 78.0 GiB" in shown
    assert "waiting" in shown


@pytest.mark.slow
def test_the_measured_run_of_the_page_is_calibrated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (run,) = blocks(PAGE, "json")
    Path("run.json").write_text(run, encoding="utf-8")
    calibrate, train = MEASURED
    ran(calibrate)
    assert "Measured peak 66.0 GiB" in Path("mine.toml").read_text(encoding="utf-8")
    assert "GPU hours" in " ".join(ran(train).stdout.split())


def test_the_figures_of_experts_are_those_of_the_published_runs() -> None:
    """Measured and predicted seconds of two runs, and a run that waits for its host for most of its step."""
    rows = ("Qwen3 30B BF16 EP16 alltoall", "Qwen3 30B BF16 EP16 overlap", "Qwen3 30B MXFP8 mbs1 b200 8")
    apart, overlapped, late = (next(run for run in EXPERTS if run.row == row) for row in rows)
    text = " ".join(PAGE.split())
    measured = f"took {apart.figure:.1f} s a step with all-to-alls, and {overlapped.figure:.1f} s with HybridEP"
    predicted = [f"{seconds_of(run):.1f}" for run in (apart, overlapped)]
    assert measured in text
    assert f"the planner says {predicted[0]} and {predicted[1]} s" in text
    seconds = late.job.tokens / late.figure / late.job.gpus
    assert f"takes {seconds:.1f} s, of which kernels" in text
    assert time_parts(plan(late.job, late.split))["host"] > seconds / 2


@pytest.mark.parametrize("line", [pytest.param(one, marks=pytest.mark.slow) for one in HEAVY])
def test_the_other_commands_work(line: str) -> None:
    shown = ran(line).stdout
    if "--json" in line:
        assert all(0 < one["mfu"] < 1 for one in json.loads(shown))


def test_every_command_of_the_page_is_one_of_these() -> None:
    tested = {EXAMPLE, *CONFIGS, *MEASURED, *HEAVY, *(line for line in COMMANDS if "gpu.network" in line)}
    assert [line for line in COMMANDS if line not in tested] == ["puzzles plan --list"]
    listed = ran("puzzles plan --list").stdout
    assert all(name in listed for name in ("llama-3-405b", "gpt-1t", "b200", "Grattafiori"))
