"""The referee's findings in a run: its figures, and how they compare with the goal."""

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import inf
from typing import NamedTuple

from lib.errors import PuzzleError, RuleError
from lib.game.costs import CLASSIC, Costs
from lib.game.goal import Goal

from .notes import Note
from .peak import PeakContents
from .traffic import Calls, Traffic, most_in_window
from .traffic_causes import Cause
from .words import SAYS


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
    arrived last. `contents` has every value of the peak, `family` is the kind of schedule (`lib.judging.family`),
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
    def traffic_between(self) -> int:
        """The most elements that a rank sends in groups of several machines."""
        return self.sent.between

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
