"""Judges a trace: recomputes it, measures time, memory and bytes, and reports. Only the operations are trusted."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from operator import attrgetter

from lib.communication.calls import OpIndex
from lib.communication.lanes import clocks, computing, overlapped
from lib.errors import PuzzleError, RuleError, TraceError
from lib.game.costs import Costs
from lib.game.goal import Goal
from lib.trace.gc_pause import no_collection
from lib.trace.ops import TIMED, Op, Trace
from lib.values.kinds import Parked

from .family import family_of
from .memory import Profile, profile
from .notes import notes_on, settled, steady_state_peak
from .peak import peak_contents
from .rank_state import RankState
from .recompute import Recomputation
from .report import Peak, RankReport, Report
from .traffic import drift, staleness, traffic
from .traffic_causes import Cause, traffic_causes
from .words import SAYS

BYTES_PER_ELEMENT = 4


def referee(trace: Trace, goal: Goal | None = None) -> Report:
    """Judges a trace. With a `goal` the rules of a puzzle apply: no handmade values, and the puzzle's size.

    The report's `error` is the first violation of the rules, or None.
    """
    with no_collection():
        return _judge(trace, goal)


def _judge(trace: Trace, goal: Goal | None) -> Report:
    recomputation = Recomputation(trace, strict=goal is not None)
    error = _first_error(recomputation, goal)
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
    working = [_working(ops, costs) for ops in events]
    peaks = {tier: _tier_peak(ranks, profiles, costs, tier) for tier in costs.tiers}
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


_start, _end = attrgetter("start"), attrgetter("end")


def _span(events: Sequence[Op]) -> tuple[int, int, int]:
    """The first start, the last start and the last end of a rank's events. A call may start later than events that
    follow it."""
    starts = [op.start for op in events]
    return (min(starts), max(starts), max(map(_end, events))) if events else (0, 0, 0)


def _working(events: Sequence[Op], costs: Costs) -> int:
    if idle := overlapped(costs):
        events = [op for op in events if op.name not in idle]
    ticks: int = sum(map(_end, events)) - sum(map(_start, events))
    return ticks


def _first_error(recomputation: Recomputation, goal: Goal | None) -> PuzzleError | None:
    """The first violation of the rules. Checks the goal's size and costs, and re-executes the trace."""
    try:
        if goal is not None:
            _require_setting(recomputation.trace, goal)
        recomputation.run()
    except PuzzleError as why:
        return why
    return None


def _require_setting(trace: Trace, goal: Goal) -> None:
    if trace.size != goal.size:
        raise TraceError(SAYS("other size", size=trace.size, slug=goal.slug, goal_size=goal.size))
    if trace.costs != goal.costs:
        raise TraceError(SAYS("other costs", slug=goal.slug, costs=goal.costs.name))
    if others := trace.setting.differences(goal.setting):
        theirs = ", ".join(f"{name} {getattr(goal.setting, name)!r}" for name in others)
        raise TraceError(SAYS("other setting", slug=goal.slug, setting=theirs))


def _peak(ranks: Sequence[RankState], profiles: Sequence[Profile], costs: Costs) -> Peak:
    most = Peak(0, 0, 0.0)
    for state, prof in zip(ranks, profiles):
        memory = max(prof.memory)
        if memory > most.memory:
            i = prof.memory.index(memory)
            times = list(clocks(state.done, costs))
            end = max((state.ops[event].end for event in state.events), default=0)
            most = Peak(memory, state.rank, costs.steps(times[state.events[i]] if i < len(state.events) else end))
    return most


def _tier_peak(ranks: Sequence[RankState], profiles: Sequence[Profile], costs: Costs, tier: str) -> Peak:
    """The most that a rank has on a tier at once: parked values that are stored or still to be fetched."""
    on_tier = []
    for state, prof in zip(ranks, profiles):
        values = [state.values[n] for n in range(len(state.values))]
        sizes = [v.size(costs) if isinstance(v, Parked) and v.tier == tier else 0 for v in values]
        on_tier.append(Profile(prof.lifetimes.sampled(prof.lifetimes.held, sizes), prof.lifetimes))
    return _peak(ranks, on_tier, costs)


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
