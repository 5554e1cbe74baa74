"""Engine puzzles in the worker: makes every call of a trial on all devices, and returns results and meter readings.

Each device is a process of its own, forked before the trial is read, and the worker, which runs no code of the player,
carries what they send. Results need no trust, because the grader compares them. What the devices' own meters read is
not believed: each device records its operations, and a further run repeats and counts them. Where nothing can be
forked, and for `puzzles run`, all devices run in the worker, as `play` runs them, and nothing is recorded.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from lib.engine.launcher import Run
from puzzles.sandbox.plain_data import pack, unpack
from puzzles.sandbox.worker.devices.device_channel import DeviceEnd, fork_devices
from puzzles.sandbox.worker.devices.device_process import Assignment, DeviceProcess
from puzzles.sandbox.worker.devices.integrity import EngineSnapshot
from puzzles.sandbox.worker.devices.judge_executor import JudgeExecutor
from puzzles.sandbox.worker.repeat.functions import UnrepeatableError
from puzzles.sandbox.worker.repeat.repeated import Repeated

from .engine_trial import launched, packed, run_class, run_trial
from .stage import DefinitionSite, FailedError, StageResult

MAX_RECORDINGS = 8 << 20
"""Bytes of the recordings of all devices of a class."""

SNAPSHOT = EngineSnapshot()
"""Taken when this module is imported, before any player's code."""


def prepare(request: Mapping[str, Any]) -> dict[str, Any]:
    """Unpacks the trial: arguments, parameters and calls."""
    trial = unpack(request["trial"])
    assert isinstance(trial, dict)
    return trial


__all__ = ["Assignment", "fork", "prepare", "repeat", "run_definition", "run_on_devices"]


def fork(given: Sequence[Assignment], readable: Sequence[Sequence[str]]) -> list[DeviceEnd]:
    return fork_devices(len(given), readable, lambda i, channel: DeviceProcess(given[i], channel, SNAPSHOT).serve())


def run_on_devices(ends: Sequence[DeviceEnd], trial: Mapping[str, Any]) -> tuple[StageResult | None, str]:
    """Results, outputs and readings of one launch, and a remark on a forgotten coroutine; None instead if the file has
    no such class."""
    executor = JudgeExecutor(ends, trial["arguments"], **trial["options"])
    try:
        if not executor.load():
            return None, ""
        data = packed(*run_trial(trial, lambda: Run(executor.made())))
        return StageResult({**data, "recordings": _not_too_long(executor.recordings())}), executor.end()
    except FailedError as why:
        return StageResult(failure=why.failure), ""


def _not_too_long(recordings: list[Any]) -> str:
    """The recordings as JSON, which the grader passes on as it is; or what is said instead, so that no class fails
    because it does much with its arrays."""
    text = json.dumps(pack(recordings))
    if len(text) > MAX_RECORDINGS:
        why = f"its operations and the numbers that none of them makes are more than {MAX_RECORDINGS:,} B of data"
        return json.dumps(pack([why]))
    return text


def repeat(recordings: str, trial: Mapping[str, Any]) -> StageResult:
    """Results and readings of recorded operations on another trial; or the reason why they cannot be repeated, which is
    data, because no code of the player has failed."""
    try:
        steps = unpack(json.loads(recordings))
        if broken := next((one for one in steps if isinstance(one, str)), ""):
            raise UnrepeatableError(broken)
        given = {**trial, "arguments": {"recordings": steps}}
        return StageResult(packed(*run_trial(given, launched(given, Repeated))))
    except Exception as why:
        name = "" if isinstance(why, UnrepeatableError) else f"{type(why).__name__}: "
        return StageResult({"unrepeatable": f"{name}{why}"[:300]})


def run_definition(slug: str, cls: Any, trial: Mapping[str, Any], site: DefinitionSite) -> StageResult:
    """The same with all devices in this process, as `play` runs them: they share the class, module and engine."""
    return StageResult(run_class(slug, cls, trial))
