"""Judges a trace: recomputes it, measures time, memory and bytes, and reports. Only the operations are trusted.

The report has all figures at once, also of a run that is refused, as far as it is legal: a player sees how far a
schedule came. Figures on demand would be quicker for some callers, but each would recompute the trace.

This module decides the status and the stars of a run against a goal. What an operation requires is decided by the
rules, and what a figure counts by `memory`, `traffic` and `notes`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import inf
from typing import NamedTuple

from lib.errors import PuzzleError, RuleError, Sentences, TraceError
from lib.ledger.costs import CLASSIC, Costs
from lib.ledger.goal import Goal
from lib.ledger.lanes import computing, overlapped
from lib.ledger.meetings import OpIndex
from lib.ledger.trace import TIMED, Op, Trace, no_collection
from lib.ledger.values import Parked

from .family import family_of
from .memory import PeakContents, Profile, peak_contents, peak_moment, profile
from .notes import Note, notes_on, settled, steady_state_peak
from .recomputation import RankState, Recomputation
from .traffic import Calls, Cause, Traffic, drift, most_in_window, staleness, traffic, traffic_causes


class Peak(NamedTuple):
    """The most memory that a rank needs at once: elements, the rank, and the time in steps."""

    memory: int
    rank: int
    time: float


class RankReport(NamedTuple):
    """One rank: the share of the makespan in which it works, messages and bytes sent (ring-optimal, float32), and its
    memory in elements at each event and at the end."""

    busy: float
    messages: int
    bytes_sent: int
    memory: tuple[int, ...]


@dataclass(frozen=True, repr=False)
class Report:
    """The referee's findings. Times are in steps, memory in elements; measured as far as the trace is legal.

    `timesteps` is the start of the last event, `makespan` its end, `bubble` the idle share of all ranks' time, `span`
    the longest time from the start of a rank's first event to the end of its last one (as measured by Qi et al. 2024),
    `peaks` the most that a rank has parked on each memory tier, `copies` the number of copies of each layer's final
    weight, `critical_path` (rank, index of operation) pairs. `waits` has for each rank, by the index of an event that
    had to wait, the (rank, index) of the operation it waited for: a `pass_to`, or the same collective on the rank that
    arrived last. `contents` has every value of the peak, `family` is the kind of schedule (`lib.ledger.family`),
    `lasting_peak` the peak if training continued: loaded values count from the start, and messages until they are read.
    `sent` is what the ranks send, `drift` the most updates that a replica makes alone. `causes` say why the run sends
    too much or takes too long for its goal. `staleness` is the most steps by which weights were older than the data
    that they computed with.
    """

    error: PuzzleError | None
    goal: Goal | None
    timesteps: float
    makespan: float
    peak: Peak
    bubble: float
    ranks: tuple[RankReport, ...]
    copies: tuple[float, ...]
    critical_path: tuple[tuple[int, int], ...]
    notes: tuple[Note, ...]
    waits: tuple[Mapping[int, tuple[int, int]], ...]
    span: float
    peaks: Mapping[str, Peak]
    contents: PeakContents
    family: str
    lasting_peak: int
    sent: Traffic
    drift: int
    causes: tuple[Cause, ...] = ()
    costs: Costs = CLASSIC
    staleness: int = 0

    @property
    def status(self) -> str:
        """'failed', 'over_target' or 'passed'."""
        if self.error is not None:
            return "failed"
        met = self.meets_time and self.meets_memory and self.meets_host and self.meets_drift
        if self.goal is not None and self.goal.decides == "pass":
            met = met and self.meets_traffic and self.is_steady
        return "passed" if met else "over_target"

    @property
    def traffic(self) -> int:
        return self.sent.busiest

    @property
    def traffic_total(self) -> int:
        return self.sent.total

    @property
    def traffic_by_call(self) -> tuple[Calls, ...]:
        """The calls of the busiest rank by operation and line, most elements first."""
        return self.sent.by_call

    def wire(self, window: float) -> float:
        """The peak bandwidth: the most elements that a rank sends in any window of so many steps, where the elements of
        a call are spread evenly over its time.

        Raises: RuleError: the window is not a number more than 0.
        """
        if type(window) not in (int, float, Fraction) or not 0 < window < inf:
            raise RuleError(SAYS("no window", got=window))
        ticks = Fraction(str(window)) * self.costs.unit
        return float(max((most_in_window(spans, ticks) for spans in self.sent.spans), default=0))

    @property
    def is_steady(self) -> bool:
        """True if the goal has no steady peak, or the steady peak is met and the step can be repeated."""
        if self.goal is None or not self.goal.steady:
            return True
        return self.goal.meets_memory(self.lasting_peak) and not self.unrepeatable

    @property
    def second_step(self) -> str:
        """The peak if training continued, and the reason, if it is higher than the run's peak."""
        return next((note.text for note in self.notes if note.about == "steady"), "")

    @property
    def unrepeatable(self) -> tuple[Note, ...]:
        """The notes on ranks that end with fewer weights than they began with, if the goal has a steady peak."""
        if self.goal is None or not self.goal.steady:
            return ()
        return tuple(note for note in self.notes if note.about == "missing")

    @property
    def meets_traffic(self) -> bool:
        return self.goal is None or self.goal.meets_traffic(self.traffic)

    @property
    def meets_drift(self) -> bool:
        return self.goal is None or self.goal.meets_drift(self.drift)

    @property
    def meets_time(self) -> bool:
        return self.goal is None or self.goal.meets_time(self.timesteps)

    @property
    def meets_memory(self) -> bool:
        return self.goal is None or self.goal.meets_memory(self.peak.memory)

    @property
    def meets_host(self) -> bool:
        return self.goal is None or "host" not in self.peaks or self.goal.meets_host(self.peaks["host"].memory)

    @property
    def stars(self) -> int:
        """1: correct. 2: also meets every target that decides the pass. 3: also meets the other targets, no rival of
        the goal that meets them is better, and no note costs a star."""
        if self.status != "passed" or self.goal is None:
            return int(self.error is None)
        figures = (self.timesteps, self.peak.memory, self.traffic)
        beaten = any(rival.dominates(*figures) for rival in self.goal.rivals(self.family))
        noted = any(note.costs_a_star for note in self.notes)
        return 2 if beaten or noted or not (self.meets_traffic and self.is_steady) else 3

    def __repr__(self) -> str:
        sent = f", {self.traffic:,} sent" if self.traffic else ""
        return f"<Report: {self.status}, {self.costs.took(self.timesteps)}, peak memory {self.peak.memory:,}{sent}>"

    def verdict(self) -> str:
        """The verdict in a few lines for people."""
        if self.error is not None:
            return f"Not correct. {self.error}"
        lines = [
            f"Correct! {self.costs.took(self.timesteps)}, peak memory {self.peak.memory:,} "
            f"(rank {self.peak.rank} at t={self.peak.time:g})"
            f"{f', {self.traffic:,} elements sent' if self.traffic else ''}."
        ]
        return "\n".join(lines + [f"Note: {note.text}" for note in self.notes])


BYTES_PER_ELEMENT = 4


def referee(trace: Trace, goal: Goal | None = None) -> Report:
    """Judges a trace. With a `goal` the rules of a puzzle apply: no handmade values, and the puzzle's size.

    The report's `error` is the first violation of the rules, or None.
    """
    with no_collection():
        return _judge(trace, goal)


def _judge(trace: Trace, goal: Goal | None) -> Report:
    recomputation, error = Recomputation(trace, strict=goal is not None), None
    try:
        if goal is not None:
            _require_setting(trace, goal)
        recomputation.run()
    except PuzzleError as why:
        error = why
    ranks, costs = recomputation.ranks, trace.costs
    sizes = [[value.memory(costs) for value in state.values.values()] for state in ranks]  # by number: in that order
    profiles = [profile(state.liveness.lifetimes(), size) for state, size in zip(ranks, sizes)]
    events = [[state.ops[i] for i in state.events] for state in ranks]
    contents = peak_contents(ranks, profiles, trace.setting)
    lasting = [steady_state_peak(rank, size, prof) for rank, size, prof in zip(ranks, sizes, profiles)]
    spans = [_span(ops) for ops in events]
    makespan = max((end for _, _, end in spans), default=0)
    notes = notes_on(recomputation, lasting, profiles, contents) if any(state.at for state in ranks) else ()
    lasting_peak = max(contents.memory, *lasting)
    idle = overlapped(costs)
    working = [sum([op.end - op.start for op in ops if op.name not in idle]) for ops in events]
    peaks = {tier: _tier_peak(ranks, profiles, tier) for tier in costs.tiers}
    sent = traffic(recomputation)
    report = Report(
        error=error or _too_full(peaks, costs),
        goal=goal,
        timesteps=costs.steps(max((last for _, last, _ in spans), default=0)),
        makespan=costs.steps(makespan),
        peak=Peak(contents.memory, contents.rank, costs.steps(contents.tick)),
        bubble=1 - sum(working) / (makespan * len(events)) if makespan else 0.0,
        ranks=tuple(
            RankReport(
                busy / makespan if makespan else 0.0,
                len(state.all({"pass_to"})),
                sent.of(state.rank) * BYTES_PER_ELEMENT,
                tuple(prof.memory),
            )
            for busy, state, prof in zip(working, ranks, profiles)
        ),
        copies=_copies(ranks, trace.size.layers),
        critical_path=_critical_path(ranks, makespan, costs),
        notes=settled(notes) if goal is not None and goal.steady and goal.meets_memory(lasting_peak) else notes,
        waits=tuple(state.waited_for for state in ranks),
        span=costs.steps(max((end - first for first, _, end in spans), default=0)),
        peaks=peaks,
        contents=contents,
        family=family_of(ranks),
        lasting_peak=lasting_peak,
        sent=sent,
        drift=drift(ranks),
        costs=costs,
        staleness=staleness(ranks) if trace.setting.lag else 0,
    )
    return _explained(report, recomputation)


def _explained(report: Report, recomputation: Recomputation) -> Report:
    """The report with the causes of each figure that misses its goal."""
    if report.error is not None or report.goal is None:
        return report
    causes: tuple[Cause, ...] = ()
    if not (report.meets_traffic and report.meets_time):
        causes = traffic_causes(recomputation, recomputation.ranks[report.sent.rank])
    if report.meets_traffic:
        causes = tuple(cause for cause in causes if cause.takes_time)
    return replace(report, causes=causes) if causes else report


def _span(events: Sequence[Op]) -> tuple[int, int, int]:
    """The first start, the last start and the last end of a rank's events. A call may start later than events that
    follow it."""
    starts = [op.start for op in events]
    return (min(starts), max(starts), max([op.end for op in events])) if events else (0, 0, 0)


def _require_setting(trace: Trace, goal: Goal) -> None:
    if trace.size != goal.size:
        raise TraceError(SAYS("other size", size=trace.size, slug=goal.slug, goal_size=goal.size))
    if trace.costs != goal.costs:
        raise TraceError(SAYS("other costs", slug=goal.slug, costs=goal.costs.name))
    if others := trace.setting.differences(goal.setting):
        theirs = ", ".join(f"{name} {getattr(goal.setting, name)!r}" for name in others)
        raise TraceError(SAYS("other setting", slug=goal.slug, setting=theirs))


def _tier_peak(ranks: Sequence[RankState], profiles: Sequence[Profile], tier: str) -> Peak:
    """The most that a rank has on a tier at once: parked values that are stored or still to be fetched."""
    most = Peak(0, 0, 0.0)
    for state, prof in zip(ranks, profiles):
        values = [state.values[n] for n in range(len(state.values))]
        sizes = [v.size(state.costs) if isinstance(v, Parked) and v.tier == tier else 0 for v in values]
        on_tier = Profile(prof.lifetimes.sampled(prof.lifetimes.held, sizes), prof.lifetimes)
        if max(on_tier.memory) > most.memory:
            memory, _, tick = peak_moment(state, on_tier)
            most = Peak(memory, state.rank, state.costs.steps(tick))
    return most


def _too_full(peaks: Mapping[str, Peak], costs: Costs) -> PuzzleError | None:
    """The refusal of a tier that holds more than its capacity."""
    for tier, peak in peaks.items():
        capacity = costs.tiers[tier].capacity
        if capacity is not None and peak.memory > capacity:
            return RuleError(
                SAYS("tier full", rank=peak.rank, memory=peak.memory, tier=tier, time=peak.time, capacity=capacity)
            )
    return None


def _copies(ranks: Sequence[RankState], layers: int) -> tuple[float, ...]:
    copies = [0.0] * layers
    for state in ranks:
        for weight in state.final:
            copies[weight.layer] += len(weight.shards) / weight.total
    return tuple(copies)


def _critical_path(ranks: Sequence[RankState], makespan: int, costs: Costs) -> tuple[OpIndex, ...]:
    """The critical path: from the first event that ends last, back through the events that determined each start."""
    last = ((state.rank, i) for state in ranks for i in state.events if state.ops[i].end == makespan)
    event: OpIndex | None = next(last, None)
    path = []
    while event is not None:
        path.append(event)
        rank, i = event
        event = ranks[rank].causes[i] if i in ranks[rank].causes else _computed_before(ranks[rank], i, costs)
    return tuple(reversed(path))


def _computed_before(state: RankState, i: int, costs: Costs) -> OpIndex | None:
    """The event that kept a rank busy before an operation."""
    for before in range(i - 1, -1, -1):
        if state.ops[before].name in TIMED and computing(state.ops[before], costs):
            return state.rank, before
    return None


SAYS = Sentences(
    {
        "no window": "window must be a number of steps, more than 0; got {got!r:.60}",
        "other size": "this is a run of {size}; the puzzle {slug} is of {goal_size}",
        "other costs": "this run has other costs than the puzzle {slug}, whose are {costs}",
        "other setting": "this run has another setting than the puzzle {slug}, whose is {setting}",
        "tier full": "rank {rank} has {memory:,} elements on the {tier} at t={time:g}, but only {capacity:,} fit; delete a parked value first",
    }
)
