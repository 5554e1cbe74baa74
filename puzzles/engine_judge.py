"""Judges what came of a trial: equal to the single device, and within the targets? The figures are measured."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields
from itertools import pairwise
from typing import Any

import numpy as np

from lib.engine.meter import Reading, no_bytes
from lib.engine.reference import bytes_sent

from .engine_catalog import trials_of
from .engine_catalog.figures import FIGURES
from .engine_catalog.puzzle import EnginePuzzle
from .engine_catalog.trial import Performed, Trial, Wrong
from .inside.failure import Failure, plain
from .inside.plain_data import Foreign, pack, unpack
from .tracks.track import Attempt, Judged, tried_with

MOST = 1 << 62
"""No figure is as large."""

Judge = Callable[[Mapping[str, Any]], Judged | Failure]

SHORT = 20
"""Letters of an argument that is told in a message."""


def attempts_of(puzzle: EnginePuzzle) -> Iterator[Attempt]:
    """For each trial its size in words, what the child is asked for (nothing of what is expected), and how the row
    that it sends is judged."""
    trials = [make() for make in trials_of(puzzle)]
    for trial in trials:
        size, request = size_of(trial, trials[0]), {"trial": pack(asked(trial))}
        yield Attempt(size, request, _judge(puzzle, trial), trial.hidden)


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


def _judge(puzzle: EnginePuzzle, trial: Trial) -> Judge:
    def judge(row: Mapping[str, Any]) -> Judged | Failure:
        try:
            return judged(puzzle, trial, performed_of(row, trial))
        except Wrong as why:
            return Failure("rule", plain(str(why)))
        except (Exception, RecursionError) as why:  # a trial's check may choke on what it does not expect
            return Failure(
                "rule", plain(f"what the run sent back cannot be judged ({why or type(why).__name__})")[:300]
            )

    return judge


def judge(puzzle: EnginePuzzle, cls: type, on: str = "inprocess", devices: int | None = None) -> Judged:
    """Tries a class that is trusted in this process, or on MPI: the figures of the first trial, what any misses.
    With `devices`, only trials on so many.

    Raises:
        Wrong: naming device, call and place of the first wrong number.
        Exception: what the class raises.
    """
    from .inside.stages.perform import perform

    found: list[Judged] = []
    trials = [make() for make in trials_of(puzzle)]
    for trial in trials:
        if devices not in (None, trial.devices):
            continue
        where = "" if trial is trials[0] else tried_with(size_of(trial, trials[0]))
        try:
            one = judged(puzzle, trial, Performed(*perform(asked(trial), cls, on)))
        except Wrong as why:
            raise Wrong(where + str(why)) from None
        except Exception as why:
            if where:
                why.add_note(where.removesuffix(": "))
            raise
        found.append(one._replace(missed=tuple(where + words for words in one.missed)))
    figures = {name: found[0].figures[name] for name in puzzle.targets}
    return Judged(figures, next((one.missed for one in found if one.missed), ()))


def judged(puzzle: EnginePuzzle, trial: Trial, performed: Performed) -> Judged:
    """The figures of a class, and the targets that it misses in this trial.

    Raises:
        Wrong: naming device, call and place of the first wrong number.
    """
    require_right(trial, performed)
    targets = puzzle.targets if trial.targets is None else trial.targets
    figures = {name: FIGURES[name].of(performed) for name in {*puzzle.targets, *targets}}
    return Judged(figures, tuple(_missed(figures, targets)))


def performed_of(row: Mapping[str, Any], trial: Trial) -> Performed:
    """A run as the child tells it, as far as it can be believed.

    Raises:
        ValueError: results or meters are not those of this trial, or contradict what was handed to the transport.
    """
    results, outputs, readings = (unpack(row.get(name)) for name in ("results", "outputs", "readings"))
    calls = len(trial.calls)
    if not isinstance(results, list) or len(results) != calls:
        raise ValueError(f"it should have results of {calls} calls")
    for one in results:
        if not isinstance(one, list) or len(one) != trial.devices:
            raise ValueError(f"a call should have {trial.devices} results, one of each device")
    if not isinstance(outputs, list):
        raise ValueError("the outputs are no list")
    steps = 1 + calls + (trial.stream is not None)
    if not isinstance(readings, list) or len(readings) != steps:
        raise ValueError(f"it should have {steps} readings of the meters")
    meters = [_readings(one, trial.devices) for one in readings]
    _require_consistent(meters, row.get("wire"))
    return Performed(results, outputs, meters)


def _readings(given: Any, devices: int) -> list[Reading]:
    if not isinstance(given, list) or len(given) != devices:
        raise ValueError(f"there should be {devices} meters")
    return [_reading(one) for one in given]


def _reading(given: Any) -> Reading:
    if not isinstance(given, dict):
        raise ValueError("a meter cannot be read")
    tables = {name: _table(given.get(name)) for name in ("calls", "host", "disk")}
    if any(set(tables[tier]) != set(no_bytes()) for tier in ("host", "disk")):
        raise ValueError("a meter cannot be read")
    figures = {field.name: given.get(field.name) for field in fields(Reading) if field.name not in tables}
    if not all(type(n) is int and 0 <= n < MOST for n in figures.values()):
        raise ValueError("a meter shows what is no number of bytes, calls or flops")
    return Reading(**figures, **tables)


def _table(given: Any) -> dict[str, Any]:
    if not isinstance(given, dict) or not all(isinstance(name, str) for name in given):
        raise ValueError("a meter cannot be read")
    if not all(type(n) is int and 0 <= n < MOST for n in given.values()):
        raise ValueError("a meter shows what is no number of bytes, calls or flops")
    return given


def _require_consistent(meters: Sequence[Sequence[Reading]], wire: Any) -> None:
    """Meters never go back, and show at least the bytes that devices have handed to the transport."""
    for before, after in pairwise(meters):
        for a, b in zip(before, after):
            if any(getattr(a, name) > getattr(b, name) for name in ("sent", "flops", "peak", "clock")):
                raise ValueError("a meter has gone back")
    sent = [0] * len(meters[0])
    if not isinstance(wire, list):
        raise ValueError("it does not tell what was sent")
    for row in wire:
        match row:
            case [int(device), str(name), int(nbytes), int(n), int(times)] if 0 <= device < len(sent) and n > 0:
                sent[device] += bytes_sent(name, nbytes, n) * times
            case _:
                raise ValueError("it does not tell what was sent")
    for device, meter in enumerate(meters[-1]):
        if any(reading.live > reading.peak for step in meters for reading in step) or meter.sent < sent[device]:
            raise ValueError("a meter shows less than was sent or held; leave the meters alone")


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
                raise Wrong("; ".join(filter(None, [str(why), *known, trial.about]))) from None
    if trial.stream is not None:
        inputs, outputs = trial.stream
        got = performed.outputs
        if len(got) != len(outputs):
            raise Wrong(f"there are {len(got)} outputs for {len(inputs)} inputs; one device writes one for each")
        for i, (result, right) in enumerate(zip(got, outputs)):
            compare(result, right, f"output {i}", trial.tolerance)
    if trial.check is not None:
        trial.check(performed)


def size_of(trial: Trial, shown: Trial) -> str:
    """A trial in words; of one that is not the shown one, what is different: "8 devices, model_dim 32"."""
    sizes = {name: str(value) for name, value in trial.arguments.items() if len(str(value)) < SHORT}
    first = trial is shown
    others = [f"{name} {value}" for name, value in sizes.items() if first or value != str(shown.arguments.get(name))]
    devices = [f"{trial.devices} devices"] if first or trial.devices != shown.devices else []
    return ", ".join(devices + others)


def _missed(figures: Mapping[str, float], targets: Mapping[str, int]) -> list[str]:
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
    with np.errstate(all="ignore"):
        allowed = tolerance * np.abs(right).max(initial=0)
        near = result == right if not tolerance else np.abs(result - right) <= allowed
    if not near.all():
        place = tuple(int(i[0]) for i in np.nonzero(~near))
        at = ", ".join(map(str, place))
        finite = result.dtype.kind not in "fc" or np.isfinite(result[place])
        told = "" if finite else " (something was too large for its dtype, or divided by 0)"
        raise Wrong(
            f"{where} differs from what a single device computes: at [{at}] it is {_number(result[place])}{told} "
            f"and should be {_number(right[place])}"
        )


def _number(value: Any) -> str:
    return f"{value:g}" if value.dtype.kind in "fiuc" else str(value)


def _is(result: Any, made: Any, tolerance: float) -> bool:
    try:
        compare(result, made, "", tolerance)
    except Wrong:
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
