"""Performs a trial outside the sandbox, in this process or on MPI, with a class that is trusted. Judges nothing."""

from typing import Any

from puzzles.catalog.engine.trial import Performed, Trial
from puzzles.sandbox.worker.stages.engine_trial import launched, run_trial

MAX_ARGUMENT = 20
"""Letters of an argument that a message shows."""


def asked(trial: Trial) -> dict[str, Any]:
    """A trial without the right results: the part that a class is given."""
    return {
        "arguments": dict(trial.arguments),
        "params": dict(trial.params),
        "calls": [(call.method, list(call.arguments)) for call in trial.calls],
        "stream": None if trial.stream is None else list(trial.stream[0]),
        "devices": trial.devices,
        "options": dict(trial.options),
    }


def perform(trial: Trial, cls: type, on: str = "inprocess") -> Performed:
    given = asked(trial)
    return Performed(*run_trial(given, launched(given, cls, on))).priced(trial)


def size_of(trial: Trial, shown: Trial) -> str:
    """A trial in words; for any but the shown one, what is different: "8 devices, model_dim 32"."""
    sizes = {name: str(value) for name, value in trial.arguments.items() if len(str(value)) < MAX_ARGUMENT}
    first = trial is shown
    others = [f"{name} {value}" for name, value in sizes.items() if first or value != str(shown.arguments.get(name))]
    devices = [f"{trial.devices} devices"] if first or trial.devices != shown.devices else []
    return ", ".join(devices + others)
