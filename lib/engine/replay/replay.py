"""Replays a schedule's trace with real tensors, and compares weights, memory and bytes with the predictions."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from lib.costs import Costs
from lib.engine.launcher import launch
from lib.engine.metering.meter import Reading
from lib.errors import PuzzleError, TraceError
from lib.goal import Goal
from lib.judging.memory import profile
from lib.judging.rank_state import RankState
from lib.judging.recompute import Retrace
from lib.judging.referee import BYTES_PER_ELEMENT
from lib.notation import trace_from_json
from lib.setting import CLASSIC_SETTING
from lib.trace import FORMS, Trace

from .placement import Placement
from .rank import PERFORM, ReplayEngine
from .timeline import TimedEvent, measured, predicted
from .workload import TOLERANCE, Workload, closeness, one_device


@dataclass(frozen=True)
class RankReplay:
    """One rank: peak bytes, messages and bytes sent, as predicted from the trace and as measured."""

    predicted_peak: int
    peak: int
    same_memory: bool
    """The measured bytes matched the predicted ones at every event, not only at the peak."""
    predicted_messages: int
    messages: int
    predicted_sent: int
    sent: int

    @property
    def same(self) -> bool:
        return self.same_memory and self.predicted_messages == self.messages and self.predicted_sent == self.sent


@dataclass(frozen=True)
class Replay:
    """The findings of a replay. `error` is the largest difference of an updated weight from a single device's, relative
    to the largest weight; 0 for whole numbers. Times in `predicted` are in steps, in `measured` in seconds."""

    on: str
    small: bool
    error: float
    ranks: tuple[RankReplay, ...]
    predicted: tuple[tuple[TimedEvent, ...], ...]
    measured: tuple[tuple[TimedEvent, ...], ...]

    @property
    def same_weights(self) -> bool:
        return self.error <= (0.0 if self.small else TOLERANCE)

    @property
    def passed(self) -> bool:
        return self.same_weights and all(rank.same for rank in self.ranks)


def require_playable(trace: Trace) -> None:
    """Refuses a trace with operations or in a setting that a replay does not know.

    Raises:
        TraceError: naming the operation, or the part of the setting.
    """
    if trace.setting.fold:
        raise TraceError(f"a replay plays every rank, and this run is folded along {trace.setting.fold!r}: do not fold")
    for name in trace.setting.differences(CLASSIC_SETTING):
        if name != "costs":
            raise TraceError(f"a replay cannot play this setting yet: {name} {getattr(trace.setting, name)!r}")
    for rank, ops in enumerate(trace.ranks):
        for op in ops:
            if op.name not in (*PERFORM, "given", "store", "delete"):
                raise TraceError(f"a replay cannot play {op.name} yet; rank {rank} calls it on line {op.line}")
            form = FORMS[op.name]
            given = dict(zip(form.args + form.optional, op.args))
            if more := [name for name in form.optional if name != "label" and given.get(name) is not None]:
                raise TraceError(f"a replay cannot play {op.name} with {more[0]} yet; rank {rank}, line {op.line}")


def replay(
    trace: Trace, on: str = "inprocess", small: bool = False, goal: Goal | None = None, force: bool = False
) -> Replay:
    """Executes a trace with real tensors, one device per rank, and compares.

    `small` uses tensors of 16 x 16 and whole numbers. With a `goal`, the rules of a puzzle apply. `force` also executes
    a trace that the referee refuses, as far as possible, to see what it would have produced.

    Raises:
        PuzzleError: the referee refuses the trace; or, if forced, it cannot be executed.
    """
    require_playable(trace)
    retrace = Retrace(trace, strict=goal is not None)
    try:
        retrace.run()
        if retrace.made_up:
            raise TraceError(
                f"there is no tensor for {retrace.made_up[0]}; get every value from the model's operations"
            )
    except PuzzleError:
        if not force:
            raise
    workload = Workload(trace.size, small)
    placement = Placement(trace, workload.shape.hidden)
    with launch(ReplayEngine, len(trace.ranks), placement, workload, on=on) as run:
        played = run.forward(0)
        finals = run.call("finals")
    costs = replace(trace.costs, hidden=workload.shape.hidden, length=workload.shape.length)
    shaped = retrace
    if not force:
        shaped = Retrace(replace(trace, setting=replace(trace.setting, costs=costs)))
        shaped.run()
    return Replay(
        on,
        small,
        _error(workload, finals),
        tuple(_compared(state, costs, *rank) for state, *rank in zip(shaped.ranks, played, run.meters)),
        predicted(trace),
        measured(trace, [rank["seconds"] for rank in played]),
    )


def _compared(state: RankState, costs: Costs, played: Mapping[str, Any], meter: Reading) -> RankReplay:
    """One rank's predicted and measured figures."""
    sizes = [state.values[n].memory(costs) * BYTES_PER_ELEMENT for n in range(len(state.values))]
    memory = profile(state.done, sizes).memory
    return RankReplay(
        predicted_peak=max(memory),
        peak=max(played["live"]),
        same_memory=memory == played["live"],
        predicted_messages=state.messages,
        messages=meter.messages,
        predicted_sent=state.elements * BYTES_PER_ELEMENT,
        sent=meter.sent,
    )


def _error(workload: Workload, finals: list[dict[int, list[tuple[tuple[int, ...], object]]]]) -> float:
    """The largest error of all final weights; infinite if a row of some layer was never updated."""
    worst = 0.0
    for layer, right in enumerate(one_device(workload)):
        seen: set[int] = set()
        for rank in finals:
            for rows, weight in rank.get(layer, []):
                seen.update(rows)
                worst = max(worst, closeness(workload, weight, right[list(rows)]))  # type: ignore[arg-type]
        if len(seen) < len(right):
            return float("inf")
    return worst


def replay_from_json(text: str) -> Replay:
    """A replay that ran elsewhere, as written by `replay_to_json`."""
    data: dict[str, Any] = json.loads(text)
    times: Any = {
        name: tuple(tuple(TimedEvent(*event) for event in rank) for rank in data.pop(name))
        for name in ("predicted", "measured")
    }
    ranks = tuple(RankReplay(**rank) for rank in data.pop("ranks"))
    return Replay(ranks=ranks, **times, **data)


def replay_to_json(result: Replay) -> str:
    """A replay as JSON, to be sent to another process."""
    return json.dumps(asdict(result))


def answer(request: str) -> str:
    """Replays the trace of a request, as one of several processes under mpiexec."""
    asked = json.loads(request)
    return replay_to_json(replay(trace_from_json(asked["trace"]), "mpi", asked["small"]))
