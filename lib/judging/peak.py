"""Explains a peak: every value charged at that moment, and when it is read again, if ever."""

from collections.abc import Sequence
from typing import NamedTuple

from lib.communication.lanes import clocks, computing
from lib.game.costs import Costs
from lib.game.setting import Setting
from lib.trace.ops import Op
from lib.values.base import Value
from lib.values.kinds import OptState, OuterState

from .memory import Profile
from .rank_state import RankState


class Item(NamedTuple):
    """One value that is charged at the peak.

    `fate` says when it is read: "now", by the event that starts at the peak; "later"; "awaited", by a pending call;
    "kept", only after the run (a final weight or its optimizer state); "never". `line` is the line that made it, 0 if
    unknown; `read` is the clock, in ticks, of the next operation that reads it, or None. `in_call` is True if it is not
    stored, and a pending call uses or makes it.
    """

    value: Value
    elements: int
    stored: bool
    fate: str
    line: int
    read: int | None
    in_call: bool = False


class PeakContents(NamedTuple):
    """The peak of a run: its elements, rank and time in ticks, the event that starts then (None: the end of the run),
    and the charged values. The elements of the items add up to `memory`."""

    memory: int
    rank: int
    tick: int
    event: Op | None
    items: tuple[Item, ...]
    setting: Setting

    @property
    def costs(self) -> Costs:
        return self.setting.costs


def peak_contents(ranks: Sequence[RankState], profiles: Sequence[Profile], setting: Setting) -> PeakContents:
    """The contents of a run's peak: the first moment with the most memory, on the first rank that reaches it."""
    peaks = [max(prof.memory) for prof in profiles]
    rank = peaks.index(max(peaks))
    return _contents(ranks[rank], profiles[rank], setting)


def _contents(state: RankState, prof: Profile, setting: Setting) -> PeakContents:
    ops, lives, costs = state.done, prof.lifetimes, setting.costs
    times = list(clocks(ops, costs))
    memory = max(prof.memory)
    sample = prof.memory.index(memory)
    at = lives.events[sample] if sample < len(lives.events) else lives.end
    event = ops[at] if at < lives.end else None
    tick = times[at] if event else max((ops[i].end for i in lives.events), default=0)
    stored = {number for number, after, until in lives.stored if after < at <= until}
    charged = [number for number, after, until in lives.held if after < at <= until]
    reads = _next_reads(ops, at)
    under_way = _under_way(ops[:at], costs)
    final = {number for op in ops[:at] if op.name in ("set_final_weight", "set_final_copy") for number in op.inputs}
    lines = {number: op.line for op in ops for number in op.outputs}
    items = []
    for number in charged:
        value, read = state.values[number], reads.get(number)
        if read is None:
            needed = number in final or _is_last_state(value, setting)
            fate, next_read = "kept" if needed else "never", None
        else:
            fate = "now" if read == at else "awaited" if ops[read].name == "await" else "later"
            next_read = times[read]
        in_call = number in under_way and number not in stored
        items.append(Item(value, value.memory(costs), number in stored, fate, lines[number], next_read, in_call))
    return PeakContents(memory, state.rank, tick, event, tuple(items), setting)


def _is_last_state(value: Value, setting: Setting) -> bool:
    """True for the optimizer state that belongs to a final weight."""
    first = setting.steps - setting.outer + 1 if isinstance(value, OuterState) else setting.steps
    return isinstance(value, OptState | OuterState) and value.step >= first


def _under_way(ops: Sequence[Op], costs: Costs) -> set[int]:
    """The numbers of values that calls use and make that are not awaited before the end of `ops`."""
    joined = {op.args[0] for op in ops if op.name == "await"}
    calls = [op for i, op in enumerate(ops) if i not in joined and not computing(op, costs)]
    return {number for op in calls for number in (*op.inputs, *op.outputs)}


def _next_reads(ops: Sequence[Op], at: int) -> dict[int, int]:
    """The first operation from `at` on that reads each value, by number."""
    reads: dict[int, int] = {}
    for i in range(at, len(ops)):
        for number in ops[i].inputs if ops[i].name != "store" else ():
            reads.setdefault(number, i)
    return reads
