"""Step time and peak memory of a split without playing it, to rank thousands: the ledger's rules over whole numbers.

It counts the same actions that `schedule` plays: what a rank waits for, and what it holds when each of them starts.
The tests compare it with runs of the ledger for every kind of split: both must give the same tick and the same byte.
What is printed is always a run.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator
from typing import NamedTuple

from lib.schedules.cells import Cell

from .actions import Program, actions
from .cost_model import Prices, prices
from .job import Job
from .split import Split


class Estimate(NamedTuple):
    """Ticks of a step, and bytes of the fullest rank."""

    ticks: int
    peak: int


def estimate(job: Job, split: Split, program: Program, eager: bool = False) -> Estimate:
    """What a run of a split would take, with bytes of fused or of eager code."""
    priced = prices(job, split, eager)
    counts, ready = _Counts(priced, program), dict[Cell, int]()
    done: list[Estimate] = []
    waiting = [_rank(place, priced, program, counts, ready, done) for place in range(program.table.ranks)]
    while waiting:
        waiting = [rank for rank in waiting if next(rank, False)]
    return Estimate(*map(max, zip(*done)))


class _Counts:
    """By action: its ticks, and the change of a rank's bytes by it."""

    def __init__(self, priced: Prices, program: Program) -> None:
        zero, share = program.zero, priced.shard / program.replicas
        kept, border, weight, gradient = priced.kept, priced.border, priced.weight, priced.gradient
        made = priced.reduced if zero > 1 else gradient
        """Bytes of a microbatch's gradient."""
        gathered = priced.gathered if zero == 3 else weight
        weight_shard, gradient_shard, state_shard = (
            round(whole * share) if zero else whole for whole in (weight, gradient, priced.state)
        )
        self.computations = {
            "forward": (0, priced.forward, kept),
            "recompute": (0, priced.forward, 0),
            "loss": (border - kept, priced.loss, 0),
            "backward": (0, priced.back_input + priced.back_weight, made - kept),
            "backward_input": (0, priced.back_input, border),
            "backward_weight": (0, priced.back_weight, made - kept - border),
            "update": (weight_shard - weight if zero in (1, 2) else 0, priced.update, -gradient_shard),
            "store": (0, 0, 0),
        }
        """Bytes before its start, ticks, bytes at its end."""
        self.calls = {
            "send": ("pp", priced.message, 0),
            "gather": ("dp", priced.gather, gathered),
            "reduce": ("dp", priced.reduce, gradient_shard if zero else 0),  # an all-reduce is in place
            "fetch": ("from host", priced.copy, state_shard),
            "park": ("to host", priced.copy, 0),
        }
        """The lane, ticks, bytes at its start."""
        self.results = {
            "send": -border,
            "gather": -weight_shard if zero in (1, 2) else 0,
            "reduce": -made if zero else 0,
            "fetch": 0,
            "park": -state_shard,
        }
        """Bytes when a call has been awaited."""
        self.others = {
            "load": (weight_shard if zero == 3 else weight) + (0 if program.offload else state_shard),
            "input": kept,
            "drop": -border,
            "keep": 0,
            "add": -gradient_shard if zero > 1 else -gradient,
            "release": -gathered,
        }
        """Bytes."""


def _rank(
    place: int, priced: Prices, program: Program, counts: _Counts, ready: dict[Cell, int], done: list[Estimate]
) -> Generator[bool, None, None]:
    """Counts the actions of a rank; yields where it needs a message that has not been sent. `ready` says by cell when
    its result arrives. Memory is sampled when a computation or a call starts."""
    computations, calls, results, others = counts.computations, counts.calls, counts.results, counts.others
    clock = memory = peak = 0
    lanes = dict.fromkeys(("pp", "dp", "from host", "to host"), 0)
    ends = {operation: deque[int]() for operation in calls}
    for operation, what in actions(program, place):
        if operation in computations:
            before, ticks, after = computations[operation]
            memory += before
            if memory > peak:
                peak = memory
            clock += ticks
            memory += after
        elif operation == "wait":
            call, _ = what
            end = ends[call].popleft()
            if end > clock:
                clock = end
            memory += results[call]
        elif operation in others:
            memory += others[operation]
        elif operation == "receive":
            made = what.made
            while made not in ready:
                yield True
            if ready[made] > clock:
                clock = ready[made]
            if memory > peak:
                peak = memory
            memory += priced.kept if made.op == "F" else priced.border
        else:
            lane, ticks, new = calls[operation]
            if operation == "send" and what.made.op == "F":  # not an input of this rank any more
                memory += priced.border - priced.kept
            if memory > peak:
                peak = memory
            end = lanes[lane]
            lanes[lane] = end = (clock if clock > end else end) + ticks
            ends[operation].append(end)
            memory += new
            if operation == "send":
                ready[what.made] = end
    stages = program.table.stages_of(place)
    fixed = priced.workspace + (priced.first if 0 in stages else 0)
    fixed += priced.last if program.table.stages - 1 in stages else 0
    done.append(Estimate(clock, peak + fixed))
