"""Predicts times, memory and traffic of a program from the written rules (docs/extended.md), without any code of `lib`.

A program is plain data: for each rank a list of acts, which become the rows of its trace. It may grow while it is
simulated: after each `add` every rank has gone on as far as it can.
"""

from collections import Counter, defaultdict, deque
from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

from .prices import COLLECTIVES, COPIES, EVENTS, LANES, PRODUCTS, ROOTED, Piece, Prices, sent

Place = tuple[int, int]
"""An act: its rank and its index."""

Lane = tuple[int, str, tuple[int, ...]]
"""A rank, a kind of lane, and the group that the lane is of."""


class Act(NamedTuple):
    """One operation of a rank. `uses` numbers the values that this rank has made or received, `makes` is what it makes.

    `peer` is the other rank of a message (None: from any) or the root of a collective, `call` the index of the act that
    `await` joins, `place` a dictionary and a key in it, `shard` a number and of how many; `whose` are the layers of a
    bucket.
    """

    name: str
    uses: tuple[int, ...] = ()
    makes: tuple[Piece, ...] = ()
    layer: int = 0
    batches: tuple[int, ...] = ()
    step: int = 0
    group: tuple[int, ...] = ()
    peer: int | None = None
    tag: int = 0
    call: int = -1
    place: tuple[str, int] = ("", 0)
    shard: tuple[int, int] = (0, 1)
    tier: str = ""
    whose: tuple[int, ...] = ()


class Simulation:
    """What becomes of a program. `times` has the start and the end of each act, by rank and index."""

    def __init__(self, ranks: int, prices: Prices, acts: Sequence[Sequence[Act]] = ()) -> None:
        self.prices = prices
        self.acts: list[list[Act]] = [[*of] for of in acts] or [[] for _ in range(ranks)]
        self.times: dict[Place, tuple[int, int]] = {}
        self.pieces: list[list[Piece]] = [[] for _ in range(ranks)]
        """By rank and number, the values that have been made, or will be by a call."""
        self.sent, self.messages = [0] * ranks, [0] * ranks
        self._maker: list[list[int]] = [[] for _ in range(ranks)]
        self._next, self._clock = [0] * ranks, [0] * ranks
        self._called: dict[Place, int] = {}
        self._lanes: dict[Lane, deque[Place]] = defaultdict(deque)
        self._free: dict[Lane, int] = defaultdict(int)
        self._times_called: Counter[object] = Counter()
        self._which: dict[Place, tuple[tuple[int, ...], int]] = {}
        self._come: dict[object, dict[int, tuple[int, int, Place, Lane]]] = defaultdict(dict)
        self._mail: dict[tuple[int, int, int], tuple[int, tuple[Piece, ...]]] = {}
        self._go_on()

    # --- The program, and where it stands ---

    def add(self, rank: int, act: Act) -> int:
        """Adds an act to a rank's program; returns its index."""
        self.acts[rank].append(act)
        self._go_on()
        return len(self.acts[rank]) - 1

    def ended(self, rank: int, at: int) -> bool:
        return (rank, at) in self.times

    def unread(self, source: int, to: int, tag: int) -> bool:
        """True if a message is in the mailbox, which holds one."""
        return (source, to, tag) in self._mail

    @property
    def stuck(self) -> list[int]:
        """The ranks that have not come to the end of their programs."""
        return [rank for rank, acts in enumerate(self.acts) if self._next[rank] < len(acts)]

    # --- Time ---

    def _go_on(self) -> None:
        while self._move() or self._receive_from_any():
            pass

    def _move(self) -> bool:
        moved = [self._advance(rank) for rank in range(len(self.acts))]
        return any(moved + [self._start(lane) for lane in [*self._lanes]])

    def _advance(self, rank: int) -> bool:
        first = self._next[rank]
        while self._next[rank] < len(self.acts[rank]) and self._do(rank, self.acts[rank][self._next[rank]]):
            self._next[rank] += 1
        return self._next[rank] > first

    def _do(self, rank: int, act: Act) -> bool:
        """Does a rank's next act; False if it has to wait."""
        place, clock = (rank, self._next[rank]), self._clock[rank]
        if act.name in LANES:
            if place not in self._called:
                self._issue(place, act)
            if self.prices.overlap:
                return True
            if place in self.times:
                self._clock[rank] = self.times[place][1]
            return place in self.times
        if act.name == "await":
            if (rank, act.call) not in self.times:
                return False
            end = max(clock, self.times[rank, act.call][1])
        elif act.name == "receive":
            return act.peer is not None and (act.peer, rank, act.tag) in self._mail and self._take(rank, act.peer)
        else:
            used = [self.pieces[rank][number] for number in act.uses]
            cut = [piece for piece in used if piece.kind == "weight" or (piece.kind != "wgrad" and piece.total > 1)]
            sized = cut and act.name in (*PRODUCTS, "loss")
            share = Fraction(len(cut[-1].shards), cut[-1].total) if sized else Fraction(1)
            end = clock + self.prices.computation(act.name, act.batches, share, rank, act.layer)
        self._make(place, act.makes)
        self.times[place] = clock, end
        self._clock[rank] = end
        return True

    def _take(self, rank: int, source: int) -> bool:
        """Receives a message that is there."""
        at, act = self._next[rank], self.acts[rank][self._next[rank]]
        end, pieces = self._mail.pop((source, rank, act.tag))
        self._make((rank, at), pieces)
        start = max(self._clock[rank], end)
        ticks = self.prices.communication("receive", max(1, len(pieces)), 0, (source, rank))
        self.times[rank, at] = start, start + ticks
        self._clock[rank] = start + ticks
        return True

    def _receive_from_any(self) -> bool:
        """When nobody can move, the earliest message goes to a rank that takes any."""
        offers = []
        for rank, acts in enumerate(self.acts):
            act = acts[self._next[rank]] if self._next[rank] < len(acts) else None
            if act is not None and act.name == "receive" and act.peer is None:
                for (source, to, tag), (end, _) in self._mail.items():
                    if (to, tag) == (rank, act.tag):
                        offers.append((max(self._clock[rank], end), end, source, rank))
        if not offers:
            return False
        *_, source, rank = min(offers)
        self._take(rank, source)
        self._next[rank] += 1
        return True

    def _make(self, place: Place, pieces: Sequence[Piece]) -> None:
        self.pieces[place[0]] += pieces
        self._maker[place[0]] += [place[1]] * len(pieces)

    def _issue(self, place: Place, act: Act) -> None:
        rank = place[0]
        self._make(place, act.makes)
        self._called[place] = self._clock[rank]
        self._lanes[self._lane(rank, act)].append(place)
        if act.name in COLLECTIVES:
            self._which[place] = act.group, self._times_called[rank, act.group]
            self._times_called[rank, act.group] += 1

    def _lane(self, rank: int, act: Act) -> Lane:
        """A rank's network has one lane for all, or one for each group; messages are on that of all ranks, or with one
        lane for each receiver."""
        group: tuple[int, ...] = ()
        if self.prices.lanes != "one" and act.name in COLLECTIVES and len(act.group) < len(self.acts):
            group = act.group
        if self.prices.lanes == "each" and act.name == "pass_to":
            return rank, f"messages to {act.peer}", ()
        return rank, LANES[act.name], group

    def _start(self, lane: Lane) -> bool:
        """Starts the first call of a lane, and those that it meets, if they can start."""
        if not self._lanes[lane]:
            return False
        rank, at = place = self._lanes[lane][0]
        act, ready = self.acts[rank][at], self._ready(place, lane)
        if ready is None:
            return False
        used = [self.pieces[rank][number] for number in act.uses]
        elements = sum(map(self.prices.elements, used))
        if act.name == "pass_to":
            assert act.peer is not None
            box = rank, act.peer, act.tag
            if box in self._mail:
                return False
            end = ready + self.prices.communication("pass_to", max(1, len(used)), elements, box[:2])
            self._mail[box] = end, tuple(used)
            self.messages[rank] += 1
        elif act.name in COLLECTIVES:
            come = self._come[self._which[place]]
            come[rank] = ready, elements, place, lane
            if len(come) < len(act.group):
                return False
            ready, elements = max(come.values())[0], max(elements for _, elements, *_ in come.values())
            items = max(1, len(used))
            if act.name in ("dispatch", "collect"):
                items = max(self._own_batches(place) for _, _, place, _ in come.values())
            end = ready + self.prices.communication(act.name, items, elements, act.group)
            for _, _, place, lane in come.values():
                self._settle(place, lane, ready, end)
            return True
        else:
            end = ready + self.prices.copy(act.name, act.tier, self.prices.elements(used[0]), used[0].tier)
        self._settle(place, lane, ready, end)
        return True

    def _ready(self, place: Place, lane: Lane) -> int | None:
        """From when on a rank is ready for the first call of a lane; None if what it uses has not been made."""
        rank, at = place
        ready = max(self._called[place], self._free[lane])
        for number in self.acts[rank][at].uses:
            maker = rank, self._maker[rank][number]
            if maker not in self.times:
                return None
            ready = max(ready, self.times[maker][1])
        return ready

    def _own_batches(self, place: Place) -> int:
        """The batches that a rank brings to an all-to-all, or asks for."""
        act = self.acts[place[0]][place[1]]
        return len(act.batches) or self.pieces[place[0]][act.uses[0]].batches

    def _settle(self, place: Place, lane: Lane, start: int, end: int) -> None:
        rank, at = self._lanes[lane].popleft()
        assert (rank, at) == place
        self.times[place], self._free[lane] = (start, end), end
        act = self.acts[rank][at]
        if act.name in ROOTED:
            (piece, *_) = [*(self.pieces[rank][i] for i in act.uses), *act.makes]
            self.sent[rank] += 0 if rank == self._end_of_chain(act) else self.prices.elements(piece)
        elif act.name not in COPIES:
            n = len(act.group) or 2
            self.sent[rank] += sum(sent(act.name, self.prices.elements(self.pieces[rank][i]), n) for i in act.uses)

    @staticmethod
    def _end_of_chain(act: Act) -> int:
        """The rank that sends nothing: the one before the source in the circle, or the one that gets the sum."""
        assert act.peer is not None
        return act.peer if act.name == "reduce" else act.group[act.group.index(act.peer) - 1]

    # --- Memory ---

    def events(self, rank: int) -> list[int]:
        """The indices of the acts that are events."""
        return [at for at, act in enumerate(self.acts[rank]) if act.name in EVENTS]

    def memory(self, rank: int, tier: str = "") -> list[int]:
        """Elements on a rank, or on its tier, when each event starts and at the end of the program.

        A value counts from after the act that makes it, to its last use, and while it is stored. What a call uses, its
        `await` uses too; final weights count to the end.
        """
        acts = self.acts[rank]
        until, final, stored = [*self._maker[rank]], set[int](), dict[object, int]()
        for at, act in enumerate(acts):
            if act.name in ("store", "delete"):
                if act.place in stored:
                    until[stored.pop(act.place)] = at
                if act.name == "store":
                    stored[act.place] = act.uses[0]
                continue
            for number in acts[act.call].uses if act.name == "await" else act.uses:
                until[number] = at
            if act.name == "set_final_weight":
                final |= {*act.uses}
        for number in final.union(stored.values()):
            until[number] = len(acts)
        sizes = [self.prices.elements(piece) if piece.tier == tier else 0 for piece in self.pieces[rank]]
        spans = [*zip(self._maker[rank], until, sizes)]
        moments = [*self.events(rank), len(acts)]
        return [sum(size for made, last, size in spans if made < at <= last) for at in moments]
