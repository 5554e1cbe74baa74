"""Step time and peak memory of a split: the ledger's rules over whole numbers, fast enough to rank thousands.

It counts the actions of each rank: what a rank waits for, and what it holds when each action starts. Actions
between two calls or messages are counted together. The tests compare it with runs of all ranks for every kind of
split: ticks are equal, and so are the bytes of the first replica. If the replicas do not divide the parameters of a
unit, some other replicas hold one element more in each shard.

All microbatches are counted. An earlier version counted a few, and continued them at the rate of the last period. This
is wrong where a rank's slack is used up slowly: `zb_v` on two stages has equal periods, and then longer ones. It saved
nothing either, since splits with the same order share their steps.
"""

from collections import deque
from collections.abc import Generator, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from .actions import Program, actions, program_of
from .cost_model import Prices, prices
from .job import Job
from .memory_model import with_holes
from .split import Split
from .values import effects_of, sizes_of


class Estimate(NamedTuple):
    """Ticks of a step, and bytes of the fullest rank."""

    ticks: int
    peak: int


class Walked(NamedTuple):
    """A rank at the end of its step: the `ticks` until then, its `peak` in bytes, the ticks in which it computes, and
    those in which it waits for replicas (`dp`) and for the host (`host`)."""

    ticks: int
    peak: int
    busy: int
    waits: dict[str, int]


def estimate(job: Job, split: Split, eager: bool = False) -> Estimate:
    """What a step of a split takes, with bytes of fused or of eager code."""
    ranks = walked(job, split, eager)
    return Estimate(max(rank.ticks for rank in ranks), max(rank.peak for rank in ranks))


def walked(job: Job, split: Split, eager: bool = False) -> list[Walked]:
    """Each rank of the pipeline at the end of a step, with bytes of fused or of eager code."""
    priced, program = prices(job, split, eager), program_of(job, split)
    steps, runs = steps_of(program)
    counts, ready = _Counts(priced, program, runs), dict[int, int]()
    ended: dict[int, Walked] = {}
    waiting = [
        _rank(place, priced, program, steps[place], counts, ready, ended) for place in range(program.table.ranks)
    ]
    while waiting:
        waiting = [rank for rank in waiting if next(rank, False)]
    return [ended[place] for place in range(program.table.ranks)]


# --- Steps: the actions of a rank, those between two calls or messages joined ---

Run = tuple[str, ...]
"""The names of actions between two calls or messages."""

Step = tuple[str, Any, Any]
"""`run`: the run's number; `wait` and `call`: the call; `receive` and `send`: the number of the message. Third, the
name of the action's effect."""

STEPS = {
    **dict.fromkeys(("gather", "reduce", "fetch", "park"), "call"),
    **{name: name for name in ("wait", "receive", "send")},
}
"""The kind of step of each operation that ends a run."""


@lru_cache(maxsize=128)
def steps_of(program: Program) -> tuple[list[list[Step]], list[Run]]:
    """The steps of each rank, and the runs by their numbers."""
    messages: dict[Any, int] = {}
    runs: dict[Run, Step] = {}
    calls: dict[str, Step] = {}
    """Steps of calls and their ends, by name: one object each, for there are many."""

    def steps(place: int) -> Iterator[Step]:
        run: list[str] = []
        for name, operation, what in actions(program, place):
            kind = STEPS.get(operation)
            if kind is None:
                run.append(name)
                continue
            if run:
                yield runs.setdefault(tuple(run), ("run", len(runs), None))
                run = []
            if kind in ("receive", "send"):
                yield kind, messages.setdefault(what.made, len(messages)), name
            elif name in calls:
                yield calls[name]
            else:
                yield calls.setdefault(name, (kind, operation if kind == "call" else what[0], name))
        if run:
            yield runs.setdefault(tuple(run), ("run", len(runs), None))

    return [list(steps(place)) for place in range(program.table.ranks)], list(runs)


class _Counts:
    """The ticks of each action, and its change of a rank's bytes."""

    def __init__(self, priced: Prices, program: Program, runs: Sequence[Run]) -> None:
        sizes = sizes_of(priced, program)
        ticks = {
            **dict.fromkeys(("forward", "forward to border", "recompute"), priced.forward),
            "loss": priced.loss,
            "backward": priced.back_input + priced.back_weight,
            "backward_input": priced.back_input,
            "backward_weight": priced.back_weight,
            "update": priced.update,
        }

        def total(values: Mapping[str, int]) -> int:
            return sum(number * sizes[what] for what, number in values.items())

        self.actions = {
            name: (total(effect.before) if effect.operation else None, ticks.get(name, 0), total(effect.after))
            for name, effect in effects_of(program).items()
        }
        """Bytes added before its start (None: memory is not sampled), ticks, bytes added at its end."""
        self.added = {name: after for name, (_, _, after) in self.actions.items()}
        self.calls = {
            "gather": ("dp", priced.gather),
            "reduce": ("dp", priced.reduce),
            "fetch": ("from host", priced.copy),
            "park": ("to host", priced.copy),
        }
        """The lane of each call, and its ticks."""
        self.runs = [self.of_run(run) for run in runs]

    def of_run(self, run: Run) -> tuple[int, int, int]:
        """The most bytes at a start, relative to the first action's start; the ticks and the change of bytes of all
        actions."""
        most = -(10**30)
        ticks = total = 0
        for name in run:
            before, duration, after = self.actions[name]
            if before is not None:
                total += before
                most = max(most, total)
            ticks += duration
            total += after
        return most, ticks, total


def _rank(
    place: int,
    priced: Prices,
    program: Program,
    steps: Sequence[Step],
    counts: _Counts,
    ready: dict[int, int],
    ended: dict[int, Walked],
) -> Generator[bool, None, None]:
    """Counts the steps of a rank; yields when it needs a message that has not been sent. `ready` maps messages to their
    times of arrival. Memory is sampled when a computation or a call starts."""
    runs, added = counts.runs, counts.added
    clock = memory = peak = busy = 0
    waits = {"dp": 0, "host": 0}
    lanes = dict.fromkeys(("dp", "from host", "to host"), 0)
    messages = 0
    """The end of the last message on its lane."""
    ends = {operation: deque[int]() for operation in ("send", *counts.calls)}
    for kind, what, name in steps:
        if kind == "run":
            most, ticks, change = runs[what]
            if memory + most > peak:
                peak = memory + most
            clock += ticks
            busy += ticks
            memory += change
        elif kind == "wait":
            end = ends[what].popleft()
            if end > clock:
                if what != "send":
                    waits["dp" if what in ("gather", "reduce") else "host"] += end - clock
                clock = end
            memory += added[name]
        elif kind == "receive":
            while what not in ready:
                yield True
            if ready[what] > clock:
                clock = ready[what]
            if memory > peak:
                peak = memory
            memory += added[name]
        elif kind == "send":
            if memory > peak:
                peak = memory
            ready[what] = messages = (clock if clock > messages else messages) + priced.message
            ends["send"].append(messages)
        elif kind == "call":
            lane, ticks = counts.calls[what]
            if memory > peak:
                peak = memory
            end = lanes[lane]
            lanes[lane] = end = (clock if clock > end else end) + ticks
            ends[what].append(end)
            memory += added[name]
    stages = program.table.stages_of(place)
    fixed = priced.workspace + (priced.first if 0 in stages else 0)
    fixed += priced.last if program.table.stages - 1 in stages else 0
    ended[place] = Walked(clock, peak + fixed, busy, waits)


def memory_range(job: Job, split: Split) -> tuple[int, int]:
    """Bytes of the fullest GPU in fused code, and the most that eager code reserves."""
    low = estimate(job, split).peak
    return low, max(low, with_holes(job, split, estimate(job, split, eager=True).peak))
