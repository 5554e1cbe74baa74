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
from collections.abc import Generator
from functools import lru_cache
from typing import Any, NamedTuple

from .actions import Program, actions, program_of
from .cost_model import Prices, prices
from .job import Job
from .memory_model import with_holes
from .split import Split


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
    counts, ready = _Counts(priced, program), dict[int, int]()
    ended: dict[int, Walked] = {}
    waiting = [_rank(place, priced, program, counts, ready, ended) for place in range(program.table.ranks)]
    while waiting:
        waiting = [rank for rank in waiting if next(rank, False)]
    return [ended[place] for place in range(program.table.ranks)]


# --- Steps: the actions of a rank, those between two calls or messages joined ---

Step = tuple[str, Any, Any]
"""`joined`: the names of actions; `wait` and `call`: the call; `receive` and `send`: the number of the message. Where
an activation is made or received, "kept" marks the input of one of the rank's layers; others are "border"."""


@lru_cache(maxsize=128)
def steps_of(program: Program) -> list[list[Step]]:
    numbers: dict[Any, int] = {}
    interned: dict[Step, Step] = {}
    return [_steps(program, place, numbers, interned) for place in range(program.table.ranks)]


def _steps(program: Program, place: int, numbers: dict[Any, int], interned: dict[Step, Step]) -> list[Step]:
    mine = frozenset(program.layers_of(place))
    steps: list[Step] = []
    joined: list[str] = []

    def add(*step: Any) -> None:
        if joined:
            names: Step = "joined", tuple(joined), None
            steps.append(interned.setdefault(names, names))
            joined.clear()
        steps.append(interned.setdefault(step, step))

    for operation, what in actions(program, place):
        match operation:
            case "wait":
                add("wait", what[0], None)
            case "receive":
                kept = what.made.op == "F" and program.layers(what.made.stage).stop in mine
                add("receive", numbers.setdefault(what.made, len(numbers)), "kept" if kept else "border")
            case "send":
                add("send", numbers.setdefault(what.made, len(numbers)), None)
            case "gather" | "reduce" | "fetch" | "park":
                add("call", operation, None)
            case "forward" if what[0] + 1 not in mine:
                joined.append("forward to border")
            case "input" if 0 not in mine:
                joined.append("input to border")
            case _:
                joined.append(operation)
    add("end", None, None)
    return steps


class _Counts:
    """The ticks of each action, and its change of a rank's bytes."""

    def __init__(self, priced: Prices, program: Program) -> None:
        zero, elements = program.zero, priced.parameters // priced.replicas
        """The elements of the first replica's shard of a unit."""
        kept, border, weight, gradient = priced.kept, priced.border, priced.weight, priced.gradient
        made = priced.reduced if zero > 1 else gradient
        """Bytes of a microbatch's gradient."""
        gathered = priced.gathered if zero == 3 else weight
        weight_shard, gradient_shard, state_shard = (
            round(elements * (full // priced.parameters) * priced.shard) if zero else full
            for full in (weight, gradient, priced.state)
        )
        self.actions = {
            "forward": (0, priced.forward, kept),
            "forward to border": (0, priced.forward, border),
            "recompute": (0, priced.forward, 0),
            "loss": (0, priced.loss, 0),
            "backward": (0, priced.back_input + priced.back_weight, made - kept),
            "backward_input": (0, priced.back_input, border),
            "backward_weight": (0, priced.back_weight, made - kept - border),
            "update": (weight_shard - weight if zero in (1, 2) else 0, priced.update, -gradient_shard),
            "load": (None, 0, (weight_shard if zero == 3 else weight) + (0 if program.offload else state_shard)),
            "input": (None, 0, kept),
            "input to border": (None, 0, border),
            "drop": (None, 0, -border),
            "keep": (None, 0, 0),
            "add": (None, 0, -made),
            "keep_reduced": (None, 0, 0),
            "add_reduced": (None, 0, -gradient_shard),
            "release": (None, 0, -gathered),
            "store": (0, 0, 0),
        }
        """Bytes added before its start (None: it is no computation, so memory is not sampled), ticks, bytes added at
        its end."""
        self.calls = {
            "gather": ("dp", priced.gather, gathered),
            "reduce": ("dp", priced.reduce, gradient_shard if zero else 0),  # an all-reduce is in place
            "fetch": ("from host", priced.copy, state_shard),
            "park": ("to host", priced.copy, 0),
        }
        """The lane, the ticks, and the bytes added at the start."""
        self.results = {
            "send": -border,
            "gather": -weight_shard if zero in (1, 2) else 0,
            "reduce": -made if zero else 0,
            "fetch": 0,
            "park": -state_shard,
        }
        """The bytes added when a call has been awaited."""
        self.received = {"kept": kept, "border": border}
        self.sums: dict[tuple[str, ...], tuple[int, int, int]] = {}

    def joined(self, names: tuple[str, ...]) -> tuple[int, int, int]:
        """The most bytes at a start, relative to the first action's start; the ticks and the change of bytes of all
        actions."""
        most = -(10**30)
        ticks = total = 0
        for name in names:
            before, duration, after = self.actions[name]
            if before is not None:
                total += before
                most = max(most, total)
            ticks += duration
            total += after
        found = self.sums[names] = most, ticks, total
        return found


def _rank(
    place: int, priced: Prices, program: Program, counts: _Counts, ready: dict[int, int], ended: dict[int, Walked]
) -> Generator[bool, None, None]:
    """Counts the steps of a rank; yields when it needs a message that has not been sent. `ready` maps messages to their
    times of arrival. Memory is sampled when a computation or a call starts."""
    sums, results, received = counts.sums, counts.results, counts.received
    clock = memory = peak = busy = 0
    waits = {"dp": 0, "host": 0}
    lanes = dict.fromkeys(("dp", "from host", "to host"), 0)
    messages = 0
    """The end of the last message on its lane."""
    ends = {operation: deque[int]() for operation in results}
    for kind, what, carried in steps_of(program)[place]:
        if kind == "joined":
            most, ticks, change = sums.get(what) or counts.joined(what)
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
            memory += results[what]
        elif kind == "receive":
            while what not in ready:
                yield True
            if ready[what] > clock:
                clock = ready[what]
            if memory > peak:
                peak = memory
            memory += received[carried]
        elif kind == "send":
            if memory > peak:
                peak = memory
            ready[what] = messages = (clock if clock > messages else messages) + priced.message
            ends["send"].append(messages)
        elif kind == "call":
            lane, ticks, new = counts.calls[what]
            if memory > peak:
                peak = memory
            end = lanes[lane]
            lanes[lane] = end = (clock if clock > end else end) + ticks
            ends[what].append(end)
            memory += new
    stages = program.table.stages_of(place)
    fixed = priced.workspace + (priced.first if 0 in stages else 0)
    fixed += priced.last if program.table.stages - 1 in stages else 0
    ended[place] = Walked(clock, peak + fixed, busy, waits)


def memory_range(job: Job, split: Split) -> tuple[int, int]:
    """Bytes of the fullest GPU in fused code, and the most that eager code reserves."""
    low = estimate(job, split).peak
    return low, max(low, with_holes(job, split, estimate(job, split, eager=True).peak))
