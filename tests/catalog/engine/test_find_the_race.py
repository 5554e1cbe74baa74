"""FindTheRace: the race is hidden if puts land immediately, and shows in every run where one device's land late."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lib.engine import launch
from puzzles.catalog.engine import ENGINE_PUZZLES
from puzzles.catalog.engine.trial import WrongResultError
from puzzles.content.engine.experts import trials
from puzzles.judge.starters import starter_file
from puzzles.tracks.engine.judge import require_right
from solutions.engine.exact_dispatch import ExactDispatch
from solutions.engine.find_the_race import FindTheRace
from tests.support.engine_trials import perform, verdict_on

N = 4


def run(cls: type, late: Any) -> tuple[list[Any], Any]:
    """Every device's outputs for five tokens each, and the meters."""
    params = trials.expert_parameters(3, 8, 16)
    xs = trials.token_groups(53, 5, params)
    with launch(cls, N, late_puts=late, model_dim=8, hidden_dim=16, tokens=5) as devices:
        devices.load_checkpoint(params)
        results = devices.forward(xs)
        return [r if isinstance(r, np.ndarray) else r["out"] for r in results], devices.meters


@pytest.mark.parametrize("cls", [ExactDispatch, FindTheRace])
@pytest.mark.parametrize("late", [(), (0,), (2,), (1, 3), (0, 1, 2, 3)])
def test_a_right_program_is_the_same_under_every_schedule(cls: type, late: Any) -> None:
    (as_ever, meters), (under, under_meters) = run(cls, None), run(cls, late)
    assert under_meters == meters
    assert all(map(np.array_equal, as_ever, under))


def starter(tmp_path: Path) -> Path:
    """FindTheRace as it is handed out, begun."""
    text = starter_file([ENGINE_PUZZLES["FindTheRace"]], "mine.py")
    path = tmp_path / "mine.py"
    path.write_text(text.replace("        raise NotImplementedError  # take this line out to begin\n", ""))
    assert path.read_text() != text
    return path


def racing(tmp_path: Path) -> type:
    names: dict[str, Any] = {"__name__": "racing"}
    exec(starter(tmp_path).read_text(), names)
    cls: type = names["FindTheRace"]
    return cls


def test_the_race_is_hidden_if_all_puts_land_immediately(tmp_path: Path) -> None:
    trial = trials.find_the_race(())
    require_right(trial, perform(trial, racing(tmp_path)))


@pytest.mark.parametrize("late", range(N))
def test_a_late_device_finds_its_rows_missing_every_time(late: int, tmp_path: Path) -> None:
    trial = trials.find_the_race((late,))
    told = []
    for _ in range(3):
        with pytest.raises(WrongResultError, match=f"device {late}, forward.*; the experts read") as why:
            require_right(trial, perform(trial, racing(tmp_path)))
        told.append(str(why.value))
    assert len(set(told)) == 1
    assert f"what device {late} puts lands at" in told[0]


@pytest.mark.slow
def test_one_barrier_fixes_it(tmp_path: Path) -> None:
    """The reference is the starter and one line more."""
    path = starter(tmp_path)
    path.write_text(path.read_text().replace("        made =", "        self.barrier()\n        made ="))
    verdict = verdict_on("FindTheRace", path)
    assert (verdict.status, verdict.message) == ("passed", "")
    assert path.read_text().partition("class")[2] == inspect.getsource(FindTheRace).partition("class")[2]
