"""Judges what came of a trial: equal to the single device, and within the targets? The figures are measured."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from puzzles.catalog.engine import trials_of
from puzzles.catalog.engine.figures import FIGURES
from puzzles.catalog.engine.puzzle import EnginePuzzle
from puzzles.catalog.engine.trial import Performed, Trial, WrongResultError
from puzzles.sandbox.plain_data import Foreign
from puzzles.tracks.base import Judged, tried_with

from .perform import perform, size_of


def judge(puzzle: EnginePuzzle, cls: type, on: str = "inprocess", devices: int | None = None) -> Judged:
    """Performs all trials of a puzzle, or those on so many devices, with a class that is trusted, and judges them: the
    figures of the first, and the targets that any misses.

    Raises:
        WrongResultError: naming device, call and place of the first wrong number.
        Exception: what the class raises.
    """
    found: list[Judged] = []
    trials = [make() for make in trials_of(puzzle)]
    for trial in trials:
        if devices not in (None, trial.devices):
            continue
        where = "" if trial is trials[0] else tried_with(size_of(trial, trials[0]))
        try:
            one = judged(puzzle, trial, perform(trial, cls, on))
        except WrongResultError as why:
            raise WrongResultError(where + str(why)) from None
        except Exception as why:
            if where:
                why.add_note(where.removesuffix(": "))
            raise
        found.append(one._replace(missed=tuple(where + words for words in one.missed)))
    return Judged(found[0].figures, next((one.missed for one in found if one.missed), ()))


def judged(puzzle: EnginePuzzle, trial: Trial, performed: Performed) -> Judged:
    """The figures of one trial, and the targets that it misses.

    Raises:
        WrongResultError: naming device, call and place of the first wrong number.
    """
    require_right(trial, performed)
    targets = puzzle.targets if trial.targets is None else trial.targets
    figures = {name: FIGURES[name].of(performed) for name in (*puzzle.targets, *targets)}
    if targets.get("flops") and not figures["flops"]:
        raise WrongResultError(
            "no flops were counted: make products of matrices with @, np.einsum, np.dot or np.tensordot"
        )
    return Judged(figures, tuple(_missed(figures, targets)))


def require_right(trial: Trial, performed: Performed) -> None:
    """Nothing, if every result is as it should be.

    Raises:
        WrongResultError: saying where the first one is not.
    """
    for call, results in zip(trial.calls, performed.results):
        for device, (result, right) in enumerate(zip(results, call.wanted or ())):
            try:
                compare(result, right, f"device {device}, {call.method}()", trial.tolerance)
            except WrongResultError as why:
                known = (words for words, made in call.mistakes.items() if _is(result, made[device], trial.tolerance))
                raise WrongResultError("; ".join(filter(None, [str(why), *known, trial.about]))) from None
    if trial.stream is not None:
        inputs, outputs = trial.stream
        got = performed.outputs
        if len(got) != len(outputs):
            raise WrongResultError(
                f"there are {len(got)} outputs for {len(inputs)} inputs; one device writes one for each"
            )
        for i, (result, right) in enumerate(zip(got, outputs)):
            compare(result, right, f"output {i}", trial.tolerance)
    if trial.check is not None:
        trial.check(performed)


def _missed(figures: Mapping[str, float], targets: Mapping[str, int]) -> list[str]:
    return [
        f"{FIGURES[name].words} {figures[name]:,}, and the target is {limit:,}"
        for name, limit in targets.items()
        if figures[name] > limit
    ]


def compare(result: Any, right: Any, where: str, tolerance: float = 0.0) -> None:
    """Nothing, if they are equal, or as near as `tolerance` allows: shapes, names and every number.

    Raises:
        WrongResultError: saying where they first differ.
    """
    if right is None:
        if result is not None:
            raise WrongResultError(f"{where} should return None; it returned {_described(result)}")
        return
    if isinstance(right, dict):
        if not isinstance(result, dict) or set(result) != set(right):
            raise WrongResultError(
                f"{where} should return a dictionary of {', '.join(right)}; it returned {_described(result)}"
            )
        for name in right:
            compare(result[name], right[name], f"{where}, '{name}'", tolerance)
        return
    if not isinstance(result, np.ndarray) or result.shape != right.shape:
        raise WrongResultError(f"{where} should be an array of shape {right.shape}; it is {_described(result)}")
    with np.errstate(all="ignore"):
        allowed = tolerance * np.abs(right).max(initial=0)
        near = result == right if not tolerance else np.abs(result - right) <= allowed
    if not near.all():
        place = tuple(int(i[0]) for i in np.nonzero(~near))
        at = ", ".join(map(str, place))
        finite = result.dtype.kind not in "fc" or np.isfinite(result[place])
        told = "" if finite else " (something was too large for its dtype, or divided by 0)"
        raise WrongResultError(
            f"{where} differs from what a single device computes: at [{at}] it is {_number(result[place])}{told} "
            f"and should be {_number(right[place])}"
        )


def _number(value: Any) -> str:
    return f"{value:g}" if value.dtype.kind in "fiuc" else str(value)


def _is(result: Any, made: Any, tolerance: float) -> bool:
    try:
        compare(result, made, "", tolerance)
    except WrongResultError:
        return False
    return True


def _described(result: Any) -> str:
    if isinstance(result, Foreign):
        return f"of type {result.what}"
    if isinstance(result, np.ndarray):
        return f"one of shape {result.shape}"
    if isinstance(result, dict):
        return f"one of {', '.join(map(str, result)) or 'nothing'}"
    return "None" if result is None else f"of type {type(result).__name__}"
