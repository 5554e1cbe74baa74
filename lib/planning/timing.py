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
from collections.abc import Generator, Mapping
from functools import lru_cache
from typing import NamedTuple

from .actions import NONE, Pattern, Program, program_of, turns
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


@lru_cache(maxsize=256)
def walked(job: Job, split: Split, eager: bool = False) -> tuple[Walked, ...]:
    """Each rank of the pipeline at the end of a step, with bytes of fused or of eager code."""
    priced, program = prices(job, split, eager), program_of(job, split)
    outcomes, ready, ended = _Outcomes(priced, program), dict[int, int](), dict[int, Walked]()
    waiting = [_rank(place, priced, program, outcomes, ready, ended) for place in range(program.table.ranks)]
    while waiting:
        waiting = [rank for rank in waiting if next(rank, False)]
    return tuple(ended[place] for place in range(program.table.ranks))


LANES = {"gather": "dp", "reduce": "dp", "fetch": "from host", "park": "to host", "send": "messages"}
"""The lane of each call, on which one call follows the other."""

WAITS = {f"wait {call}": call for call in LANES}

Pending = tuple[tuple[str, int], ...]
"""The calls that a rank has to wait for, and the ticks until each ends."""


class Outcome(NamedTuple):
    """What a turn takes once its message is there: its ticks, those in which it computes, and in which it waits for
    replicas and for the host; the most bytes at a start of its actions, and the bytes at its end, relative to its
    start; the ticks until the message that it sends arrives; and the calls that are pending at its end."""

    ticks: int
    busy: int
    dp: int
    host: int
    most: int
    change: int
    arrival: int
    pending: Pending


class _Outcomes(dict[tuple[Pattern, Pending], Outcome]):
    """The outcome of each turn, counted once for all turns with the same actions and pending calls."""

    def __init__(self, priced: Prices, program: Program) -> None:
        sizes = sizes_of(priced, program)
        ticks = {
            **dict.fromkeys(("forward", "forward to border", "recompute"), priced.forward),
            "loss": priced.loss,
            "backward": priced.back_input + priced.back_weight,
            "backward_input": priced.back_input,
            "backward_weight": priced.back_weight,
            "update": priced.update,
            **dict.fromkeys(("fetch", "park"), priced.copy),
            "gather": priced.gather,
            "reduce": priced.reduce,
            "send": priced.message,
        }

        def total(values: Mapping[str, int]) -> int:
            return sum(number * sizes[what] for what, number in values.items())

        self.costs = {
            name: (total(effect.before) if effect.operation else None, ticks.get(name, 0), total(effect.after))
            for name, effect in effects_of(program).items()
        }
        """By the name of an action: bytes added before its start (None: memory is not sampled), ticks, bytes added at
        its end."""

    def __missing__(self, key: tuple[Pattern, Pending]) -> Outcome:
        pattern, pending = key
        clock = busy = memory = arrival = 0
        most = -(10**30)
        ends = {call: deque[int]() for call in LANES}
        lanes, waits = dict.fromkeys(LANES.values(), 0), dict.fromkeys(LANES.values(), 0)
        for call, end in pending:
            ends[call].append(end)
            lanes[LANES[call]] = max(lanes[LANES[call]], end)
        for name, operation, _ in pattern.actions:
            before, ticks, after = self.costs[name]
            if before is not None:
                memory += before
                if memory > most:
                    most = memory
            memory += after
            if operation in LANES:
                lane = LANES[operation]
                lanes[lane] = arrival = (clock if clock > lanes[lane] else lanes[lane]) + ticks
                ends[operation].append(arrival)
            elif operation in WAITS:
                call = WAITS[operation]
                end = ends[call].popleft()
                if end > clock:
                    waits[LANES[call]] += end - clock
                    clock = end
            elif ticks:
                clock += ticks
                busy += ticks
        still = tuple((call, max(0, end - clock)) for call in LANES for end in ends[call])
        host = waits["from host"] + waits["to host"]
        self[key] = Outcome(clock, busy, waits["dp"], host, most, memory, arrival, still)
        return self[key]


def _rank(
    place: int, priced: Prices, program: Program, outcomes: _Outcomes, ready: dict[int, int], ended: dict[int, Walked]
) -> Generator[bool, None, None]:
    """Counts the turns of a rank; yields when it needs a message that has not been sent. `ready` maps messages to the
    times at which they arrive. Memory is sampled when a computation or a call starts."""
    clock = memory = peak = busy = dp = host = 0
    pending: Pending = ()
    for pattern, _, received, sent in turns(program, place):
        if received != NONE:
            while received not in ready:
                yield True
            wait = ready[received] - clock
            if wait > 0:
                clock += wait
                pending = tuple([(call, end - wait if end > wait else 0) for call, end in pending])
        ticks, computed, for_dp, for_host, most, change, arrival, pending = outcomes[pattern, pending]
        if sent != NONE:
            ready[sent] = clock + arrival
        if memory + most > peak:
            peak = memory + most
        clock += ticks
        memory += change
        busy += computed
        dp += for_dp
        host += for_host
    stages = program.table.stages_of(place)
    fixed = priced.workspace + (priced.first if 0 in stages else 0)
    fixed += priced.last if program.table.stages - 1 in stages else 0
    ended[place] = Walked(clock, peak + fixed, busy, {"dp": dp, "host": host})


def memory_range(job: Job, split: Split) -> tuple[int, int]:
    """Bytes of the fullest GPU in fused code, and the most that eager code reserves."""
    low = estimate(job, split).peak
    return low, max(low, with_holes(job, split, estimate(job, split, eager=True).peak))
