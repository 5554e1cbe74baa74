"""Runs one trial of an engine class, and repeats what it has recorded. Nothing is judged here.

The results of the first run need no trust, because the grader compares them. What its meters read is not believed: each
device records its operations, and the second run repeats and counts them on other values.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

import numpy as np

from lib.engine import ShardedEngine, launch
from lib.engine.launcher import Run
from puzzles.sandbox.plain_data import pack, unpack
from puzzles.sandbox.worker.recording import RecordingExecutor
from puzzles.sandbox.worker.repeating import Repeated, UnrepeatableError

from . import UnplayableError

np.random.default_rng(0)  # its first use leaves 16 bytes behind, which no device should be charged for

MAX_RECORDINGS = 8 << 20
"""Bytes of the recordings of all devices of a class."""


def run_class(slug: str, cls: Any, trial: Mapping[str, Any]) -> dict[str, Any]:
    """The results of a trial as plain data, with the recordings. All devices share the class."""
    require_engine(slug, cls)
    return recorded(trial, RecordingExecutor(trial["devices"], **trial["options"]), [cls] * trial["devices"])


def recorded(trial: Mapping[str, Any], executor: RecordingExecutor, classes: list[type]) -> dict[str, Any]:
    """The same for devices that have a class each."""
    if trial.get("spmd") is not None:
        classes = [through_spmd(cls, trial["spmd"]) for cls in classes]
    row = packed(*run_trial(trial, lambda: Run(executor.made(classes, trial["arguments"]))))
    return {**row, "recordings": _not_too_long(executor.recordings())}


def through_spmd(cls: type, given: Mapping[str, Any]) -> type:
    """The class with its method `program` run through Spmd, in place of what its other methods do with arrays."""
    from lib.layout.spmd import Spmd, mesh  # here, since most trials are of classes that plan nothing

    if not callable(getattr(cls, "program", None)):
        raise UnplayableError(f"{cls.__name__} has no method `program`, which is what the judge runs; annotate that")

    class Judged(cls):  # type: ignore[misc]  # a player's class
        def __init__(self, **sizes: Any) -> None:
            super().__init__(**sizes)
            grid = mesh(**given["mesh"]) if given["mesh"] else None
            self._judged = Spmd(self, self.program, given["inputs"], given["parameters"], grid)

        def load_checkpoint(self, params: Any) -> None:
            self._judged.load_checkpoint(params)

        def forward(self, pieces: Any) -> Any:
            return self._judged.forward(pieces if isinstance(pieces, dict) else dict.fromkeys(given["inputs"], pieces))

    Judged.__name__, Judged.__qualname__ = cls.__name__, cls.__qualname__
    return Judged


def _not_too_long(recordings: list[Any]) -> str:
    """The recordings as JSON, which the grader passes on as it is; or what is said instead, so that no class fails
    because it does much with its arrays."""
    text = json.dumps(pack(recordings))
    if len(text) > MAX_RECORDINGS:
        why = f"its operations and the numbers that none of them makes are more than {MAX_RECORDINGS:,} B of data"
        return json.dumps(pack([why]))
    return text


def repeat(recordings: str, trial: Mapping[str, Any]) -> dict[str, Any]:
    """Results and readings of recorded operations on another trial; or the reason why they cannot be repeated, which is
    data, because no code of the player has failed."""
    try:
        steps = unpack(json.loads(recordings))
        if broken := next((one for one in steps if isinstance(one, str)), ""):
            raise UnrepeatableError(broken)
        given = {**trial, "arguments": {"recordings": steps}}
        return packed(*run_trial(given, launched(given, Repeated)))
    except Exception as why:
        name = "" if isinstance(why, UnrepeatableError) else f"{type(why).__name__}: "
        return {"unrepeatable": f"{name}{why}"[:300]}


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
    readings = [[asdict(one) for one in step] for step in meters]
    return {"results": pack(results), "outputs": pack(outputs), "readings": pack(readings)}
