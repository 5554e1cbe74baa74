"""How calls of several ranks meet: collectives of a group, and messages in mailboxes.

The k-th call of every member of a group meets the k-th of the others, as in MPI and NCCL. Calls that are matched by a
name would forgive ranks that call in different orders, which no real library does. A mailbox holds one message, as a
rendezvous protocol does; with a pool of buffers, a schedule that deadlocks elsewhere would pass here.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, Generic, NamedTuple, NoReturn, TypeVar

from lib.errors import MismatchError, PuzzleError, RuleError, Sentences
from lib.ledger import algebra
from lib.ledger import collectives as rules
from lib.ledger.algebra import counted
from lib.ledger.collectives import ROOT_OF, Group, group_text, results_of, root_in
from lib.ledger.costs import Costs
from lib.ledger.setting import Game
from lib.ledger.trace import Op, call_text
from lib.ledger.values import Value

# --- Ranks on the named axes of a mesh, and the groups of ranks that may meet ---
#
# The last axis changes fastest, as in a torch DeviceMesh: on {"dp": 2, "pp": 2, "tp": 2} rank 5 is dp 1, pp 0, tp 1.

Axes = tuple[tuple[str, int], ...]
"""The name and the length of each axis."""


def axes_of(mesh: Mapping[str, int] | Iterable[tuple[str, int]], ranks: int) -> Axes:
    """A mesh as a setting holds it."""
    given = mesh.items() if isinstance(mesh, Mapping) else mesh
    try:
        axes = tuple((name, algebra.whole_number(length, f"axis {name!r}", "mesh", least=1)) for name, length in given)
    except (TypeError, ValueError):
        raise RuleError(SAYS("no mesh lengths", got=mesh)) from None
    names = [name for name, _ in axes]
    if not all(isinstance(name, str) and name for name in names) or len(set(names)) < len(names):
        raise RuleError(SAYS("axes share a name", names=names))
    if axes and prod(length for _, length in axes) != ranks:
        product = prod(length for _, length in axes)
        lengths = " x ".join(str(length) for _, length in axes)
        are, counted_ranks = "is" if ranks == 1 else "are", counted(product, "rank")
        shape = f"{lengths} = " if len(axes) > 1 else ""
        raise RuleError(SAYS("other number of ranks", lengths=shape, product=counted_ranks, are=are, ranks=ranks))
    return axes


class Mesh:
    """The axes of a Dist of `ranks` ranks; none where the game has no groups."""

    def __init__(self, axes: Axes, ranks: int) -> None:
        self.axes = axes_of(axes, ranks)
        self.ranks = ranks
        self._stride: dict[str, int] = {}
        stride = 1
        for name, length in reversed(self.axes):
            self._stride[name], stride = stride, stride * length

    def index(self, rank: int, axis: object) -> int:
        """A rank's place on an axis."""
        name = self._known(axis)
        return rank // self._stride[name] % dict(self.axes)[name]

    def along(self, rank: int, names: Collection[object]) -> Group:
        """The ranks that are like `rank` on all other axes, itself among them, ascending."""
        group = [rank]
        for name in map(self._known, names):
            here, stride = self.index(rank, name), self._stride[name]
            group = [other + (i - here) * stride for other in group for i in range(dict(self.axes)[name])]
        return tuple(sorted(group))

    def group(self, rank: int, given: object) -> Group | None:
        """The group that a rank names: an axis, several axes, or ranks; None if those are all."""
        self.require()
        if isinstance(given, str):
            given = (given,)
        if not isinstance(given, Collection) or not given:
            raise RuleError(SAYS("no group", got=given))
        group = self._members(rank, tuple(given))
        self.require_member(rank, group)
        return None if len(group) == self.ranks else group

    def _members(self, rank: int, given: tuple[Any, ...]) -> Group:
        if all(isinstance(part, str) for part in given):
            if len(set(given)) < len(given):
                raise RuleError(SAYS("axis twice", axes=list(given)))
            return self.along(rank, given)
        ranks = [algebra.number(part, self.ranks, "rank") for part in given]
        if len(set(ranks)) < len(ranks):
            raise RuleError(SAYS("rank twice", ranks=sorted(ranks)))
        return tuple(sorted(ranks))

    def recorded(self, group: object) -> bool:
        """True if a trace may hold this as a group: some ranks, ascending, but not all."""
        return type(group) is tuple and list(group) == sorted({*group}) and {*group} < {*range(self.ranks)}

    def require(self) -> None:
        """Refuses groups where there is no mesh."""
        if not self.axes:
            raise RuleError(SAYS("no mesh"))

    @staticmethod
    def require_member(rank: int, group: Group) -> None:
        """Refuses a group without the rank that calls in it."""
        if rank not in group:
            raise RuleError(SAYS("not in this group", group=group_text(group)))

    def _known(self, name: object) -> str:
        if name not in self._stride:
            self.require()
            raise RuleError(SAYS("no such axis", axis=name, axes=", ".join((name for name, _ in self.axes))))
        assert isinstance(name, str)
        return name


# --- One rank's call ---

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
        raise RuleError(SAYS("result not awaited", result=self, this=self.unawaited))

    def __repr__(self) -> str:
        return f"result {self.n} of {self.call}"


def layer_of(part: Value | PendingValue) -> int:
    """The layer of an input. Outputs have the layers of the inputs."""
    return layer_of(part.call.inputs[part.n]) if isinstance(part, PendingValue) else part.layer


@dataclass(slots=True, eq=False)
class Call:
    """One rank's call. `at` is the index of its row, `clock` the rank's clock, `cause` the event that set it, and
    `inputs` its values, or outputs of other calls that are pending. A blocking call is on no lane: its rank awaits it
    at once."""

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
    last: OpIndex | None = None
    """The call of its meeting that was ready last."""
    refusal: PuzzleError | None = None
    lane: Lane | None = None
    """The lane that it is on, from when it is issued until it is settled."""
    payload: Any = None
    """In a run, what a `pass_to` sends."""

    @property
    def name(self) -> str:
        return self.op.name

    def __str__(self) -> str:
        return f"{self.op.call()}{in_group(self.group)} on line {self.op.line}"

    @property
    def place(self) -> OpIndex:
        return self.rank, self.at

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


IN_GROUP = " in the group "
"""Part of a call that names one."""


def in_group(group: Group | None) -> str:
    """' in the group of ranks 0-3'; nothing for the world."""
    return "" if group is None else f" in the group {group_text(group)}"


class Meetings:
    """The next collective of each group of ranks: which ranks have arrived, and with which call. A group is a sorted
    tuple of ranks; None is the world, all ranks.

    A rank arrives with one call at a time, so no rank arrives at a group's next collective before this one is complete:
    the k-th call of every member meets the k-th of the others, and one meeting for each group is enough.
    """

    def __init__(self, ranks: int) -> None:
        self._world = range(ranks)
        self._arrived: defaultdict[Group | None, dict[int, Call]] = defaultdict(dict)

    def arrive(self, call: Call) -> Sequence[Call]:
        """Adds a rank's call. The last rank gets all calls, in the order of the members, and the next meeting opens."""
        calls, members = self._arrived[call.group], self._members(call.group)
        calls[call.rank] = call
        if len(calls) < len(members):
            return ()
        self._arrived[call.group] = {}
        return [calls[member] for member in members]

    def withdraw(self, call: Call) -> None:
        """Takes a call back, if its rank is still waiting in it."""
        if self._arrived[call.group].get(call.rank) is call:
            del self._arrived[call.group][call.rank]

    def missing(self, group: Group | None) -> tuple[int, ...]:
        """The ranks that have not arrived yet."""
        return tuple(rank for rank in self._members(group) if rank not in self._arrived[group])

    def pending(self) -> list[list[Call]]:
        """The calls at each meeting that has begun, by rank; first the meeting at which the lowest rank has arrived."""
        begun = ([calls[rank] for rank in sorted(calls)] for calls in self._arrived.values() if calls)
        return sorted(begun, key=lambda calls: calls[0].rank)

    def _members(self, group: Group | None) -> Group | range:
        return self._world if group is None else group


def results(calls: Sequence[Call], game: Game) -> list[tuple[Value, ...]]:
    """Applies the collective's rule to the inputs of all members, and returns the outputs of each member."""
    require_same_call(calls, bool(game.setting.mesh))
    first, rule, root = calls[0], rules.COLLECTIVE_RULES[calls[0].name], root_in(calls[0].name, calls[0].op.args)
    wanted = [call.op.batches for call in calls] if first.name in rules.REQUESTING else ()
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
    return len(call.op.batches) or len(call.values[0].batches)  # type: ignore[attr-defined]  # activations have batches


def message_ticks(name: str, values: Sequence[Value], costs: Costs, between: tuple[int, int]) -> int:
    """How long it takes to send or to receive a message of some values; one without values takes as long as one."""
    elements = 0 if costs.by_value else sum([value.memory(costs) for value in values])
    return costs.transfer(name, max(1, len(values)), elements, between)


def require_same_call(calls: Sequence[Call], has_groups: bool = False) -> None:
    """Refuses calls of one meeting that differ in operation, layers of the values, or root; also before all members
    have come. In a game with `has_groups` calls of all ranks may have forgotten their group.
    """
    heads = [(call.op.name, _layers(call), root_in(call.op.name, call.op.args)) for call in calls]
    for call, head in zip(calls, heads):
        if head != heads[0]:
            otherwise = "; or name a group" if has_groups and call.group is None else ""
            raise MismatchError(
                SAYS("other calls", first=_described(calls[0]), other=_described(call), otherwise=otherwise)
            )


def _layers(call: Call) -> tuple[int | None, ...]:
    values = call.values
    return (values[0].layer,) if len(values) == 1 else tuple([value.layer for value in values]) or (call.op.layer,)


def _described(call: Call) -> str:
    layers = _layers(call)
    called = call_text(call.name, layers[0]) if len(layers) == 1 else f"{call.name}(layers={list(layers)})"
    if call.name in ROOT_OF:
        called = f"{called[:-1]}, {ROOT_OF[call.name]}={root_in(call.name, call.op.args)})"
    return f"rank {call.rank}{in_group(call.group)} calls {called} on line {call.op.line}"


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


SAYS = Sentences(
    {
        "other calls": "{first}, but {other}; every rank must make the same collective calls, on the same layers, in the same order{otherwise}",
        "no mesh lengths": "a mesh gives the length of each axis, such as {{'dp': 2, 'tp': 4}}; got {got!r}",
        "axes share a name": "a mesh needs a different name for each axis; got {names!r}",
        "other number of ranks": "the mesh has {lengths}{product}, but there {are} {ranks}; the lengths of its axes multiply to the number of ranks",
        "no group": "a group is an axis, a tuple of axes, or ranks such as [0, 2]; got {got!r}",
        "axis twice": "this group names an axis twice: {axes}; name it once",
        "rank twice": "this group names a rank twice: {ranks}; name it once",
        "no mesh": "a group needs a mesh, and this game has none; make one with Dist(8, mesh={{'dp': 4, 'tp': 2}})",
        "not in this group": "this rank is not in the group {group}; it can call collectives of its own groups only",
        "no such axis": "there is no axis {axis!r}; this Dist has {axes}",
        "result not awaited": "this is {this}",
    }
)
