"""Every engine puzzle's reference reads the same meters on both transports, after every call of every trial."""

from __future__ import annotations

import json
from dataclasses import asdict
from functools import cache
from importlib import import_module
from typing import Any

import pytest

pytest.importorskip("numpy", reason="the engine needs numpy")
pytest.importorskip("greenlet", reason="devices in one process are greenlets")
pytest.importorskip("mpi4py", reason="needs the extra: pip install 'training-puzzles[mpi]'")

from lib import RuleError
from lib.engine.mpiexec import by_mpiexec, mpiexec
from puzzles.engine_catalog import ENGINE_PUZZLES, trials_of
from puzzles.engine_grade import grade_on
from puzzles.engine_judge import require_right
from puzzles.engine_perform import perform
from tests.test_engine_puzzles import REFERENCES

try:
    mpiexec()
except RuleError as why:
    pytest.skip(str(why), allow_module_level=True)

TRIALS = [(slug, i, make().devices) for slug, p in ENGINE_PUZZLES.items() for i, make in enumerate(trials_of(p))]


def readings(slug: str, number: int, on: str) -> Any:
    """All meters of one trial, as JSON knows them; the results are right."""
    cls = getattr(import_module(f"solutions.engine.{REFERENCES[slug].stem}"), slug)
    trial = trials_of(ENGINE_PUZZLES[slug])[number]()
    performed = perform(trial, cls, on)
    require_right(trial, performed)
    return json.loads(json.dumps([[asdict(meter) for meter in row] for row in performed.readings]))


def answer(request: str) -> str:
    """What each of several processes under mpiexec does: all trials with as many devices."""
    devices = int(request)
    return json.dumps({f"{slug} {i}": readings(slug, i, "mpi") for slug, i, n in TRIALS if n == devices})


@cache
def on_mpi(devices: int) -> dict[str, Any]:
    """One start for all trials with so many devices."""
    told: dict[str, Any] = json.loads(by_mpiexec(devices, __name__, str(devices)))
    return told


@pytest.mark.parametrize(("slug", "number", "devices"), TRIALS)
def test_a_reference_has_the_same_meters_on_both_transports(slug: str, number: int, devices: int) -> None:
    assert on_mpi(devices)[f"{slug} {number}"] == readings(slug, number, "inprocess")


def test_a_puzzle_with_trials_on_other_numbers_of_devices_is_judged_on_mpi_as_well() -> None:
    (verdict,) = grade_on(str(REFERENCES["LayerSplit"]), ENGINE_PUZZLES["LayerSplit"], "mpi")
    assert (verdict.status, verdict.figures["clock"]) == ("passed", 49_152)
