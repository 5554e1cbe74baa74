"""Executes the calls of a trace again where communication overlaps computation: what they make, and when they run."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lib.communication.deadlock_text import WaitingRank
from lib.communication.lanes import Call, Lanes, Made
from lib.communication.mailboxes import Mailboxes
from lib.communication.meetings import in_group, reach, results
from lib.errors import PuzzleError, RuleError, TraceError
from lib.game.costs import elements_sent
from lib.game.setting import Game
from lib.rules import operations
from lib.rules.collectives import COLLECTIVES, Group, asked
from lib.trace.ops import NO_BATCHES, Op, place_text
from lib.values.base import Value

from .rank_state import RankState
from .storing import refuse_under_way


class RetracedLanes(Lanes):
    """The calls under way of all ranks of a trace. `sent` says that a message lies in its mailbox, `wake` that a rank
    may go on."""

    def __init__(
        self,
        game: Game,
        ranks: Sequence[RankState],
        mailboxes: Mailboxes[int],
        sent: Callable[[RankState, Op], None],
        wake: Callable[[RankState], None],
    ) -> None:
        super().__init__(game)
        self._ranks = ranks
        self._mailboxes = mailboxes
        self._sent = sent
        self._wake = wake

    # --- The records of a rank ---

    def call(self, rank: RankState, op: Op, used: Sequence[Value], group: Group | None = None) -> None:
        """Issues the call that a record holds; its times are looked at when they are known."""
        if op.name == "pass_to":
            refuse_under_way(rank, op.used)
        first, made = len(rank.values), 0 if op.name == "pass_to" else len(used)
        numbers = (first,) if made == 1 else tuple(range(first, first + made))
        if op.made != numbers or op.batches != asked(self.game, op.name, op.batches):
            raise TraceError(f"it makes {made} values from number {first} on, of no batches; this record is {op}")
        brought: Sequence[Value | Made] = used
        if not rank.under_way.keys().isdisjoint(op.used):
            brought = [self._made(rank, number) or value for number, value in zip(op.used, used)]
        call = Call(rank.rank, rank.at, rank.clock, rank.came_from(), op, group, tuple(brought))
        rank.calls[rank.at] = call
        for number, value in zip(numbers, used):
            rank.values[number] = value
            rank.under_way[number] = call
        self.issue(call)

    @staticmethod
    def _made(rank: RankState, number: int) -> Made | None:
        call = rank.under_way.get(number)
        return None if call is None else Made(call, call.op.made.index(number))

    def join(self, rank: RankState, op: Op) -> bool:
        """Joins the call that a record of `await` names; False if it has not started yet."""
        (at,) = op.args
        call = rank.calls.get(at)
        if call is None:
            raise TraceError(
                f"operation {at} of this rank is not a call under way; a call is awaited once, after it was made"
            )
        if not call.settled:
            return False
        after = max(rank.clock, call.end)
        if op[1:-2] != (rank.clock, after, None, NO_BATCHES, call.op.used, ()):
            raise TraceError(
                f"it goes from tick {rank.clock} to {after} and uses {list(call.op.used)}, as {call.op.call()} does; "
                f"this record is {op}"
            )
        if after > rank.clock:
            rank.clock = after
            rank.cause = call.place
        del rank.calls[at]
        for number in call.op.made:
            del rank.under_way[number]
        return True

    # --- What becomes of the calls ---

    def perform(self, calls: Sequence[Call]) -> Sequence[tuple[Value, ...]] | None:
        first = calls[0]
        if first.name in COLLECTIVES:
            return results(calls, self.game)
        if first.name == "pass_to":
            return None if self._mailboxes.full(first.rank, *first.op.args) else [()]
        return [operations.LOCAL_RULES[first.name](self.game, first.op, first.values)]

    def settle(self, call: Call) -> None:
        rank, op = self._ranks[call.rank], call.op
        name, start, end, _, _, _, made, _, _ = op
        if start != call.start or end != call.end:
            why = TraceError(f"it takes place from tick {call.start} to {call.end}, not {start} to {end}")
            raise self._at(call, why)
        rank.causes[call.at] = call.cause
        rank.values.update(zip(made, call.made))
        members = len(reach(self.game, call.group))
        for value in call.values:
            rank.elements += elements_sent(name, value.memory(self.costs), members)
        if name == "pass_to":
            rank.messages += 1
            to, *tag = op.args
            self._mailboxes.put(call.rank, to, call.at, *tag)
            self._sent(rank, op)
        if rank.awaits(call.at):
            self._wake(rank)

    def refuse(self, calls: Sequence[Call], why: PuzzleError) -> None:
        raise self._at(min(calls, key=lambda call: (call.clock, call.rank)), why)

    def _at(self, call: Call, why: PuzzleError) -> PuzzleError:
        return why.at(place_text(call.rank, self.costs.text(call.clock), call.op.call()), call.line)

    # --- The end ---

    def refuse_unawaited(self) -> None:
        """Refuses a trace whose ranks have ended with calls that nobody awaited."""
        for rank in self._ranks:
            for call in rank.calls.values():
                why = RuleError(f"{call} was never awaited; await its handle before the end")
                raise why.at(rank.place("the end"), call.line)

    def waiting(self, rank: RankState) -> WaitingRank:
        """A rank that waits in `await`, for a deadlock message."""
        call = rank.calls[rank.op.args[0]]
        text = f"await {call.op.call()}{in_group(call.group)}"
        return WaitingRank(rank.rank, text, rank.op.line, *self.blockage(call))
