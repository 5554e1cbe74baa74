"""Lanes: communication that overlaps with a rank's computation, the calls of one lane one after the other.

A call is issued at its rank's clock and joined by `await`. It starts when every member of its group has issued it, the
call before it on each member's lane has ended, and its inputs exist; the rank computes on meanwhile. All of this is a
maximum of sums, so no figure depends on the order in which ranks are started or visited.

Two decisions, from what `work = dist.all_gather(..., async_op=True); work.wait()` does in PyTorch:
- What a call makes may be brought to another call before it is awaited: its handle is passed instead of a value. As on
  a stream, the second call starts after the first has ended, and the rank's clock does not move. That is how a
  reduce-scatter within a machine is followed by an all-reduce between machines (hybrid sharding). Every handle is still
  awaited once, since `wait` is what lets the buffers go.
- A rank has one lane for the calls of all groups, since they share a link: two lanes would give each the whole of it.
  Programs that call the collectives of two groups in different orders deadlock, which NCCL warns of as well. Where
  groups do have links of their own (tensor parallelism inside a machine, data parallelism between machines), costs with
  `lanes="group"` have a lane for each group, as NCCL has a stream for each process group, and with "each"
  also one for the messages to every rank. Copies to and from a tier always have lanes of their own.

Shared by the live run and the referee, each with its own lanes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, NoReturn

from lib.errors import PuzzleError, RuleError
from lib.game.costs import Costs
from lib.game.setting import Game
from lib.game.tiers import ON_TIER
from lib.rules import memory_tiers, operations
from lib.rules.collectives import COLLECTIVES, Group, require_contribution
from lib.trace.ops import Op
from lib.values.algebra import named
from lib.values.base import Value

from .meetings import Meetings, in_group, message_ticks, results
from .meetings import ticks as collective_ticks

LANES: Mapping[str, str] = {
    **dict.fromkeys(COLLECTIVES, "network"),
    "pass_to": "network",
    "offload": "down",
    "fetch": "up",
    "move": "between tiers",
    "tier_update": "processor",
}
"""The kind of lane of each operation that overlaps with computation, where costs have `overlap`."""

OpIndex = tuple[int, int]
"""An operation: its rank, and its index there."""


class PendingValue(NamedTuple):
    """What an earlier call of the same rank will have made: the n-th of its results."""

    call: Call
    n: int

    @property
    def number(self) -> int:
        return self.call.op.outputs[self.n]

    @property
    def unawaited(self) -> str:
        """What a message says of it in place of a value."""
        return f"result {self.n} of {self.call}, which is still pending; await its handle first"

    def __await__(self) -> NoReturn:
        raise RuleError(f"this is {self.unawaited}")

    def __repr__(self) -> str:
        return f"result {self.n} of {self.call}"


def layer_of(part: Value | PendingValue) -> int:
    """The layer of an input. Outputs have the layers of the inputs."""
    return layer_of(part.call.inputs[part.n]) if isinstance(part, PendingValue) else part.layer


@dataclass(slots=True, eq=False)
class Call:
    """One rank's call. `at` is the index of its row, `clock` the rank's clock, `cause` the event that set it, and
    `inputs` its values, or outputs of other calls that are pending."""

    rank: int
    at: int
    clock: int
    cause: OpIndex | None
    op: Op
    group: Group | None
    inputs: tuple[Value | PendingValue, ...]
    values: tuple[Value, ...] = ()
    """The values of its inputs, known when it is first on its lane."""
    outputs: tuple[Value, ...] = ()
    start: int = -1
    end: int = -1
    """Known when it is settled; -1 before."""
    refusal: PuzzleError | None = None
    lane: Lane | None = None
    """The lane that it is on, from when it is issued until it is settled."""

    @property
    def name(self) -> str:
        return self.op.name

    @property
    def layer(self) -> Any:
        return self.op.layer

    @property
    def args(self) -> tuple[Any, ...]:
        return self.op.args

    @property
    def line(self) -> int:
        return self.op.line

    def __str__(self) -> str:
        return f"{self.op.call()}{in_group(self.group)} on line {self.line}"

    @property
    def batches(self) -> frozenset[int]:
        return self.op.batches

    @property
    def place(self) -> OpIndex:
        return self.rank, self.at

    @property
    def settled(self) -> bool:
        return self.end >= 0

    def ready(self) -> bool:
        """Resolves the inputs; False while one of them is pending."""
        if not self.values:
            values = []
            for part in self.inputs:
                if type(part) is PendingValue:
                    if part.call.end < 0:
                        return False
                    part = part.call.outputs[part.n]
                values.append(part)
            self.values = tuple(values)  # type: ignore[arg-type]  # no PendingValue is left
        return True


@dataclass(slots=True, eq=False)
class Lane:
    """The calls of one rank that run one after the other: those that have not ended, and the one before them."""

    calls: deque[Call] = field(default_factory=deque)
    last: Call | None = None

    @property
    def head(self) -> Call | None:
        """The call that holds the lane, if there is one."""
        return self.calls[0] if self.calls else None


def overlapped(costs: Costs) -> Collection[str]:
    """The operations that overlap with computation: those with a lane, where costs have `overlap`."""
    return LANES if costs.overlap else ()


def computing(op: Op, costs: Costs) -> bool:
    """True if an event keeps its rank busy: not if it runs on a lane."""
    return op.name not in overlapped(costs)


def clocks(ops: Iterable[Op], costs: Costs) -> Iterator[int]:
    """One rank's clock at each of its operations, in ticks: when an operation starts, or when a call is made."""
    clock, lanes = 0, overlapped(costs)
    for op in ops:
        if op.name not in lanes:
            yield op.start
            clock = op.end
        else:
            yield clock


class Lanes:
    """The pending calls on the lanes of all ranks. Subclasses say what follows when a call is settled or refused."""

    def __init__(self, game: Game, ranks: int) -> None:
        self.game = game
        self.costs = game.setting.costs
        self.meetings: Meetings[Any] = Meetings(ranks)
        self._lanes: list[dict[tuple[str, Group | None], Lane]] = [{} for _ in range(ranks)]
        """For each rank its lanes by their kind, and by the group that they are of where groups have their own."""

    def full(self, call: Call) -> bool:
        """True while a `pass_to` must wait until the message before it is read."""
        raise NotImplementedError

    def settle(self, call: Call) -> None:
        """Notes that a call's start, end and results are known; `cause` is by now what set its start."""
        raise NotImplementedError

    def refuse(self, calls: Sequence[Call], why: PuzzleError) -> None:
        """Notes that calls do not fit together: they, and the calls behind them, never start."""
        raise NotImplementedError

    def issue(self, call: Call) -> None:
        """Puts a call on its lane, and settles whatever can be settled now."""
        lanes, which = self._lanes[call.rank], self._which(call)
        lane = call.lane = lanes.get(which) or lanes.setdefault(which, Lane())
        lane.calls.append(call)
        if lane.calls[0] is call:
            self._settle_from([call])

    def retry(self, rank: int) -> None:
        """Settles what can be settled now that a waiting call of a rank can go on."""
        self._settle_from(self._heads(rank))

    def _which(self, call: Call) -> tuple[str, Group | None]:
        """The kind of a call's lane, and the group that the lane is of."""
        if self.costs.lanes == "each" and call.op.name == "pass_to":
            return f"to rank {call.op.args[0]}", None
        return LANES[call.op.name], None if self.costs.lanes == "one" else call.group

    def _heads(self, rank: int) -> list[Call]:
        return [lane.calls[0] for lane in self._lanes[rank].values() if lane.calls]

    def _settle_from(self, heads: list[Call]) -> None:
        for call in heads:  # which become more
            if call.end >= 0 or call.refusal is not None or not call.ready():
                continue
            calls: Sequence[Call] = [call]
            try:
                calls = self._together(call)
                made = self.perform(calls) if calls else None
            except PuzzleError as why:
                for member in calls:
                    member.refusal = why
                self.refuse(calls, why)
                continue
            if made is not None:
                self._settle(calls, made)
                for member in calls:
                    heads += self._heads(member.rank)

    def _together(self, call: Call) -> Sequence[Call]:
        """The calls that a call starts with, if they are all at the head of their lanes."""
        if call.op.name not in COLLECTIVES:
            return [call]
        self.require_inputs(call)
        return self.meetings.of(call.group).arrive(call.rank, call) or ()

    def require_inputs(self, call: Call) -> None:
        """Refuses a collective that is first on its lane, if what an earlier call has made may not take part."""
        for part, value in zip(call.inputs, call.values):
            if type(part) is PendingValue:
                require_contribution(self.game, call.name, value)

    def perform(self, calls: Sequence[Call]) -> Sequence[tuple[Value, ...]] | None:
        """What each of some calls that belong together makes; None if a call must wait."""
        first = calls[0]
        if first.name in COLLECTIVES:
            return results(calls, self.game)
        if first.name == "pass_to":
            return None if self.full(first) else [()]
        return [operations.LOCAL_RULES[first.name](self.game, first.op, first.values)]

    def _settle(self, calls: Sequence[Call], made: Sequence[tuple[Value, ...]]) -> None:
        start, cause = self._ready_at(calls[0])
        for call in calls[1:]:
            ready, by = self._ready_at(call)
            if ready > start:
                start, cause = ready, by
        end = start + self.ticks(calls, made)
        for call, values in zip(calls, made):
            call.start, call.end, call.cause, call.outputs = start, end, cause, values
            lane, call.lane = call.lane, None
            assert lane is not None
            lane.last = lane.calls.popleft()
        for call in calls:
            self.settle(call)

    def _ready_at(self, call: Call) -> tuple[int, OpIndex | None]:
        """The tick from which on a rank is ready for a call, and the event that set it."""
        ready, by = call.clock, call.cause
        before = call.lane.last if call.lane else None
        if before is not None and before.end > ready:
            ready, by = before.end, before.place
        for part in call.inputs:
            if type(part) is PendingValue and part.call.end > ready:
                ready, by = part.call.end, part.call.place
        return ready, by

    def ticks(self, calls: Sequence[Call], made: Sequence[tuple[Value, ...]]) -> int:
        """How long calls take that belong together."""
        first = calls[0]
        if first.name in ON_TIER:
            return memory_tiers.ticks(self.costs, first.name, made[0], first.values)
        if first.name in COLLECTIVES:
            return collective_ticks(calls, self.game)
        return message_ticks(first.name, first.values, self.costs, (first.rank, *first.op.args[:1]))

    def refusal_of(self, call: Call) -> PuzzleError | None:
        """The refusal, of a call before it or of what makes what they use, because of which a call will never start."""
        waiting, seen = [call], set[Call]()
        for one in waiting:  # which become more
            head = one.lane.head if one.lane else None
            if head is None or head in seen:
                continue
            if head.refusal is not None:
                return head.refusal
            seen.add(head)
            waiting += [part.call for part in head.inputs if type(part) is PendingValue]
        return None

    def why_blocked(self, call: Call) -> tuple[str, tuple[int, ...], str]:
        """Why a call that was issued does not start: the kind of wait, the ranks it is for, and the words."""
        assert call.lane is not None
        head = call.lane.calls[0]
        held = "" if head is call else f"behind {head}, which waits "
        if not head.ready():
            before = next(part.call for part in head.inputs if type(part) is PendingValue and not part.call.settled)
            return "lane", (call.rank,), f"{held}for what {before} makes"
        if head.name == "pass_to":
            return "post", head.op.args[:1], f"{held}until rank {head.op.args[0]} reads the message before it"
        missing = self.meetings.of(head.group).missing()
        lanes = {rank: self._lanes[rank].get(self._which(call)) for rank in missing}
        theirs = {rank: lane and lane.head for rank, lane in lanes.items()}
        if not any(theirs.values()):
            return "collective", missing, f"{held}for {named('rank', missing)}"
        ranks = [f"rank {rank}{f', whose lane is held by {by}' if by else ''}" for rank, by in theirs.items()]
        return "lane", missing, f"{held}for {', and for '.join(ranks)}"
