"""How calls of several ranks meet: collectives of a group, and messages in mailboxes."""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Generic, TypeVar

from lib.game.costs import Costs
from lib.game.setting import Game
from lib.rules import collectives as rules
from lib.rules.collectives import Group
from lib.rules.rooted import ROOT_OF, results_of, root_in
from lib.trace.ops import call_text
from lib.values.base import Value

from .calls import Call, in_group

C = TypeVar("C")


class Meeting(Generic[C]):
    """The next collective of a group of ranks: which ranks have arrived, and with which call.

    A rank arrives with one call at a time, so no rank arrives at a group's next collective before this one is complete:
    the k-th call of every member meets the k-th of the others, and one meeting for each group is enough.
    """

    def __init__(self, members: Sequence[int]) -> None:
        self.members = tuple(members)
        self._calls: dict[int, C] = {}

    def arrive(self, rank: int, call: C) -> list[C] | None:
        """Adds a rank's call. The last rank gets all calls, in the order of the members, and the next meeting opens."""
        self._calls[rank] = call
        if len(self._calls) < len(self.members):
            return None
        calls, self._calls = self._calls, {}
        return [calls[member] for member in self.members]

    def withdraw(self, rank: int, call: C) -> None:
        """Takes a call back, if the rank is still waiting in it."""
        if self._calls.get(rank) is call:
            del self._calls[rank]

    def arrived(self) -> Mapping[int, C]:
        """The calls of the ranks that have arrived, by rank."""
        return self._calls

    def missing(self) -> tuple[int, ...]:
        """The ranks that have not arrived yet."""
        return tuple(rank for rank in self.members if rank not in self._calls)


class Meetings(Generic[C]):
    """The meetings of all groups. A group is a sorted tuple of ranks; None is the world, all ranks."""

    def __init__(self, ranks: int) -> None:
        self._of: dict[Group | None, Meeting[C]] = {None: Meeting(range(ranks))}

    def of(self, group: Group | None) -> Meeting[C]:
        """The next meeting of a group."""
        meeting = self._of.get(group)
        if meeting is None:
            assert group is not None
            meeting = self._of[group] = Meeting(group)
        return meeting

    def pending(self) -> Iterator[Meeting[C]]:
        """The meetings at which a rank has arrived, by the lowest such rank."""
        begun = [meeting for meeting in self._of.values() if meeting.arrived()]
        return iter(sorted(begun, key=lambda meeting: min(meeting.arrived())))


def results(calls: Sequence[Call], game: Game) -> list[tuple[Value, ...]]:
    """Applies the collective's rule to the inputs of all members, and returns the outputs of each member."""
    require_same_call(calls, bool(game.setting.mesh))
    first, rule, root = calls[0], rules.COLLECTIVE_RULES[calls[0].name], root_in(calls[0].name, calls[0].args)
    wanted = [call.batches for call in calls] if first.name in rules.REQUESTING else ()
    if root is None:
        columns = [rule([call.values[i] for call in calls], first.group, wanted) for i in range(len(first.values))]
        return list(zip(*columns))
    outputs = rule([value for call in calls for value in call.values], first.group, wanted)
    return [tuple(outputs[: results_of(call.name, 1, call.rank, root)]) for call in calls]


def ticks(calls: Sequence[Call], game: Game) -> int:
    """How long a collective takes for which these calls have met."""
    first, costs = calls[0], game.setting.costs
    items = max(map(_batches, calls)) if first.name in rules.ALL_TO_ALL else max(1, len(first.values))
    if costs.by_value:
        return costs.duration(first.name, items)
    elements = max(sum([value.memory(costs) for value in call.values]) for call in calls)
    return costs.transfer(first.name, items, elements, members_of(game, first.group))


def members_of(game: Game, group: Group | None) -> Group | range:
    """The ranks of a group, ascending; None is all."""
    return range(game.ranks) if group is None else group


def _batches(call: Call) -> int:
    """How many local batches a rank contributes to an all-to-all, or requests from it."""
    return len(call.batches) or len(call.values[0].batches)  # type: ignore[attr-defined]  # activations have batches


def message_ticks(name: str, values: Sequence[Value], costs: Costs, between: tuple[int, int]) -> int:
    """How long it takes to send or to receive a message of some values; one without values takes as long as one."""
    elements = 0 if costs.by_value else sum([value.memory(costs) for value in values])
    return costs.transfer(name, max(1, len(values)), elements, between)


def require_same_call(calls: Sequence[Call], has_groups: bool = False) -> None:
    """Refuses calls of one meeting that differ; also before all members have come. In a game with `has_groups` calls of
    all ranks may have forgotten their group.
    """
    forgotten = has_groups and calls[0].group is None
    heads = [(call.op.name, _layers(call), root_in(call.op.name, call.op.args)) for call in calls]
    rules.require_same_call(heads, lambda i: _described(calls[i]), "; or name a group" if forgotten else "")


def _layers(call: Call) -> tuple[int, ...]:
    values = call.values
    return (values[0].layer,) if len(values) == 1 else tuple([value.layer for value in values]) or (call.layer,)


def _described(call: Call) -> str:
    layers = _layers(call)
    called = call_text(call.name, layers[0]) if len(layers) == 1 else f"{call.name}(layers={list(layers)})"
    if call.name in ROOT_OF:
        called = f"{called[:-1]}, {ROOT_OF[call.name]}={root_in(call.name, call.args)})"
    return f"rank {call.rank}{in_group(call.group)} calls {called} on line {call.line}"


M = TypeVar("M")


class Mailboxes(Generic[M]):
    """A mailbox for each sender, receiver and tag, read in the order of sending.

    It holds one unread message, as a rendezvous protocol without a pool of buffers would; `bounded=False` is for
    transports that buffer everything. With tags two streams from one rank to another do not block each other.
    """

    def __init__(self, ranks: int, bounded: bool = True) -> None:
        self._bounded = bounded
        self._boxes: list[dict[tuple[int, int], deque[M]]] = [{} for _ in range(ranks)]

    def full(self, source: int, to: int, tag: int = 0) -> bool:
        """True while the next message must wait until one is taken."""
        return self._bounded and bool(self._boxes[to].get((source, tag)))

    def put(self, source: int, to: int, message: M, tag: int = 0) -> None:
        """Adds a message from `source`; its mailbox must not be full."""
        box = self._boxes[to].get((source, tag))
        if box is None:
            self._boxes[to][source, tag] = deque((message,))
        else:
            box.append(message)

    def first(self, source: int, to: int, tag: int = 0) -> M | None:
        """The message that would be taken next, if there is one."""
        box = self._boxes[to].get((source, tag))
        return box[0] if box else None

    def take(self, source: int, to: int, tag: int = 0) -> M:
        """Removes the oldest message."""
        return self._boxes[to][source, tag].popleft()

    def unread(self, to: int, tag: int | None = None) -> Iterator[tuple[int, M]]:
        """The messages for a rank, each with its sender; by sender and tag, then in the order of sending. With a `tag`,
        the messages with that tag only."""
        for (source, of), box in sorted(self._boxes[to].items()):
            if tag is None or of == tag:
                for message in box:
                    yield source, message
