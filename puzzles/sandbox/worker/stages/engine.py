"""Engine puzzles in the worker: launches the class, makes every call, and returns results and meter readings.

Meters run in the same process as the player's code. So the traffic between devices is recorded a second time, and the
engine and numpy are checked for changes; that makes forging figures harder, not impossible. Results need no trust: the
grader compares them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from puzzles.failure import Failure
from puzzles.sandbox.plain_data import unpack
from puzzles.sandbox.worker.meters.integrity import EngineSnapshot
from puzzles.sandbox.worker.meters.isolate_modules import class_per_device
from puzzles.sandbox.worker.meters.traffic_log import TrafficLog
from puzzles.sandbox.worker.meters.unmetered_data import require_arrays

from .engine_trial import packed, require_engine, run_trial
from .stage import DefinitionSite, StageResult

SNAPSHOT = EngineSnapshot()
"""Taken when this module is imported, before any player's code."""

np.random.default_rng(0)  # its first use leaves 16 bytes behind, which are nobody's


def prepare(request: Mapping[str, Any]) -> dict[str, Any]:
    """Unpacks the trial: arguments, parameters and calls."""
    trial = unpack(request["trial"])
    assert isinstance(trial, dict)
    return trial


def run_definition(slug: str, cls: Any, trial: Mapping[str, Any], site: DefinitionSite) -> StageResult:
    """Results, outputs, readings and traffic of one launch.

    Raises:
        UnplayableError: it is not an engine class.
        Exception: any error of the class or of the engine.
    """
    require_engine(slug, cls)
    changed = SNAPSHOT.changed()
    with TrafficLog() as traffic:
        results, outputs, meters = run_trial(trial, class_per_device(site.load_again), look=require_arrays)
    changed = changed or SNAPSHOT.changed()
    if changed:
        return StageResult(failure=Failure("rule", f"{changed} was changed; leave the engine as it is", site.line))
    return StageResult(packed(results, outputs, meters, traffic.rows()))
