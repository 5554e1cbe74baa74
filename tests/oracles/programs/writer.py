"""Writes random legal programs: each microbatch, reduction and further exchange is a task, which others interrupt.

Chance picks whose turn it is, so each rank gets its acts in another order every time. A collective is written for all
of its group at once, and a rank waits only for what has happened in the simulation: so every program runs to its end.
"""

from collections import defaultdict, deque
from collections.abc import Generator, Mapping, Sequence
from itertools import product
from random import Random
from typing import Any, NamedTuple, TypeVar

from .prices import PRODUCTS, Piece, Prices, random_prices, unequal
from .simulation import Act, Simulation

T = TypeVar("T")

Task = Generator[None, None, T]
"""It yields where others may go on before it does."""

AXES = ("out", "in", "pp", "tp")
"""Of replicas in two ways, of stages, and of shards of a layer."""

MESHES = (
    *((1, 1, 1, 1), (1, 1, 2, 1), (1, 1, 1, 2), (1, 3, 1, 1), (1, 1, 3, 1), (1, 1, 1, 3), (2, 2, 1, 1), (2, 1, 2, 1)),
    *((1, 2, 2, 1), (1, 2, 1, 2), (2, 1, 1, 2), (1, 1, 2, 2), (1, 3, 2, 1), (2, 2, 1, 2)),
)

HOLDS = {
    **{"weight": "weights", "state": "opt_states", "wgrad": "grad_weights", "norm": "grad_weights"},
    **{"act": "activations", "grad": "grad_activations"},
}


class Program(NamedTuple):
    """The size and the setting of a game, and what each rank does."""

    size: tuple[int, int, int]
    mesh: Mapping[str, int]
    steps: int
    layer: str
    prices: Prices
    lag: int
    clip: bool
    frozen: tuple[int, ...]
    whole: bool
    acts: Sequence[Sequence[Act]]


class Writer:
    """A program that is being written; what all tasks are made of."""

    def __init__(self, choice: Random, frozen: bool = False, whole: bool = False) -> None:
        self.choice, self.whole = choice, whole
        meshes = [mesh for mesh in MESHES[: choice.choice((8, 14))] if not whole or mesh[-1] == 1]
        self.mesh = dict(zip(AXES, choice.choice(meshes)))
        self.places = [*product(*map(range, self.mesh.values()))]
        self.ranks, self.cut = len(self.places), self.mesh["tp"]
        self.layers, self.batches = choice.choice((2, 2, 3) if frozen else (1, 1, 2, 3)), choice.randint(1, 3)
        self.steps = choice.choice((1, 1, 1, 2, 3))
        self.kind = "block" if self.cut > 1 else choice.choice(("dense", "block", "experts"))
        self.prices = random_prices(choice)
        if self.kind == "dense" and choice.random() < 0.5:
            self.prices = unequal(choice, self.prices, self.layers, self.batches, self.ranks)
        self.lag = choice.randrange(3) if self.steps > 1 and not frozen else 0
        """Weights may be so many steps older than the data."""
        self.frozen = (
            tuple(sorted(choice.sample(range(self.layers), choice.randrange(1, self.layers)))) if frozen else ()
        )
        self.first = min(layer for layer in range(self.layers) if layer not in self.frozen)
        """The first layer that is trained: nothing below it has a gradient."""
        self.clip = False
        """Updates scale gradients by the norm of all."""
        self.simulation = Simulation(self.ranks, self.prices)
        self.tasks: list[Task[None]] = []
        self.first_tag = choice.randrange(2)
        """With 1, messages without a tag are left to receives from any rank."""
        self._idle = 0
        """The turns since an act was written."""
        self._sends: dict[tuple[int, int, int], deque[int]] = defaultdict(deque)
        self._stored: dict[tuple[int, int], tuple[str, int]] = {}

    def written(self) -> Program:
        """The program, when all tasks are done."""
        while self.tasks:
            task, self._idle = self.choice.choice(self.tasks), self._idle + 1
            if next(task, "over") == "over":
                self.tasks.remove(task)
            assert self._idle < 10_000, "these tasks wait for each other"
        size = self.layers, self.batches, self.ranks
        more = self.lag, self.clip, self.frozen, self.whole
        return Program(size, self.mesh, self.steps, self.kind, self.prices, *more, self.simulation.acts)

    def late(self, task: Task[None]) -> None:
        """Has a task done some time."""

        def after_a_while() -> Task[None]:
            yield from self.idle(12)
            yield from task

        self.tasks.append(after_a_while())

    def idle(self, most: int) -> Task[None]:
        """Lets others go on, up to so many times."""
        for _ in range(self.choice.randint(1, most)):
            yield

    def along(self, rank: int, axes: Sequence[str]) -> tuple[int, ...]:
        """The ranks that differ from one on these axes only."""
        same = [i for i, axis in enumerate(AXES) if axis not in axes]
        return tuple(r for r, at in enumerate(self.places) if all(at[i] == self.places[rank][i] for i in same))

    def piece(self, rank: int, number: int) -> Piece:
        return self.simulation.pieces[rank][number]

    def do(self, rank: int, name: str, *uses: int, makes: Sequence[Piece] = (), **more: Any) -> list[int]:
        """Writes an act; returns the numbers of what it makes."""
        first = len(self.simulation.pieces[rank])
        if name in MAKERS:
            makes = [_placed(piece, name, **more) for piece in makes]
        self.simulation.add(rank, Act(name, uses, tuple(makes), **more))
        self._idle = 0
        return [*range(first, first + len(makes))]

    def keep(self, rank: int, number: int) -> int:
        """Stores a value, perhaps."""
        if self.choice.random() < 0.3:
            piece = self.piece(rank, number)
            self._stored[rank, number] = place = "parked" if piece.tier else HOLDS[piece.kind], number
            self.do(rank, "store", number, place=place)
        return number

    def drop(self, rank: int, number: int) -> None:
        """Deletes a value, if it is stored; seldom not."""
        if (rank, number) in self._stored and self.choice.random() < 0.9:
            self.do(rank, "delete", place=self._stored.pop((rank, number)))

    # --- Calls ---

    def call(self, rank: int, name: str, *uses: int, **more: Any) -> tuple[int, list[int]]:
        """Writes a call; returns its index, and the numbers of what it makes."""
        return len(self.simulation.acts[rank]), self.do(rank, name, *uses, **more)

    def joined(self, rank: int, at: int, patience: int = 4) -> Task[None]:
        """Awaits a call, some time after it has started."""
        if self.prices.overlap:
            yield from self.idle(patience)
            while not self.simulation.ended(rank, at):
                yield
            self.do(rank, "await", call=at)

    def together(
        self, name: str, group: Sequence[int], uses: Mapping[int, Sequence[int]], makes: Any, **more: Any
    ) -> dict[int, tuple[int, list[int]]]:
        """Writes a collective; `makes` tells what becomes of a value for the i-th of the group."""
        calls = {}
        for rank in self.choice.sample(group, len(group)):
            pieces = [makes(group.index(rank), self.piece(rank, number)) for number in uses[rank]]
            calls[rank] = self.call(rank, name, *uses[rank], makes=pieces, group=tuple(group), **more)
        return calls

    def results(self, calls: Mapping[int, tuple[int, list[int]]]) -> Task[dict[int, list[int]]]:
        """Awaits the calls of all ranks; what they have made."""
        for rank, (at, _) in calls.items():
            yield from self.joined(rank, at)
        return {rank: made for rank, (_, made) in calls.items()}

    def passed_on(self, calls: Mapping[int, tuple[int, list[int]]]) -> Task[dict[int, list[int]]]:
        """What calls make, for calls that follow: perhaps at once, which is awaited later then."""
        if not self.prices.overlap or self.choice.random() < 0.3:
            return (yield from self.results(calls))
        for rank, (at, _) in calls.items():
            self.tasks.append(self.joined(rank, at, 8))
        return {rank: made for rank, (_, made) in calls.items()}

    def copied(self, rank: int, name: str, number: int) -> Task[int]:
        """Copies a value to the host or back."""
        piece = self.piece(rank, number)._replace(tier="host" if name == "offload" else "")
        call = self.call(rank, name, number, makes=[piece], tier="host")
        made = yield from self.results({rank: call})
        return self.keep(rank, *made[rank])

    def sent(self, rank: int, to: int, numbers: Sequence[int], tag: int | None = None) -> Task[list[int]]:
        """Sends values, with any tag if none is given; their numbers on the other rank."""
        box = rank, to, self.choice.randrange(self.first_tag, 3) if tag is None else tag
        while not self.prices.overlap and self.simulation.unread(*box):
            yield
        at, _ = self.call(rank, "pass_to", *numbers, peer=to, tag=box[2])
        self._sends[box].append(at)
        self.tasks.append(self.joined(rank, at, 12))
        yield from self.idle(6)
        while self._sends[box][0] != at or not self.simulation.unread(*box):
            yield
        self._sends[box].popleft()
        pieces = [self.piece(rank, number) for number in numbers]
        return self.do(to, "receive", makes=pieces, peer=rank, tag=box[2])


MAKERS = (*PRODUCTS, "load_weights", "get_activation", "fake_grad", "loss")
"""The acts that make values of a layer and of some microbatches."""


def _placed(piece: Piece, name: str, layer: int = 0, batches: tuple[int, ...] = (), **_: Any) -> Piece:
    """A piece with the layer that it is of or that it enters, and its microbatches."""
    if piece.kind in ("act", "grad"):
        enters = {"forward": layer + 1, "get_activation": 0, "loss": layer}.get(name, layer - 1)
        return piece._replace(layer=enters, numbers=batches)
    return piece._replace(layer=layer)
