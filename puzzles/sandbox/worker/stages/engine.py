"""A class in the child: it is launched on the engine, every call is made, and results and meters are sent back.

Meters count beside the player's code, in the same process. So what crossed between devices is noted a second time,
out of the way, and the engine and numpy are compared with what they were; that makes lying about figures harder, and
not impossible. Results need no trust: they are compared by the grader.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from puzzles.failure import Failure
from puzzles.sandbox.plain_data import unpack
from puzzles.sandbox.worker.meters.integrity import Seal
from puzzles.sandbox.worker.meters.isolate_modules import each_its_own
from puzzles.sandbox.worker.meters.traffic_log import Tally
from puzzles.sandbox.worker.meters.unmetered_data import require_arrays

from .perform import packed, perform, require_engine
from .stage import Place, Told

SEAL = Seal()
"""Of the engine, before any player's code."""

np.random.default_rng(0)  # its first use leaves 16 bytes behind, which are nobody's


def prepare(request: Mapping[str, Any]) -> dict[str, Any]:
    """What the class is tried with."""
    trial = unpack(request["trial"])
    assert isinstance(trial, dict)
    return trial


def run_definition(slug: str, cls: Any, trial: Mapping[str, Any], place: Place) -> Told:
    """Results, outputs and readings of one launch."""
    require_engine(slug, cls)
    broken = SEAL.broken()
    with Tally() as tally:
        results, outputs, meters = perform(trial, each_its_own(place.again), look=require_arrays)
    broken = broken or SEAL.broken()
    if broken:
        return Told(failure=Failure("rule", f"{broken} is not as it was; leave the engine to the engine", place.line))
    return Told(packed(results, outputs, meters, tally.told()))
