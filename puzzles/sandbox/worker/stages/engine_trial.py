"""Runs one trial of an engine class: launches it, makes every call, reads the meters. Nothing is judged here."""

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

import numpy as np

from lib.engine import ShardedEngine, launch
from lib.engine.launcher import Run
from puzzles.sandbox.plain_data import pack

from .stage import UnplayableError

np.random.default_rng(0)  # its first use leaves 16 bytes behind, which no device should be charged for


def run_class(slug: str, cls: Any, trial: Mapping[str, Any]) -> dict[str, Any]:
    """The results of a trial as plain data, with all devices in this process."""
    require_engine(slug, cls)
    return packed(*run_trial(trial, launched(trial, cls)))


def run_trial(trial: Mapping[str, Any], start: Callable[[], Run]) -> tuple[list[Any], list[Any], list[Any]]:
    """Starts a run and makes every call of a trial.

    Returns the results of each call on each device, the outputs of the stream, and the readings of the meters after
    loading, after each call, and at the end.
    """
    results: list[Any] = []
    outputs: list[Any] = []
    with start() as run:
        if trial["params"]:
            run.load_checkpoint(trial["params"])
        readings = [run.meters]
        for method, arguments in trial["calls"]:
            results.append(run.call(method, arguments))
            readings.append(run.meters)
        if trial["stream"] is not None:
            outputs = list(run.inference_loop(trial["stream"]))
            readings.append(run.meters)
    return results, outputs, readings


def launched(trial: Mapping[str, Any], cls: type, on: str = "inprocess") -> Callable[[], Run]:
    """Starts a run of a class in this process, or on MPI."""
    return lambda: launch(cls, trial["devices"], on=on, **trial["options"], **trial["arguments"])


def require_engine(slug: str, cls: Any) -> None:
    if not isinstance(cls, type):
        raise UnplayableError(f"{slug} is not a class; write 'class {slug}(ShardedEngine):'")
    if not issubclass(cls, ShardedEngine):
        raise UnplayableError(f"{slug} must be an engine; write 'class {slug}(ShardedEngine):'")


def packed(results: list[Any], outputs: list[Any], meters: list[Any]) -> dict[str, Any]:
    readings = [[one if isinstance(one, dict) else asdict(one) for one in step] for step in meters]
    return {"results": pack(results), "outputs": pack(outputs), "readings": pack(readings)}
