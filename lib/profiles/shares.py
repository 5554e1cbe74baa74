"""Where each rank's time went in runs without cells, such as DDP, FSDP, tensor parallelism or one GPU. Where several
ranks are read, causes follow from collectives, which end on all ranks together. Also the shares of single ranks of a
pipeline, without causes."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from math import inf
from statistics import median
from types import MappingProxyType
from typing import NamedTuple

from lib.errors import RuleError
from lib.values.algebra import union

from .gathered import NOT_NAMED, common_steps, numbers_text
from .sources import JoinedCall, RankProfile, RankStep, without
from .words import SAYS


class RankTime(NamedTuple):
    """One rank's step, in ms. `waiting` is grouped by the rank that joined last; without other ranks it is part of
    `communication`, which is what computing does not hide. In `host` neither a kernel nor a collective runs. For a
    single rank of a pipeline, all time without computing is `idle`. `phases` divide computing."""

    rank: int
    length: float
    computing: float
    waiting: dict[int, float]
    communication: float
    host: float
    idle: float = 0.0
    phases: Mapping[str, float] = MappingProxyType({})


class Exposed(NamedTuple):
    """A kind of collective: the mean number of calls of a rank, the mean ms in which such calls are pending, and the ms
    of these in which the rank does not compute."""

    calls: float
    ms: float
    exposed: float


@dataclass(frozen=True)
class Shares:
    """The shares of a step's ranks, and what a reader should know."""

    profiles: tuple[RankProfile, ...]
    step: int
    ranks: tuple[RankTime, ...]
    calls: int
    notes: tuple[str, ...] = ()
    collectives: Mapping[str, Exposed] = field(default_factory=dict)
    """Kinds of collectives, those that are exposed longest first."""

    @property
    def length(self) -> float:
        return max(time.length for time in self.ranks)

    @property
    def waited_for(self) -> dict[int, float]:
        """How long others waited for each rank."""
        waited: dict[int, float] = defaultdict(float)
        for time in self.ranks:
            for rank, ms in time.waiting.items():
                waited[rank] += ms
        return dict(waited)


def middle_step(lengths: dict[int, float], wanted: int | None) -> int:
    """The requested step, or the step of median length."""
    if wanted is None:
        return sorted(lengths, key=lambda number: (lengths[number], number))[(len(lengths) - 1) // 2]
    if wanted not in lengths:
        raise RuleError(SAYS("no such step", step=wanted, steps=numbers_text(lengths)))
    return wanted


def collective_shares(profiles: Sequence[RankProfile], wanted: int | None = None) -> Shares:
    """The shares of ranks without cells by their operations and collectives.

    Raises:
        RuleError: nothing ran on a rank; the text says what to record.
    """
    idle = [profile.rank for profile in profiles if not any(step.computing for step in profile.steps.values())]
    if idle:
        raise RuleError(SAYS("nothing ran", ranks=numbers_text(idle)))
    number = _step_of(profiles, wanted)
    steps = {profile.rank: profile.steps[number] for profile in profiles}
    met, notes = _meetings(steps)
    hosts = {profile.host for profile in profiles}
    offsets = {profile.rank: (profile.base - profiles[0].base) / 1e6 for profile in profiles}
    if met and ("" in hosts or len(hosts) > 1):
        offsets |= _offsets(profiles, met)
        notes.append("Clocks are moved so that collectives end together.")
    of_rank: dict[int, list[LastJoined]] = {rank: [] for rank in steps}
    for calls in met:
        last = max(calls, key=lambda rank: calls[rank].start + offsets[rank])
        for rank in calls:
            of_rank[rank].append((calls, last))
    ranks = [_rank_time(rank, step, of_rank[rank], offsets) for rank, step in steps.items()]
    world = profiles[0].world or len(profiles)
    if len(profiles) < world:
        notes.append(f"These are {len(profiles)} of {world} ranks: communication includes waiting for the others.")
    number_of_calls = len(met) or sum(len(step.calls) for step in steps.values())
    return Shares(tuple(profiles), number, tuple(ranks), number_of_calls, tuple(notes), _exposed([*steps.values()]))


def _exposed(steps: Sequence[RankStep]) -> Mapping[str, Exposed]:
    """Each kind of collective, on average over the ranks."""
    names = dict.fromkeys(call.name for step in steps for call in step.calls)
    rows = {}
    for name in names:
        pending = [union([(call.start, call.end) for call in step.calls if call.name == name]) for step in steps]
        left = [without(times, step.computing) for times, step in zip(pending, steps)]
        number = sum(call.name == name for step in steps for call in step.calls)
        sums = number, sum(map(_sum, pending)), sum(map(_sum, left))
        rows[name] = Exposed(*(one / len(steps) for one in sums))
    return dict(sorted(rows.items(), key=lambda row: -row[1].exposed))


def single_shares(profiles: Sequence[RankProfile], wanted: int | None = None) -> Shares:
    """Computing and idle time of some ranks of a pipeline; the causes are on other ranks."""
    number = _step_of(profiles, wanted)
    ranks = []
    for profile in profiles:
        spans = profile.steps[number].spans
        if not spans:
            raise RuleError(f"no cell is named on rank {profile.rank}: {NOT_NAMED}")
        length = max(span.end for span in spans) - min(span.start for span in spans)
        computing = sum(span.length for span in spans)
        ranks.append(RankTime(profile.rank, length, computing, {}, 0.0, 0.0, length - computing))
    notes = ("These are not all ranks, so there are shares without causes.",)
    return Shares(tuple(profiles), number, tuple(ranks), 0, notes)


def _step_of(profiles: Sequence[RankProfile], wanted: int | None) -> int:
    common = common_steps({profile.rank: profile.steps for profile in profiles})
    return middle_step({n: max(profile.steps[n].length for profile in profiles) for n in common}, wanted)


MESSAGES = ("send", "recv", "sendrecv")
"""Calls of two ranks, which are not matched."""

Meeting = dict[int, JoinedCall]
"""The call of each rank."""

LastJoined = tuple[Meeting, int]
"""A meeting, and the rank that joined last."""


def _meetings(steps: dict[int, RankStep]) -> tuple[list[Meeting], list[str]]:
    """The calls that form one collective: the n-th call of a kind in a group, on each of its ranks."""
    by_kind: dict[tuple[str, str], dict[int, list[JoinedCall]]] = defaultdict(dict)
    for rank, step in steps.items():
        for call in sorted((call for call in step.calls if call.name not in MESSAGES), key=lambda call: call.start):
            by_kind[call.group, call.name].setdefault(rank, []).append(call)
    meetings: list[Meeting] = []
    notes = []
    for (_, name), ranks in by_kind.items():
        if len({len(calls) for calls in ranks.values()}) > 1:
            rank = min(ranks, key=lambda rank: len(ranks[rank]))
            notes.append(f"Rank {rank} has fewer calls of {name} than others, so these are not matched.")
        elif len(ranks) > 1:
            meetings += [dict(zip(ranks, calls)) for calls in zip(*ranks.values())]
    return meetings, notes


def _offsets(profiles: Sequence[RankProfile], met: Sequence[Meeting]) -> dict[int, float]:
    """The offset to add to each rank's times so that collectives end together. Ranks that meet use the first one's
    clock."""
    first = profiles[0].rank
    late = {
        profile.rank: [call[first].end - call[profile.rank].end for call in met if {first, profile.rank} <= call.keys()]
        for profile in profiles
    }
    return {rank: median(some) for rank, some in late.items() if some}


def _rank_time(rank: int, step: RankStep, met: Sequence[LastJoined], offsets: dict[int, float]) -> RankTime:
    """Splits the time in which a rank does not compute: until the last rank joined, then until the end of the call."""
    idle = without([(step.start, step.end)], union(step.computing))
    joined: list[tuple[float, float, int]] = []
    moving: list[tuple[float, float]] = []
    for calls, last in met:
        joining = calls[rank]
        since = min(max(calls[last].start + offsets[last] - offsets[rank], joining.start), joining.end)
        if last != rank and since > joining.start:
            joined.append((joining.start, since, last))
        moving.append((since, joining.end))
    moving += [(call.start, call.end) for call in step.calls if not met or call.name in MESSAGES]
    joined.sort()
    ends = [-inf, *accumulate((end for _, end, _ in joined), max)]
    alone = [(max(start, before), end) for (start, end, _), before in zip(joined, ends)]
    """What no earlier call covers; it may be empty."""
    waiting: dict[int, float] = defaultdict(float)
    for (_, _, last), ms in zip(joined, _within(alone, idle)):
        waiting[last] += ms
    left = without(idle, union([(start, end) for start, end, _ in joined]))
    host = without(left, union(moving))
    computing = step.length - _sum(idle)
    parts = dict(waiting), _sum(left) - _sum(host), _sum(host)
    return RankTime(rank, step.length, computing, *parts, phases=step.phases)


def _within(intervals: Sequence[tuple[float, float]], others: Sequence[tuple[float, float]]) -> Iterator[float]:
    """How much of each interval lies in others. Both are ascending and disjoint; an interval may be empty."""
    at = 0
    for start, end in intervals:
        while at < len(others) and others[at][1] <= start:
            at += 1
        place, length = at, 0.0
        while place < len(others) and others[place][0] < end:
            length += max(0.0, min(end, others[place][1]) - max(start, others[place][0]))
            place += 1
        yield length


def _sum(intervals: Sequence[tuple[float, float]]) -> float:
    return sum(end - start for start, end in intervals)
