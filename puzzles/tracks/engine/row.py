"""What the run of a trial is asked, and its row. Impossible ones are refused: wrong types or sizes, wrong meters."""

from collections.abc import Sequence
from dataclasses import fields
from itertools import pairwise
from typing import Any

from lib.engine.metering.meter import Reading, unused_memory
from puzzles.catalog.engine.trial import Performed, Trial
from puzzles.sandbox.plain_data import unpack
from puzzles.tracks.outcomes import Row

MAX_FIGURE = 1 << 62
"""Larger than any figure."""


BY_LINE = ("held", "idle", "products")
"""Figures of a meter by line."""

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
        "spmd": trial.spmd,
    }


def size_of(trial: Trial, shown: Trial) -> str:
    """A trial in words; for any but the shown one, what is different: "8 devices, model_dim 32"."""
    sizes = {name: str(value) for name, value in trial.arguments.items() if len(str(value)) < MAX_ARGUMENT}
    first = trial is shown
    others = [f"{name} {value}" for name, value in sizes.items() if first or value != str(shown.arguments.get(name))]
    devices = [f"{trial.devices} devices"] if first or trial.devices != shown.devices else []
    return ", ".join(devices + others)


def performed_of(row: Row, trial: Trial) -> Performed:
    """A run as the worker reports it, checked as far as possible."""
    results, outputs, readings = (unpack(row.get(name)) for name in ("results", "outputs", "readings"))
    calls = len(trial.calls)
    if not isinstance(results, list) or len(results) != calls:
        raise ValueError(f"it should have results of {calls} calls")
    for one in results:
        if not isinstance(one, list) or len(one) != trial.devices:
            raise ValueError(f"a call should have {trial.devices} results, one of each device")
    if not isinstance(outputs, list):
        raise ValueError("the outputs are not a list")
    steps = 1 + calls + (trial.stream is not None)
    if not isinstance(readings, list) or len(readings) != steps:
        raise ValueError(f"it should have {steps} readings of the meters")
    meters = [_readings(one, trial.devices) for one in readings]
    _require_consistent(meters)
    return Performed(results, outputs, meters).priced(trial)


def _readings(given: Any, devices: int) -> list[Reading]:
    if not isinstance(given, list) or len(given) != devices:
        raise ValueError(f"there should be {devices} meters")
    return [_reading(one) for one in given]


def _reading(given: Any) -> Reading:
    if not isinstance(given, dict):
        raise ValueError("a meter cannot be read")
    tables: dict[str, Any] = {name: _table(given.get(name)) for name in ("calls", "host", "disk", *BY_LINE)}
    if any(set(tables[tier]) != set(unused_memory()) for tier in ("host", "disk")):
        raise ValueError("a meter cannot be read")
    if not all(line.isdecimal() for name in BY_LINE for line in tables[name]):
        raise ValueError("a meter cannot be read")
    figures: dict[str, Any] = {f.name: given.get(f.name) for f in fields(Reading) if f.name not in tables}
    if not all(type(n) is int and 0 <= n < MAX_FIGURE for n in figures.values()):
        raise ValueError("a meter does not show a number of bytes, calls or flops")
    return Reading(**figures, **tables)


def _table(given: Any) -> dict[str, Any]:
    if not isinstance(given, dict) or not all(isinstance(name, str) for name in given):
        raise ValueError("a meter cannot be read")
    if not all(type(n) is int and 0 <= n < MAX_FIGURE for n in given.values()):
        raise ValueError("a meter does not show a number of bytes, calls or flops")
    return given


def _require_consistent(meters: Sequence[Sequence[Reading]]) -> None:
    """Refuses meters that decrease, or show a peak below the memory that is held."""
    for before, after in pairwise(meters):
        for a, b in zip(before, after):
            if any(getattr(a, name) > getattr(b, name) for name in ("sent", "unpacked", "flops", "peak", "clock")):
                raise ValueError("a meter has decreased")
    if any(reading.live > reading.peak for step in meters for reading in step):
        raise ValueError("a meter shows less than was held; leave the meters alone")
