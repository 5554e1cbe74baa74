"""A schedule that really runs: its trace played with real tensors, and compared with what was foretold."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from typing import Any

from lib.engine.launcher import launch
from lib.errors import PuzzleError, TraceError
from lib.goal import Goal
from lib.judging.memory import profile
from lib.judging.recompute import Retrace
from lib.judging.referee import BYTES_PER_ELEMENT
from lib.notation import trace_from_json
from lib.trace import Trace

from .placement import Plan
from .rank import Actor
from .timeline import Span, foretold, measured
from .workload import TOLERANCE, Problem, closeness, one_device


@dataclass(frozen=True)
class RankReplay:
    """One rank: bytes at its peak, messages and bytes sent, as the trace foretells them and as they were measured."""

    foretold_peak: int
    peak: int
    same_memory: bool
    """Whether the measured bytes were the foretold ones at every event, not only at the peak."""
    foretold_messages: int
    messages: int
    foretold_sent: int
    sent: int

    @property
    def same(self) -> bool:
        return self.same_memory and self.foretold_messages == self.messages and self.foretold_sent == self.sent


@dataclass(frozen=True)
class Replay:
    """What a replay found. `error` is the largest difference of an updated weight from a single device's, as a
    share of the largest weight; 0 in whole numbers. Times in `spans` are in steps, in `measured` in seconds."""

    on: str
    small: bool
    error: float
    ranks: tuple[RankReplay, ...]
    spans: tuple[tuple[Span, ...], ...]
    measured: tuple[tuple[Span, ...], ...]

    @property
    def same_weights(self) -> bool:
        return self.error <= (0.0 if self.small else TOLERANCE)

    @property
    def passed(self) -> bool:
        return self.same_weights and all(rank.same for rank in self.ranks)


def replay(
    trace: Trace, on: str = "inprocess", small: bool = False, goal: Goal | None = None, force: bool = False
) -> Replay:
    """Plays a trace with real tensors, one device for each rank, and compares.

    `small` uses tensors of 16 x 16 and whole numbers. With a `goal`, the rules of a puzzle hold. `force` plays what
    the referee refuses as well, as far as it can be played: to see what would have come of it.

    Raises:
        PuzzleError: the referee refuses the trace; or, forced, it cannot be played.
    """
    retrace = Retrace(trace, strict=goal is not None)
    try:
        retrace.run()
        if retrace.made_up:
            raise TraceError(f"no tensor belongs to {retrace.made_up[0]}; get every value from the model's operations")
    except PuzzleError:
        if not force:
            raise
    problem = Problem(trace.size, small)
    plan = Plan(trace, problem.shape.hidden)
    with launch(Actor, len(trace.ranks), plan, problem, on=on) as run:
        played = run.forward(0)
        finals = run.call("finals")
    costs = replace(trace.costs, hidden=problem.shape.hidden, length=problem.shape.length)
    shaped = Retrace(replace(trace, costs=costs)) if not force else retrace
    if not force:
        shaped.run()
    ranks = []
    for part, played_part, meter in zip(shaped.parts, played, run.meters):
        sizes = [part.values[n].memory(costs) * BYTES_PER_ELEMENT for n in range(len(part.values))]
        memory = profile(part.ops[: part.at], sizes).memory
        ranks.append(
            RankReplay(
                foretold_peak=max(memory),
                peak=max(played_part["live"]),
                same_memory=memory == played_part["live"],
                foretold_messages=part.messages,
                messages=meter.messages,
                foretold_sent=part.elements * BYTES_PER_ELEMENT,
                sent=meter.sent,
            )
        )
    return Replay(
        on,
        small,
        _error(problem, finals),
        tuple(ranks),
        foretold(trace),
        measured(trace, [part["seconds"] for part in played]),
    )


def _error(problem: Problem, finals: list[dict[int, list[tuple[tuple[int, ...], object]]]]) -> float:
    """The worst of all final weights; infinite if a row of some layer was never updated."""
    worst = 0.0
    for layer, right in enumerate(one_device(problem)):
        seen: set[int] = set()
        for rank in finals:
            for rows, weight in rank.get(layer, []):
                seen.update(rows)
                worst = max(worst, closeness(problem, weight, right[list(rows)]))  # type: ignore[arg-type]
        if len(seen) < len(right):
            return float("inf")
    return worst


def replay_from_json(text: str) -> Replay:
    """A replay that was made elsewhere, as `replay_to_json` wrote it."""
    data: dict[str, Any] = json.loads(text)
    spans: Any = {
        name: tuple(tuple(Span(*span) for span in rank) for rank in data.pop(name)) for name in ("spans", "measured")
    }
    ranks = tuple(RankReplay(**rank) for rank in data.pop("ranks"))
    return Replay(ranks=ranks, **spans, **data)


def replay_to_json(result: Replay) -> str:
    """A replay as JSON, to be sent to another process."""
    return json.dumps(asdict(result))


def answer(request: str) -> str:
    """What one of several processes under mpiexec does: the trace of a request, replayed there."""
    asked = json.loads(request)
    return replay_to_json(replay(trace_from_json(asked["trace"]), "mpi", asked["small"]))
