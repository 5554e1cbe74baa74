"""Every engine puzzle's trials, performed by its reference: what the meters read, here or in each process of MPI."""

from __future__ import annotations

import json
import re
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import Any

from puzzles.engine_perform import perform

from puzzles.engine_catalog import ENGINE_PUZZLES, trials_of
from puzzles.engine_judge import require_right

SOLUTIONS = Path(__file__).parent.parent / "solutions" / "engine"


def reference(slug: str) -> type:
    """The class that solves a puzzle."""
    text = re.compile(rf"^class {slug}\(ShardedEngine\)", re.MULTILINE)
    (path,) = (path for path in SOLUTIONS.glob("*.py") if text.search(path.read_text(encoding="utf-8")))
    found: type = getattr(import_module(f"solutions.engine.{path.stem}"), slug)
    return found


def numbers_of_devices() -> list[int]:
    return sorted({make().devices for puzzle in ENGINE_PUZZLES.values() for make in trials_of(puzzle)})


def readings(devices: int, on: str = "inprocess") -> dict[str, Any]:
    """The meters of all trials on so many devices, by "slug, number of the trial"; the results are right."""
    found = {}
    for slug, puzzle in ENGINE_PUZZLES.items():
        for number, make in enumerate(trials_of(puzzle)):
            trial = make()
            if trial.devices == devices:
                performed = perform(trial, reference(slug), on)
                require_right(trial, performed)
                found[f"{slug}, {number}"] = [[asdict(r) for r in after] for after in performed.readings]
    return found


def answer(request: str) -> str:
    """What each process under mpiexec does."""
    return json.dumps(readings(int(request), "mpi"))
