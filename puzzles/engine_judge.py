"""Tries a player's engine class: equal to the single device, and within the targets? The figures are measured."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from lib.engine import launch

from .engine_catalog.puzzle import FIGURES, EnginePuzzle
from .engine_catalog.trials import DEVICES, TRIALS


class Wrong(Exception):
    """A result that is not the single device's."""


class Judged(NamedTuple):
    """What a class does: figures by name (of the device that has most), and the targets it misses, in words."""

    figures: dict[str, int]
    missed: tuple[str, ...]


def judge(puzzle: EnginePuzzle, cls: type, on: str = "inprocess") -> Judged:
    """Runs the trial of a puzzle.

    Raises:
        Wrong: naming device, call and place of the first wrong number.
        Exception: what the class raises.
    """
    trial = TRIALS[puzzle.slug]()
    with launch(cls, DEVICES, on=on, **trial.arguments) as run:
        if trial.params:
            run.load_checkpoint(trial.params)
        weights = max(meter.live for meter in run.meters)
        for method, arguments, wanted in trial.calls:
            results = run.call(method, arguments)
            if wanted is not None:
                for device, (result, right) in enumerate(zip(results, wanted)):
                    compare(result, right, f"device {device}, {method}()")
        if trial.stream is not None:
            inputs, outputs = trial.stream
            got = list(run.inference_loop(inputs))
            if len(got) != len(outputs):
                raise Wrong(f"there are {len(got)} outputs for {len(outputs)} inputs; one device writes one for each")
            for i, (result, right) in enumerate(zip(got, outputs)):
                compare(result, right, f"output {i}")
        meters = run.meters
    figures = {
        "sent": max(m.sent for m in meters),
        "flops": max(m.flops for m in meters),
        "collectives": max(m.collectives for m in meters),
        "messages": max(m.messages for m in meters),
        "peak": max(m.peak for m in meters),
        "weights": weights,
        "kept": max(m.live for m in meters),
        "clock": max(m.clock for m in meters),
    }
    return Judged(figures, tuple(_missed(puzzle, figures)))


def _missed(puzzle: EnginePuzzle, figures: dict[str, int]) -> list[str]:
    return [
        f"{FIGURES[name]} {figures[name]:,}, and the target is {limit:,}"
        for name, limit in puzzle.targets.items()
        if figures[name] > limit
    ]


def compare(result: Any, right: Any, where: str) -> None:
    """Nothing, if they are equal: shapes, names and every number.

    Raises:
        Wrong: saying where they first differ.
    """
    if isinstance(right, dict):
        if not isinstance(result, dict) or set(result) != set(right):
            raise Wrong(f"{where} should return a dictionary of {', '.join(right)}; it returned {_described(result)}")
        for name in right:
            compare(result[name], right[name], f"{where}, '{name}'")
        return
    if not isinstance(result, np.ndarray) or result.shape != right.shape:
        raise Wrong(f"{where} should be an array of shape {right.shape}; it is {_described(result)}")
    if not np.array_equal(result, right):
        place = tuple(int(i[0]) for i in np.nonzero(result != right))
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
