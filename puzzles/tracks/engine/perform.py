"""Performs a trial in this process, or on MPI, with a class that is trusted. Nothing is judged here."""

from __future__ import annotations

from typing import Any

from puzzles.catalog.engine.trial import Performed, Trial
from puzzles.sandbox.worker.stages.engine_trial import run_trial

SHORT = 20
"""Letters of an argument that is told in a message."""


def asked(trial: Trial) -> dict[str, Any]:
    """What a class is given: all of a trial but the right results."""
    return {
        "arguments": dict(trial.arguments),
        "params": dict(trial.params),
        "calls": [(call.method, list(call.arguments)) for call in trial.calls],
        "stream": None if trial.stream is None else list(trial.stream[0]),
        "devices": trial.devices,
        "options": dict(trial.options),
    }


def perform(trial: Trial, cls: type, on: str = "inprocess") -> Performed:
    """What comes of the class.

    Raises:
        Exception: what the class raises, and what the engine says of it.
    """
    return Performed(*run_trial(asked(trial), cls, on))


def size_of(trial: Trial, shown: Trial) -> str:
    """A trial in words; of one that is not the shown one, what is different: "8 devices, model_dim 32"."""
    sizes = {name: str(value) for name, value in trial.arguments.items() if len(str(value)) < SHORT}
    first = trial is shown
    others = [f"{name} {value}" for name, value in sizes.items() if first or value != str(shown.arguments.get(name))]
    devices = [f"{trial.devices} devices"] if first or trial.devices != shown.devices else []
    return ", ".join(devices + others)
