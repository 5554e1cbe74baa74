"""The references of all engine puzzles have the same results and the same meters in process and on MPI."""

import json

import pytest

from lib.engine.launcher import by_mpiexec
from puzzles.catalog.engine import ENGINE_PUZZLES
from tests.support.engine_trials import numbers_of_devices, readings
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
