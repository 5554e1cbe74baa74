"""Judges what came of a trial: equal to the single device, and within the targets? The figures are measured."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from .engine_catalog import trials_of
from .engine_catalog.figures import FIGURES
from .engine_catalog.puzzle import EnginePuzzle
from .engine_catalog.trial import Performed, Trial, Wrong
from .engine_perform import perform


class Judged(NamedTuple):
    """What a class does: figures by name in the first trial, and the targets it misses in any, in words."""

    figures: dict[str, int]
    missed: tuple[str, ...]


def judge(puzzle: EnginePuzzle, cls: type, on: str = "inprocess") -> Judged:
    """Performs all trials of a puzzle, and judges them. On MPI there are as many processes as the first trial has
    devices, so only trials with that many.

    Raises:
        Wrong: naming device, call and place of the first wrong number.
        Exception: what the class raises.
    """
    figures: list[dict[str, int]] = []
    missed: list[str] = []
    trials = [make() for make in trials_of(puzzle)]
    for trial in trials:
        if on == "mpi" and trial.devices != trials[0].devices:
            continue
        where = "" if trial is trials[0] else f" (in a further trial, on {trial.devices} devices)"
        performed = perform(trial, cls, on)
        try:
            require_right(trial, performed)
        except Wrong as why:
            raise Wrong(f"{why}{where}") from None
        targets = puzzle.targets if trial.targets is None else trial.targets
        figures.append({name: FIGURES[name].of(performed) for name in {*puzzle.targets, *targets}})
        if not missed:  # what is missed with the shown data is told with it alone
            missed = [told + where for told in _missed(figures[-1], targets)]
    return Judged(figures[0], tuple(missed))


def require_right(trial: Trial, performed: Performed) -> None:
    """Nothing, if every result is as it should be.

    Raises:
        Wrong: saying where the first one is not.
    """
    for call, results in zip(trial.calls, performed.results):
        for device, (result, right) in enumerate(zip(results, call.wanted or ())):
            compare(result, right, f"device {device}, {call.method}()", trial.tolerance)
    if trial.stream is not None:
        inputs, outputs = trial.stream
        got = performed.outputs
        if len(got) != len(outputs):
            raise Wrong(f"there are {len(got)} outputs for {len(inputs)} inputs; one device writes one for each")
        for i, (result, right) in enumerate(zip(got, outputs)):
            compare(result, right, f"output {i}", trial.tolerance)
    if trial.check is not None:
        trial.check(performed)


def _missed(figures: Mapping[str, int], targets: Mapping[str, int]) -> list[str]:
    return [
        f"{FIGURES[name].words} {figures[name]:,}, and the target is {limit:,}"
        for name, limit in targets.items()
        if figures[name] > limit
    ]


def compare(result: Any, right: Any, where: str, tolerance: float = 0.0) -> None:
    """Nothing, if they are equal, or as near as `tolerance` allows: shapes, names and every number.

    Raises:
        Wrong: saying where they first differ.
    """
    if right is None:
        if result is not None:
            raise Wrong(f"{where} should return None; it returned {_described(result)}")
        return
    if isinstance(right, dict):
        if not isinstance(result, dict) or set(result) != set(right):
            raise Wrong(f"{where} should return a dictionary of {', '.join(right)}; it returned {_described(result)}")
        for name in right:
            compare(result[name], right[name], f"{where}, '{name}'", tolerance)
        return
    if not isinstance(result, np.ndarray) or result.shape != right.shape:
        raise Wrong(f"{where} should be an array of shape {right.shape}; it is {_described(result)}")
    allowed = tolerance * np.abs(right).max(initial=0)
    near = result == right if not tolerance else np.abs(result - right) <= allowed
    if not near.all():
        place = tuple(int(i[0]) for i in np.nonzero(~near))
        at = ", ".join(map(str, place))
        raise Wrong(
            f"{where} differs from what a single device computes: at [{at}] it is {result[place]:g} "
            f"and should be {right[place]:g}"
        )


def _described(result: Any) -> str:
    if isinstance(result, np.ndarray):
        return f"one of shape {result.shape}"
    if isinstance(result, dict):
        return f"one of {', '.join(map(str, result)) or 'nothing'}"
    return "None" if result is None else f"of type {type(result).__name__}"
