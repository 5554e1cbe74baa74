"""A profiled pipeline as data: its steps, the name of its schedule, where the time went, and what could be shorter.

The causes of a bubble are found by replaying the run's own order: with equal times, with the times of each stage, with
the time of each cell, with messages, and with the host. Each replay adds one cause, whose cost is what the step grows
by. So the costs add up to the step, and what is left is shown as not explained.

A shorter order is searched for with median times, and compared with the run's order replayed with the same times, not
with the measured step. Where only full backwards were measured, their halves are assumed, and the result is given for
several shares.

Files, clocks and complete steps are decided by `gathered`; words and pictures by the callers.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from itertools import accumulate
from math import inf
from statistics import mean, median, quantiles
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from lib.errors import RuleError, Sentences
from lib.ledger.algebra import union
from lib.pipelines import Cell, Recognition, Timetable, recognize_table
from lib.pipelines.rank_work import Pipeline

from .gathered import (
    NOT_NAMED,
    Gathered,
    PipelineStep,
    common_steps,
    gathered,
    makespan,
    numbers_text,
    read_profiles,
    replayed,
)
from .reading import JoinedCall, NameRule, RankProfile, RankStep, Source, Span, without

if TYPE_CHECKING:
    from lib.pipelines.solver import Problem

# --- Where the time of a step went ---
#
# A rank is free from the end of its previous slot, and its inputs are ready when other ranks have made the last of
# them. Until then it waits for that rank; the rest is the message. If the inputs were ready first, the program (the
# host) was late. The shares add up to the ranks times the step. Findings name oddities: a slow rank, a late host.


class Idle(NamedTuple):
    """The time before a slot, in ms. If inputs came late, the rank waits for rank `source`."""

    rank: int
    at: int
    waiting: float
    message: float
    host: float
    source: int | None


class RankShares(NamedTuple):
    """One rank's step, in ms; `gaps` is the part of computing in which no kernel ran."""

    computing: float
    warm_up: float
    waiting: float
    message: float
    host: float
    cool_down: float
    gaps: float


@dataclass(frozen=True)
class Accounting:
    """The shares of a step's ranks."""

    step: PipelineStep
    idle: tuple[Idle, ...]
    ranks: tuple[RankShares, ...]

    @property
    def computing(self) -> float:
        """The mean computing time of all ranks, in ms."""
        return sum(shares.computing for shares in self.ranks) / len(self.ranks)

    @property
    def bubble(self) -> float:
        """The share of the step in which ranks do not compute (Zero Bubble's rate)."""
        return 1 - self.computing / self.step.length

    @property
    def of_ideal(self) -> float:
        """The bubble relative to the computing of a rank (Megatron-LM's rate, (p - 1) / m for 1F1B)."""
        return self.step.length / self.computing - 1

    @cached_property
    def message(self) -> float:
        """The median time of a message that was waited for."""
        return max(0.0, median([idle.message for idle in self.idle if idle.source is not None] or [0.0]))

    @cached_property
    def waited_for(self) -> dict[int, float]:
        """How long others waited for each rank in all, after their warm-up."""
        waited: dict[int, float] = defaultdict(float)
        for idle in self.idle:
            if idle.source is not None and idle.at and idle.waiting > 0:
                waited[idle.source] += idle.waiting
        return dict(waited)

    @cached_property
    def host(self) -> dict[tuple[int, int], float]:
        """By rank and index of a slot, the host's time before it."""
        return {(idle.rank, idle.at): idle.host for idle in self.idle}


def accounted(step: PipelineStep) -> Accounting:
    idle = [list(_idle(step, rank)) for rank in range(len(step.spans))]
    ranks = [_shares(step, rank, row) for rank, row in enumerate(idle)]
    return Accounting(step, tuple(wait for row in idle for wait in row), tuple(ranks))


def _idle(step: PipelineStep, rank: int) -> Iterator[Idle]:
    free = 0.0
    for at, span in enumerate(step.spans[rank]):
        arrivals = step.order.arrivals[rank][at]
        ready, source = max(((step.spans[a][n].end, a) for (a, n), _ in arrivals), default=(0.0, None))
        if source is not None and ready > free:
            waiting = max(0.0, min(span.start, ready) - free)
            yield Idle(rank, at, waiting, span.start - free - waiting, 0.0, source)
        else:
            yield Idle(rank, at, 0.0, 0.0, span.start - free, None)
        free = span.end


def _shares(step: PipelineStep, rank: int, idle: Sequence[Idle]) -> RankShares:
    spans = step.spans[rank]
    computing = sum(span.length for span in spans)
    return RankShares(
        computing,
        idle[0].waiting,
        sum(wait.waiting for wait in idle[1:]),
        sum(wait.message for wait in idle),
        sum(wait.host for wait in idle),
        step.length - spans[-1].end,
        computing - sum(span.busy for span in spans),
    )


TRUSTED = 0.03
"""If at most this share of the step is unexplained, the accounting is trusted."""


class Rung(NamedTuple):
    """A cause of the bubble, and what it costs in ms of the step."""

    cause: str
    ms: float


def ladder_of(accounting: Accounting) -> list[Rung]:
    """The causes, in the order in which they are added: the order of cells, with every operation equally long on all
    stages; uneven stages; single slow cells; messages; the host; and the unexplained rest."""
    step = accounting.step

    def replay_with(
        key: Callable[[Span], Hashable],
        message: float = 0.0,
        host: Mapping[tuple[int, int], float] = MappingProxyType({}),
    ) -> float:
        typical = {kind: mean(some) for kind, some in _lengths_by(key, step).items()}
        return makespan(replayed(step.order, lambda rank, at: typical[key(step.spans[rank][at])], message, host))

    heights = {
        "order": replay_with(lambda span: tuple(op for _, op in span.kind)),
        "uneven stages": replay_with(lambda span: span.kind),
        "single slow cells": replay_with(lambda span: span),
        "messages": replay_with(lambda span: span, accounting.message),
        "host": replay_with(lambda span: span, accounting.message, accounting.host),
        "not explained": step.length,
    }
    return [
        Rung(cause, now - below)
        for (cause, now), below in zip(heights.items(), [accounting.computing, *heights.values()])
    ]


def _lengths_by(key: Callable[[Span], Hashable], step: PipelineStep) -> Mapping[Hashable, list[float]]:
    """The lengths of the spans of each kind."""
    lengths: Mapping[Hashable, list[float]] = defaultdict(list)
    for span in (span for row in step.spans for span in row):
        lengths[key(span)].append(span.length)
    return lengths


SLOW_RANK = 0.08
"""A rank is slow if it computes longer than the median rank by this share."""

SLOW_CELL, SLOW_CELL_COST = 1.5, 0.02
"""A cell is slow if it takes so many times its median, and makes the step longer by this share."""

LATE_HOST = 0.04
"""The host is late if it takes this share of the step, in most steps."""

MOST_FINDINGS = 8


class ProfileFinding(NamedTuple):
    """An oddity, its cost in ms, and the cell where it shows, with its start."""

    kind: str
    text: str
    ms: float
    rank: int
    cell: Cell
    at: float


def findings_of(accounting: Accounting, steps: Sequence[Accounting]) -> list[ProfileFinding]:
    """The findings of a step, the most costly first; `steps` are the steps of its pipeline."""
    every = [*_slow_ranks(accounting), *_slow_cells(accounting), *_late_hosts(accounting, steps)]
    return sorted(every, key=lambda finding: -finding.ms)[:MOST_FINDINGS]


def _slow_ranks(accounting: Accounting) -> Iterator[ProfileFinding]:
    step, typical = accounting.step, median(shares.computing for shares in accounting.ranks)
    for rank, shares in enumerate(accounting.ranks):
        if shares.computing > (1 + SLOW_RANK) * typical:
            name, span = step.ranks[rank], max(step.spans[rank], key=lambda span: span.length)
            by_stage = _work_by_stage(accounting)
            usual = median(by_stage.values())
            slow = [stage for stage in step.table.stages_of(rank) if by_stage[stage] > (1 + SLOW_RANK) * usual]
            by_median = "; ".join(
                f"stage {stage} takes {by_stage[stage] / usual:.2f} x the median stage" for stage in slow
            )
            text = (
                f"Rank {name} computes {shares.computing / typical - 1:.0%} longer than the median rank "
                f"({shares.computing:.1f} and {typical:.1f} ms){f': {by_median}' if by_median else ''}."
            )
            yield ProfileFinding("slow rank", text, shares.computing - typical, name, span.cells[0], span.start)


def _work_by_stage(accounting: Accounting) -> dict[int, float]:
    """Ms of all cells of each stage. Cells that start together share their time."""
    work: dict[int, float] = defaultdict(float)
    for span in (span for row in accounting.step.spans for span in row):
        for cell in span.cells:
            work[cell.stage] += span.length / len(span.cells)
    return work


def _slow_cells(accounting: Accounting) -> Iterator[ProfileFinding]:
    typical = {kind: median(some) for kind, some in _lengths_by(lambda span: span.kind, accounting.step).items()}
    for rank, row in zip(accounting.step.ranks, accounting.step.spans):
        for span in row:
            more = span.length - typical[span.kind]
            if span.length > SLOW_CELL * typical[span.kind] and more > SLOW_CELL_COST * accounting.step.length:
                cells = " and ".join(map(str, span.cells))
                times = f"{span.length / typical[span.kind]:.1f} x its median" if typical[span.kind] else "usually none"
                text = f"{cells} on rank {rank} takes {span.length:.1f} ms, {times}."
                yield ProfileFinding("slow cell", text, more, rank, span.cells[0], span.start)


def _late_hosts(accounting: Accounting, steps: Sequence[Accounting]) -> Iterator[ProfileFinding]:
    for rank, shares in enumerate(accounting.ranks):
        late = [other.ranks[rank].host > LATE_HOST * other.step.length for other in steps]
        if shares.host > LATE_HOST * accounting.step.length and 2 * sum(late) > len(late):
            worst: Idle = max((idle for idle in accounting.idle if idle.rank == rank), key=lambda idle: idle.host)
            span = accounting.step.spans[rank][worst.at]
            text = (
                f"Rank {accounting.step.ranks[rank]} idles for {shares.host:.1f} ms although its inputs are there, "
                f"mostly before {span.cells[0]} ({worst.host:.1f} ms)."
            )
            yield ProfileFinding("host", text, shares.host, accounting.step.ranks[rank], span.cells[0], span.start)


# --- What could be shorter: the pipeline as a problem for the solver, and orders with each stage's own times ---

SHORTER = 0.01
"""An order is shown if it is shorter by this share than the run's order, replayed in the same way."""

EFFORT = 0.1
HALVES = (0.4, 0.5, 0.6)
"""Shares of a backward in its input half that are tried where only the full backward was measured."""

LEAST, MOST = 0.001, 9_999.0
"""Times of a problem, in ms."""

MOST_SOLVED = 20_000
"""Orders are searched for pipelines of at most so many forwards."""

Rows = Sequence[Sequence[Cell]]


@dataclass(frozen=True)
class OrderBound:
    """With median times, no order of this kind takes less than `ms`; the measured order takes `replay`, or `even` if
    all stages had equal times."""

    ms: float
    reason: str
    replay: float
    even: float
    has_halves: bool


@dataclass(frozen=True)
class Better:
    """A shorter order: its name, its time with the medians of each stage, and, if halves are `assumed`, its times with
    40 and 60 % of a backward in the input half."""

    table: Timetable
    ms: float
    replay: float
    span: tuple[float, float]
    assumed: bool
    held: float

    @property
    def shorter(self) -> float:
        """By which share it is shorter than the run's order, replayed in the same way."""
        return 1 - self.ms / self.replay


@dataclass(frozen=True)
class Prospect:
    """What the measured times allow. `refusal` says why there is no bound, or no search for orders."""

    bound: OrderBound | None = None
    better: Better | None = None
    refusal: str = ""


def median_times(accounting: Accounting) -> dict[tuple[int, str], float]:
    """By stage and operation, the median time in ms, without cells that overlap with others."""
    alone: dict[tuple[int, str], list[float]] = defaultdict(list)
    shared: dict[tuple[int, str], list[float]] = defaultdict(list)
    for row in accounting.step.spans:
        for span in row:
            for stage, op in span.kind:
                (alone if len(span.cells) == 1 else shared)[stage, op].append(span.length / len(span.cells))
    return {key: median(times) for key, times in {**shared, **alone}.items()}


def prospect(accounting: Accounting) -> Prospect:
    """The bound of the measured order's kind, and a shorter order if one is found."""
    try:
        from lib.pipelines.solver import Problem  # here and below, since an installation may lack the solver
        from lib.pipelines.solver.problem import bound
        from lib.pipelines.solver.solving import figures
    except ModuleNotFoundError as why:
        return Prospect(refusal=f"There is no bound: this installation has no {why.name}.")
    table = accounting.step.table
    pipeline = Pipeline.of_table(table)
    kind, p, v, _ = pipeline.placement
    if kind == "other":
        return Prospect(refusal="The stages have no known placement on ranks, so there is no bound.")
    times = median_times(accounting)
    split = any(op == "W" for _, op in times)
    measured: Rows = [[cell for slot in row for cell in slot] for row in table.rows]
    try:
        problem = Problem(
            p, table.batches, placement=kind, chunks=v, whole=not split, least="makespan",
            send=_rounded(accounting.message, 0.0), **_lengths(times, table.stages, 0.5, whole=not split),
        )  # fmt: skip
        rows = _split(measured) if split else measured
        capped = replace(problem, memory=max(figures(problem, rows).held))
    except RuleError as why:
        return Prospect(refusal=f"There is no bound: {why}.")
    replay = _makespan(capped, rows)
    least = bound(capped)
    typical: dict[str, Any] = {name: _rounded(mean(capped.by_stage(name))) for name in ("forward", "backward_input")}
    typical["backward_weight"] = _rounded(mean(capped.by_stage("backward_weight")), 0.0)
    even = replace(capped, **typical)
    shown = OrderBound(capped.time(least.ticks), least.reason, replay, _makespan(even, rows), split)
    if table.stages * table.batches > MOST_SOLVED:
        return Prospect(shown, refusal="No better order was searched for: the pipeline is too large.")
    return Prospect(shown, _better(capped, measured, times))


def _better(problem: Problem, measured: Rows, times: Mapping[tuple[int, str], float]) -> Better | None:
    """The shortest order of the solver and the textbooks, if it is shorter than the run's."""
    from lib.pipelines.solver import solve  # here, as in `prospect`

    wholes = [(problem, measured)] if problem.whole else []
    halves = replace(problem, whole=False, **_lengths(times, problem.stages, 0.5, whole=False))
    shorter = []
    for solved, rows in [*wholes, (halves, _split(measured))]:
        replay = _makespan(problem, measured) if problem.whole else _makespan(solved, rows)
        fields = {name: getattr(solved, name) for name in solved.__match_args__}
        try:
            solution = solve(effort=EFFORT, proof_seconds=0, **fields)
        except RuleError:  # nothing fits, as where halves hold more
            continue
        if solution.makespan < (1 - SHORTER) * replay:
            shorter.append((solution.makespan, solved, solution, replay))
    if not shorter:
        return None
    ms, solved, solution, replay = min(shorter, key=lambda better: better[0])
    assumed = problem.whole and not solved.whole
    rows = [[cell for slot in row for cell in slot] for row in solution.table.rows]
    others = [replace(solved, **_lengths(times, solved.stages, share, whole=False)) for share in HALVES if assumed]
    spread = [_makespan(other, rows) for other in others] or [ms]
    return Better(solution.table, ms, replay, (min(spread), max(spread)), assumed, max(solution.held))


def _makespan(problem: Problem, rows: Rows) -> float:
    from lib.pipelines.solver.solving import figures  # here, as in `prospect`

    return problem.time(max(figures(problem, rows).ends))


def _split(rows: Rows) -> list[list[Cell]]:
    """The rows with each backward split into its halves."""
    return [[cell._replace(op=op) for cell in row for op in ("IW" if cell.op == "B" else cell.op)] for row in rows]


def _lengths(times: Mapping[tuple[int, str], float], stages: int, share: float, whole: bool) -> dict[str, Any]:
    """The times of a problem by stage. The input half is a share of a full backward; in the first stage it is 0,
    because the model's input needs no gradient."""
    halves = []
    for stage in range(stages):
        back = times.get((stage, "B"), 0.0)
        if whole:
            halves.append((back, 0.0))
        elif (stage, "I") in times:
            halves.append((times[stage, "I"], times[stage, "W"]))
        else:
            halves.append((back * share, back * (1 - share)) if stage else (0.0, back))
    return {
        "forward": tuple(_rounded(times[stage, "F"]) for stage in range(stages)),
        "backward_input": tuple(_rounded(input_half) for input_half, _ in halves),
        "backward_weight": tuple(_rounded(weight_half, 0.0) for _, weight_half in halves),
    }


def _rounded(ms: float, least: float = LEAST) -> float:
    """A time rounded to µs, as a problem can have it."""
    return min(max(round(ms, 3), least), MOST)


# --- Runs without cells, such as DDP, FSDP, tensor parallelism or one GPU ---
#
# Where several ranks are read, causes follow from collectives, which end on all ranks together. Single ranks of a
# pipeline have shares without causes.


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


# --- The study ---


class StageTime(NamedTuple):
    """Of an operation of a stage: the median time and its tenth and ninetieth percentile, in ms."""

    median: float
    low: float
    high: float


class StageRow(NamedTuple):
    """A stage: its rank, the times of its operations, and how many forwards its rank holds at most."""

    stage: int
    rank: int
    times: dict[str, StageTime]
    held: int


@dataclass(frozen=True)
class Study:
    """One step in full, and all steps in short. With several replicas, a step is that of the slowest replica."""

    gathered: Gathered
    steps: tuple[Accounting, ...]
    """The slowest pipeline of each step."""
    chosen: Accounting

    @cached_property
    def name(self) -> Recognition:
        return recognize_table(self.chosen.step.table)

    @cached_property
    def ladder(self) -> list[Rung]:
        return ladder_of(self.chosen)

    @property
    def is_trusted(self) -> bool:
        """True if almost all of the step is explained."""
        return abs(self.ladder[-1].ms) <= TRUSTED * self.chosen.step.length

    @cached_property
    def findings(self) -> list[ProfileFinding]:
        return findings_of(
            self.chosen, [accounting for accounting in self.steps if accounting.step.ranks == self.chosen.step.ranks]
        )

    @cached_property
    def prospect(self) -> Prospect:
        return prospect(self.chosen)

    @cached_property
    def better_name(self) -> Recognition | None:
        return recognize_table(self.prospect.better.table) if self.prospect.better else None

    @cached_property
    def stages(self) -> list[StageRow]:
        step = self.chosen.step
        rows = []
        for rank, spans in enumerate(step.spans):
            by_op: dict[tuple[int, str], list[float]] = {}
            in_flight = most = 0
            for span in spans:
                for cell in span.cells:
                    in_flight += {"F": 1, "I": 0}.get(cell.op, -1)
                    most = max(most, in_flight)
                    if len(span.cells) == 1:
                        by_op.setdefault((cell.stage, cell.op), []).append(span.length)
            for stage in step.table.stages_of(rank):
                times = {op: _time(by_op[stage, op]) for op in "FBIW" if (stage, op) in by_op}
                rows.append(StageRow(stage, step.ranks[rank], times, most))
        return sorted(rows)


def _time(lengths: Sequence[float]) -> StageTime:
    tenths = quantiles(lengths, n=10, method="inclusive") if len(lengths) > 1 else [*lengths] * 9
    return StageTime(median(lengths), tenths[0], tenths[-1])


def study(
    sources: Sequence[Source],
    rules: Sequence[NameRule] = (),
    only: Collection[int] | None = None,
    step: int | None = None,
) -> Study | Shares:
    """What the files of a run say: of a pipeline a `Study`, else the shares of its ranks. `only` are the ranks that are
    there, if not all are; `step` is the one to show in full, else the one of median length.

    Raises:
        RuleError: the files cannot be read, are not of one run, or name no cells; the text says what to do.
    """
    profiles = read_profiles(sources, rules, only)
    world = profiles[0].world or len(profiles)
    with_cells = [any(step.spans for step in profile.steps.values()) for profile in profiles]
    if not any(with_cells):
        return collective_shares(profiles, step)
    if len(profiles) < world:
        return single_shares(profiles, step)
    try:
        pipelines = gathered(profiles)
    except RuleError as why:
        if any(has and not profile.notes for has, profile in zip(with_cells, profiles)):
            raise
        shares = collective_shares(profiles, step)  # the cells were guessed from messages, and do not fit together
        return replace(shares, notes=(*shares.notes, f"{str(why)[0].upper()}{str(why)[1:]}."))
    slowest: dict[int, Accounting] = {}
    for accounting in map(accounted, pipelines.steps):
        before = slowest.get(accounting.step.number)
        if before is None or accounting.step.length > before.step.length:
            slowest[accounting.step.number] = accounting
    chosen = middle_step({number: accounting.step.length for number, accounting in slowest.items()}, step)
    return Study(pipelines, tuple(slowest.values()), slowest[chosen])


VERSION = 1


def as_record(studied: Study | Shares) -> dict[str, Any]:
    """The study in a form that `json.dumps` can write."""
    if isinstance(studied, Shares):
        return {
            **_files(studied.profiles, studied.notes),
            "step": {"number": studied.step, "ms": studied.length, "collectives": studied.calls},
            "ranks": [{**time._asdict(), "phases": dict(time.phases)} for time in studied.ranks],
            "collectives": {name: exposed._asdict() for name, exposed in studied.collectives.items()},
            "waited_for": studied.waited_for,
        }
    step, better = studied.chosen.step, studied.prospect.better
    return {
        **_files(studied.gathered.profiles, studied.gathered.notes),
        "schedule": {"name": studied.name.name, "text": studied.name.text},
        "steps": [
            {
                "number": accounting.step.number, "ranks": accounting.step.ranks, "ms": accounting.step.length,
                "bubble": accounting.bubble,
            }
            for accounting in studied.steps
        ],
        "step": {
            "number": step.number,
            "ms": step.length,
            "outside_ms": step.outside,
            "bubble": studied.chosen.bubble,
            "bubble_of_ideal": studied.chosen.of_ideal,
            "message_ms": studied.chosen.message,
            "clock_offsets_ms": step.clocks.offsets,
            "clock_doubt_ms": step.clocks.doubt,
        },
        "ladder": [{"cause": rung.cause, "ms": rung.ms, "share": rung.ms / step.length} for rung in studied.ladder],
        "stages": [
            {**row._asdict(), "times": {op: time._asdict() for op, time in row.times.items()}} for row in studied.stages
        ],
        "ranks": _ranks(studied.chosen),
        "findings": [{**finding._asdict(), "cell": str(finding.cell)} for finding in studied.findings],
        "bound": asdict(studied.prospect.bound) if studied.prospect.bound else None,
        "better": better and {
            "name": studied.better_name.text if studied.better_name else "",
            "ms": better.ms, "range_ms": better.span, "replay_ms": better.replay, "shorter": better.shorter,
            "halves_assumed": better.assumed, "held": better.held, "rows": str(better.table).splitlines(),
        },
        "refusal": studied.prospect.refusal,
    }  # fmt: skip


def _files(profiles: Sequence[RankProfile], notes: Sequence[str]) -> dict[str, Any]:
    return {
        "version": VERSION,
        "kind": profiles[0].kind,
        "files": [{"file": profile.file, "rank": profile.rank} for profile in profiles],
        "notes": list(notes),
    }


def _ranks(accounting: Accounting) -> list[dict[str, Any]]:
    step = accounting.step
    return [
        {
            "rank": rank,
            **shares._asdict(),
            "cells": [
                {"cells": [str(cell) for cell in span.cells], "start": span.start, "end": span.end, "busy": span.busy}
                for span in row
            ],
        }
        for rank, shares, row in zip(step.ranks, accounting.ranks, step.spans)
    ]


SAYS = Sentences(
    {
        "no such step": "there is no step {step}; steps are {steps}",
        "nothing ran": "no operation ran on rank {ranks}; profile with activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA] around a step",
    }
)
