"""Performs a trial: launches a class, makes every call, reads the meters. Nothing is judged here."""

from __future__ import annotations

from typing import Any

from lib.engine import launch

from .engine_catalog.trial import Performed, Trial


def perform(trial: Trial, cls: type, on: str = "inprocess") -> Performed:
    """What comes of the class.

    Raises:
        Exception: what the class raises, and what the engine says of it.
    """
    results: list[list[Any]] = []
    outputs: list[Any] = []
    with launch(cls, trial.devices, on=on, **trial.options, **trial.arguments) as run:
        if trial.params:
            run.load_checkpoint(trial.params)
        readings = [run.meters]
        for call in trial.calls:
            results.append(run.call(call.method, call.arguments))
            readings.append(run.meters)
        if trial.stream is not None:
            outputs = list(run.inference_loop(trial.stream[0]))
            readings.append(run.meters)
    return Performed(results, outputs, readings)
