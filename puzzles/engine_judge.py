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

SHORT = 20
"""Letters of an argument that is told in a message."""


class Judged(NamedTuple):
    """What a class does: figures by name in the first trial; the targets it misses, in words, in the first trial in
    which it misses any."""

    figures: dict[str, int]
    missed: tuple[str, ...]


def judge(puzzle: EnginePuzzle, cls: type, on: str = "inprocess", devices: int | None = None) -> Judged:
    """Performs all trials of a puzzle, or those on so many devices, and judges them.

    Raises:
        Wrong: naming device, call and place of the first wrong number.
        Exception: what the class raises.
    """
    figures: list[dict[str, int]] = []
    missed: list[str] = []
    for number, make in enumerate(trials_of(puzzle)):
        trial = make()
        if devices not in (None, trial.devices):
            continue
        where = f"{_tried_with(trial)}: " if number else ""
        try:
            performed = perform(trial, cls, on)
            require_right(trial, performed)
        except Wrong as why:
            raise Wrong(f"{where}{why}") from None
        except Exception as why:
            if where:
                why.add_note(where.removesuffix(": "))
            raise
        targets = puzzle.targets if trial.targets is None else trial.targets
        figures.append({name: FIGURES[name].of(performed) for name in {*puzzle.targets, *targets}})
        missed = missed or [where + words for words in _missed(figures[-1], targets)]
    return Judged(figures[0], tuple(missed))


def require_right(trial: Trial, performed: Performed) -> None:
    """Nothing, if every result is as it should be.

    Raises:
        Wrong: saying where the first one is not.
    """
    for call, results in zip(trial.calls, performed.results):
        for device, (result, right) in enumerate(zip(results, call.wanted or ())):
            try:
                compare(result, right, f"device {device}, {call.method}()", trial.tolerance)
            except Wrong as why:
                known = (words for words, made in call.mistakes.items() if _is(result, made[device], trial.tolerance))
                raise Wrong("; ".join([str(why), *known])) from None
    if trial.stream is not None:
        inputs, outputs = trial.stream
        got = performed.outputs
        if len(got) != len(outputs):
            raise Wrong(f"there are {len(got)} outputs for {len(inputs)} inputs; one device writes one for each")
        for i, (result, right) in enumerate(zip(got, outputs)):
            compare(result, right, f"output {i}", trial.tolerance)
    if trial.check is not None:
        trial.check(performed)


def _tried_with(trial: Trial) -> str:
    """How a trial is not the one shown: "tried with 8 devices, model_dim 32"."""
    sizes = (f"{name} {value}" for name, value in trial.arguments.items() if len(str(value)) < SHORT)
    return ", ".join([f"tried with {trial.devices} devices", *sizes])


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
        told = "" if np.isfinite(result[place]) else " (something was too large for its dtype, or divided by 0)"
        raise Wrong(
            f"{where} differs from what a single device computes: at [{at}] it is {result[place]:g}{told} "
            f"and should be {right[place]:g}"
        )


def _is(result: Any, made: Any, tolerance: float) -> bool:
    try:
        compare(result, made, "", tolerance)
    except Wrong:
        return False
    return True


def _described(result: Any) -> str:
    if isinstance(result, np.ndarray):
        return f"one of shape {result.shape}"
    if isinstance(result, dict):
        return f"one of {', '.join(map(str, result)) or 'nothing'}"
    return "None" if result is None else f"of type {type(result).__name__}"
