"""The state of one rank during recomputation, and the checks that every record passes."""

from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, field
from itertools import chain

from lib.communication.calls import OpIndex
from lib.communication.lanes import overlapped
from lib.communication.walk import Cursor
from lib.errors import PuzzleError, TraceError
from lib.game.costs import CLASSIC, PAIR, Costs
from lib.rules.outer import USES_A_WEIGHT
from lib.trace.lifetimes import Liveness
from lib.trace.ops import NO_BATCHES, TIMED, Op, halves, place_text
from lib.values.base import Value
from lib.values.kinds import Activation, Parked, Weight

from .words import SAYS

USING_WEIGHTS = {*USES_A_WEIGHT, "tier_update", PAIR}

MALFORMED = (TypeError, ValueError, AttributeError)
"""The exceptions that a record with columns of the wrong types can cause."""


@dataclass(slots=True, eq=False)
class RankState(Cursor):
    """One rank of the trace, as far as it has been re-executed."""

    costs: Costs = CLASSIC
    strict: bool = False
    """Refuses values that no operation has made."""
    values: dict[int, Value] = field(default_factory=dict)
    liveness: Liveness = field(init=False)
    """Stored values, and how long values are needed; it is advanced only when needed."""
    final: list[Weight] = field(default_factory=list)
    copies: list[Weight] = field(default_factory=list)
    """The weights that `set_final_copy` has declared."""
    outputs: list[Activation] = field(default_factory=list)
    handmade: set[int] = field(default_factory=set)
    """Numbers of values that were made by hand or by a model of another Dist."""
    read: dict[int, int] = field(default_factory=dict)
    """By index of a pass_to: the tick at which its message is received."""
    waited_for: dict[int, OpIndex] = field(default_factory=dict)
    """By index of an event that had to wait: the rank and index of the operation for which it waited."""
    causes: dict[int, OpIndex | None] = field(default_factory=dict)
    """By index of an event: the event whose end determined its start, if not the preceding computation."""
    cause: OpIndex | None = None
    """The event that set the clock, if not the preceding computation."""
    computed: int = -1
    """The index of the last event that kept this rank busy."""

    def __post_init__(self) -> None:
        self.liveness = Liveness(self.ops, self.values, {*overlapped(self.costs), *(("given",) if self.strict else ())})

    @property
    def done(self) -> Sequence[Op]:
        """The operations that have been executed."""
        return self.ops[: self.at]

    def used(self, op: Op) -> list[Value]:
        return [self.values[number] for number in op.inputs]

    def all(self, names: Set[str]) -> list[Op]:
        """The executed operations with one of the names, in their order."""
        ops, named = self.ops, self.named
        places = [named[name] for name in names & named.keys()]
        return [ops[i] for i in (places[0] if len(places) == 1 else sorted(chain(*places)))]

    @property
    def events(self) -> list[int]:
        """Indices of the timed operations up to which storage has been followed."""
        return self.liveness.events

    @property
    def named(self) -> dict[str, list[int]]:
        """All operations by name, except storing and deleting."""
        return self.liveness.named

    def parked(self) -> list[Parked]:
        """The values in `model.parked`, each once."""
        self.liveness.advance(self.at)
        numbers = {number for (where, _), number in self.liveness.kept.items() if where == "parked"}
        return [value for value in map(self.values.__getitem__, sorted(numbers)) if isinstance(value, Parked)]

    def last_event(self) -> OpIndex | None:
        """The event that set the clock."""
        if self.cause is not None or self.computed < 0:
            return self.cause
        return self.rank, self.computed

    def place(self, call: str) -> str:
        """The current place of a refusal on this rank."""
        return place_text(self.rank, self.costs.text(self.clock), call)


def placed(why: Exception, rank: RankState) -> PuzzleError:
    """The refusal of a rank's next operation, with its place added if it has none."""
    if not isinstance(why, PuzzleError):
        problem = SAYS("senseless record", why=why, record=rank.op)
        return TraceError(problem, rank.place(f"operation {rank.at}"))
    return why if why.place else why.at(rank.place(rank.op.call()), rank.op.line)


def confirm(
    rank: RankState,
    op: Op,
    values: Sequence[Value],
    start: int,
    ticks: int,
    batches: frozenset[int] = NO_BATCHES,
) -> None:
    """Checks the derived columns of a record, and adopts the values and the clock that they confirm."""
    name, its_batches, numbers, end = op.name, op.batches, op.outputs, start + ticks
    if op.start != start or op.end != end:
        raise TraceError(SAYS("other ticks", start=start, end=end, op_start=op.start, op_end=op.end))
    if its_batches is not batches and its_batches != batches:
        raise TraceError(SAYS("other batches", batches=sorted(batches), its_batches=sorted(its_batches)))
    if values or numbers != ():
        first = len(rank.values)
        expected = (first,) if len(values) == 1 else tuple(range(first, first + len(values)))
        if numbers != expected:
            raise TraceError(SAYS("other values", values=len(values), first=first, numbers=list(numbers)))
        for number, value in zip(expected, values):
            rank.values[number] = value
    at = rank.at
    if name in TIMED:
        rank.computed = at
        if rank.cause is not None:
            rank.causes[at], rank.cause = rank.cause, None
        rank.clock = end


def uses_of_weights(ranks: Iterable[RankState]) -> Iterator[tuple[str, list[Value]]]:
    """Each operation that computes with a weight or updates it, on a device or a tier, with the values it uses."""
    for rank in ranks:
        for op in rank.done:
            for part in halves(op) if op.name in USING_WEIGHTS else ():
                yield part.name.removeprefix("tier_"), [unparked(value) for value in rank.used(part)]


def unparked(value: Value) -> Value:
    return value.value if isinstance(value, Parked) else value
