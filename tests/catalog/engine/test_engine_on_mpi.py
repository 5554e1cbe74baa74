"""The references of all engine puzzles have the same results and the same meters in process and on MPI."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lib.engine.transports.mpi.spawn import by_mpiexec
from puzzles.catalog.engine import ENGINE_PUZZLES
from tests.support.engine_trials import SOLUTIONS, numbers_of_devices, readings, verdict_on, verdict_on_mpi
from tests.support.mpi import mpiexec_or_skip

mpiexec_or_skip()


@pytest.mark.slow
@pytest.mark.parametrize("devices", numbers_of_devices())
def test_meters_are_the_same_on_mpi(devices: int) -> None:
    there = json.loads(by_mpiexec(devices, "tests.support.engine_trials", str(devices)))
    assert there == readings(devices)


@pytest.mark.slow
def test_no_puzzle_is_left_out() -> None:
    found = {name.partition(",")[0] for devices in numbers_of_devices() for name in readings(devices)}
    assert found == set(ENGINE_PUZZLES)


@pytest.mark.slow
def test_a_class_is_graded_on_each_number_of_devices(tmp_path: Path) -> None:
    right = SOLUTIONS / "matmul_2d.py"
    wrong = tmp_path / "mine.py"
    wrong.write_text(right.read_text(encoding="utf-8").replace("x_size, y_size = mesh", "x_size, y_size = mesh[::-1]"))
    for path in (right, wrong):
        there, here = (grade("Matmul2D", path) for grade in (verdict_on_mpi, verdict_on))
        assert there == here
    assert "of 8, in forward" in there.message
    assert "tried with 8 devices, model_dim 12, hidden_dim 16, mesh [4, 2]" in there.message


def test_a_script_that_plays_does_not_play_on_every_process(tmp_path: Path) -> None:
    mine = tmp_path / "mine.py"
    played = "\nfrom puzzles import play\n\nassert play(RingAllReduce) is None\n"
    mine.write_text((SOLUTIONS / "ring_all_reduce.py").read_text(encoding="utf-8") + played)
    verdict = verdict_on_mpi("RingAllReduce", mine)
    assert (verdict.status, verdict.message) == ("passed", "")
