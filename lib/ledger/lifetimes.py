"""Accounts for what a rank holds: which values are stored, and from when to when each must exist.

Liveness analysis of one rank's operations, as a compiler does it for a straight program, with one addition: a value
that is stored in a dictionary lives until it is deleted or replaced, used or not.

Stays are in indices of operations, not in time, so they are the same under all costs. How many elements a value has is
decided by its kind, and what is charged by `memory`. Records of storing, which are most of a trace, are checked in the
same pass.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, count
from typing import Any, NamedTuple, NoReturn

from lib.errors import Sentences, TraceError
from lib.ledger.values import HOLDS, HOLDS_TOO, Value

from .trace import NO_BATCHES, TIMED, Op

Span = tuple[int, int, int]
"""A value's number, and its stay in indices of operations: after which one it is there, and until which one, which
still has it. The end of the run is the index past the last operation."""


class Lifetimes(NamedTuple):
    """One rank's values by number, and the indices of its operations between which they exist.

    `made`: after which operation each is there, `until`: the last one that uses it, or the end of its storage, if that
    is later; of final weights the end. `stored`: the times in a dictionary. `kept_outside`: the values that were in no
    dictionary while an event went by. `stored_at_end`: those that are stored at the end.
    """

    end: int
    events: Sequence[int]
    made: Sequence[int]
    until: Sequence[int]
    stored: list[Span]
    kept_outside: list[int]
    stored_at_end: set[int]

    @property
    def held(self) -> Iterator[Span]:
        """The stay of every value."""
        return zip(count(), self.made, self.until)

    def sampled(self, spans: Iterable[Span], sizes: Sequence[int] | Mapping[int, int]) -> list[int]:
        """The sum of the `sizes`, by number, of the values there at the start of each event and, last, at the end.

        Between events nothing is sampled: what an operation makes is counted from the next event on.
        """
        changes = [0] * (self.end + 2)
        for number, after, until in spans:
            size = sizes[number]
            changes[after + 1] += size
            changes[until + 1] -= size
        sums = list(accumulate(changes))
        return [*map(sums.__getitem__, self.events), sums[self.end]]


def lifetimes(ops: Sequence[Op]) -> Lifetimes:
    """Follows one rank's operations once. They must number the values that they make in order from 0, store only what
    was made, and delete only what is stored."""
    liveness = Liveness(ops)
    liveness.advance(len(ops))
    return liveness.lifetimes()


NEVER = 1 << 62
"""Past the last operation."""


class Liveness:
    """One rank's values, as far as its operations have been followed.

    If all `values` are given, by number, each record of storing and deleting is checked: it takes no time, is of a
    value that is there, and a dictionary holds its own kind. The outputs of an operation named in `asynchronous`
    cannot be stored until they are awaited, and such an operation does not set the rank's clock.
    """

    def __init__(
        self, ops: Sequence[Op], values: Mapping[int, Value] | None = None, asynchronous: Collection[str] = ()
    ) -> None:
        self.ops = ops
        self.at = 0
        """The index of the next operation."""
        self.events: list[int] = []
        """Indices of the timed operations."""
        self.named: dict[str, list[int]] = defaultdict(list)
        """Indices of the operations by name, but for storing and deleting."""
        self.kept: dict[tuple[Any, Any], int] = {}
        """By name of a dictionary and key in it: the number of the value there."""
        self._values = values
        self._asynchronous = asynchronous
        self._pending: set[int] = set()
        """Numbers of the values that cannot be stored yet."""
        self._clock = 0
        self._final: set[int] = set()
        self._kept_outside: set[int] = set()
        self._stored: list[Span] = []
        # By number of a value:
        self._made: list[int] = []
        self._until: list[int] = []
        self._unstored_since: list[int] = []  # since when it has been outside the dictionaries; NEVER of a stored one
        self._since: dict[int, int] = {}  # of a stored one: since when
        self._extra_references: dict[int, int] = {}  # of one in several places: in how many more

    def advance(self, past: int) -> None:
        """Goes on, to the operation before `past`."""
        values, asynchronous, pending, clock = self._values, self._asynchronous, self._pending, self._clock
        named, kept, events, final, kept_outside = self.named, self.kept, self.events, self._final, self._kept_outside
        made, until, unstored_since, since, extra_references = (
            self._made,
            self._until,
            self._unstored_since,
            self._since,
            self._extra_references,
        )
        event, ops = events[-1] if events else -1, self.ops
        gone: int | None
        for i, (name, start, end, layer, batches, used, makes, place, _) in enumerate(ops[self.at : past], self.at):
            if name == "store" or name == "delete":
                if values is not None:
                    no_batches = batches is NO_BATCHES or batches == NO_BATCHES  # most often the same set
                    timeless = start == clock == end and layer is None and no_batches
                    if not timeless or makes != () or len(place) != 2 or type(used) is not tuple:
                        self._refuse(i, clock)
                if name == "delete":
                    if values is not None and (used != () or place not in kept):
                        self._refuse(i, clock)
                    gone = kept.pop(place)
                else:
                    (number,) = used
                    if values is not None:
                        kind = type(values.get(number))
                        right_kind = HOLDS.get(place[0]) is kind or HOLDS_TOO.get(kind) == place[0]  # type: ignore[arg-type]
                        if not right_kind or number >= len(made) or number in pending:
                            self._refuse(i, clock)
                    gone = kept.get(place)
                    kept[place] = number
                    if number in since:
                        extra_references[number] = extra_references.get(number, 0) + 1
                    else:
                        since[number] = i
                        if event > unstored_since[number]:
                            kept_outside.add(number)
                        unstored_since[number] = NEVER
                    if gone is None:
                        continue
                if extra_references and extra_references.get(gone, 0):
                    extra_references[gone] -= 1
                else:
                    self._stored.append((gone, since.pop(gone), i))
                    until[gone] = unstored_since[gone] = i
                continue
            named[name].append(i)
            if name == "await":
                # While it is pending, a call holds what it uses and makes; the player does not hide it.
                clock = end
                for number in used:
                    until[number] = i
                for number in ops[place[0]].outputs:
                    unstored_since[number] = i
                    kept_outside.discard(number)
                    pending.discard(number)
                continue
            for number in used:
                until[number] = i
                if event > unstored_since[number]:
                    kept_outside.add(number)
            for _ in makes:
                made.append(i)
                until.append(i)
                unstored_since.append(i)
            if name in TIMED:
                event = i
                events.append(i)
                if not asynchronous or name not in asynchronous:
                    clock = end
                else:
                    pending.update(makes)
            elif name == "set_final_weight" or name == "set_final_copy":
                final.update(used)
            elif asynchronous and name in asynchronous:
                pending.update(makes)
        self.at, self._clock = past, clock

    def _refuse(self, at: int, clock: int) -> NoReturn:
        self.at, self._clock = at, clock
        raise TraceError(SAYS("other storing", ops=self.ops[at]))

    def lifetimes(self) -> Lifetimes:
        """The lifetimes so far: what was followed, as if it was all."""
        until = self._until[:]
        stored_at_end = set(self.kept.values())
        for number in stored_at_end | self._final:
            until[number] = self.at
        stored = self._stored + [(number, self._since[number], self.at) for number in stored_at_end]
        kept_outside = sorted(self._kept_outside - self._final)
        return Lifetimes(self.at, self.events, self._made, until, stored, kept_outside, stored_at_end)


SAYS = Sentences(
    {
        "other storing": "this record does not store or delete as a run does: {ops}",
    }
)
