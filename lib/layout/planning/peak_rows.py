"""A cap on the peak as constraints of an integer program: what a device holds at every moment, as `peak.py` counts it.

An operator has a moment for each input that it moves, one when it computes, and one when its output is reduced. A copy
is there from the move of the first reader that takes it until the last one has computed, or has moved from it.
"""

from collections.abc import Hashable, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from math import gcd, inf
from typing import NamedTuple

from lib.layout.layouts.tensor_layout import TensorLayout, same_placement
from lib.layout.program.distributed import DistributedOperator
from lib.layout.program.graph import Graph
from lib.layout.redistribution.redistribution import redistribute

from .highs import LinearProgram, Terms, added
from .peak import ends, most_elements

Layouts = dict[Hashable, tuple[TensorLayout, Terms]]
"""By placement: a layout, and the variables of which one is 1 if a tensor has it."""


class Move(NamedTuple):
    """A move of a reader: from the layout that the tensor has, or from a `copy` that an earlier reader has taken."""

    source: Hashable
    given: TensorLayout
    target: Hashable
    wanted: TensorLayout
    copy: bool
    cost: float


class ReaderMoves(NamedTuple):
    """An operator and the number of an input, the layouts in which it may need that, and the variables of its moves.

    `made` has, by layout, the terms of which the sum is 1 if this reader is the first to have a copy there.
    """

    operator: str
    place: int
    wanted: Layouts
    moves: dict[int, Move]
    made: dict[Hashable, Terms]


class PeakRows:
    """The constraints of one integer program, without a cap yet. `most` is its variable for the peak, in `unit` bytes.

    `lives` has by tensor and layout, `ways` by operator the variables of which one is 1; `readers` has the moves.
    """

    def __init__(
        self,
        graph: Graph,
        program: LinearProgram,
        lives: Mapping[str, Mapping[TensorLayout, Terms]],
        ways: Mapping[str, Sequence[tuple[int, DistributedOperator]]],
        readers: Mapping[tuple[str, int], Sequence[ReaderMoves]],
    ) -> None:
        self.graph, self.program, self.lives, self.ways = graph, program, lives, ways
        self.moments: dict[tuple[str, str | int], int] = {}
        """The number of each moment: when an operator moves an input, "computes" or "reduces"."""
        for name, op in self.graph.operators.items():
            for doing in (*range(len(op.inputs)), "computes", "reduces"):
                self.moments[name, doing] = len(self.moments)
        self.held: list[Terms] = [{} for _ in self.moments]
        """By moment: the elements that are held besides `tensors`."""
        self.tensors: list[Terms] = [{} for _ in self.moments]
        """By moment: the variables of the sizes of tensors that are there."""
        self.sizes: dict[int, Terms] = {}
        """By such a variable: the elements of its tensor."""
        for name in self.graph.operators:
            self._computes(name)
        for name in self.graph.shapes:
            self._lives(name)
        for (name, _), tensor_readers in readers.items():
            self._copies(name, tensor_readers)
        numbers = {int(c) for terms in (*self.held, *self.sizes.values()) for c in terms.values()}
        per_unit = gcd(*numbers)
        self.unit = per_unit * graph.itemsize
        """Bytes."""
        self.most = program.variable(is_whole=False, most=inf)
        for v, terms in self.sizes.items():
            program.row({**added(terms, times=1 / per_unit), v: -1.0}, 0, 0)
        for terms, whole in zip(self.held, self.tensors):
            program.row({**added(terms, times=1 / per_unit), **whole, self.most: -1.0}, -inf, 0)

    def cap(self, peak: int) -> None:
        """No device may hold more bytes at any time."""
        self.program.most[self.most] = peak // self.unit

    def as_costs(self) -> list[float]:
        """The costs of a program that minimizes the peak."""
        return [float(v == self.most) for v in range(len(self.program.costs))]

    def _hold(self, moment: int, terms: Terms, elements: float) -> None:
        for v, c in terms.items():
            self.held[moment][v] = self.held[moment].get(v, 0.0) + c * elements

    def _computes(self, name: str) -> None:
        for v, way in self.ways[name]:
            self._hold(self.moments[name, "computes"], {v: 1.0}, way.local.elements)
            if way.reduction:
                most = way.local.elements + int(most_elements(way.reduction, freed=True).max())
                self._hold(self.moments[name, "reduces"], {v: 1.0}, most)

    def _lives(self, name: str) -> None:
        """A tensor is there until its last reader has computed; without one, until the end."""
        start = self.moments[name, "reduces"] + 1 if name in self.graph.operators else 0
        last = next((op for op, tensors in ends(self.graph).items() if name in tensors), None)
        stop = len(self.held) if last is None else self.moments[last, "computes"] + 1
        size = self.program.variable(is_whole=False, most=inf)
        elements = (added(terms, times=layout.elements) for layout, terms in self.lives[name].items())
        self.sizes[size] = added(*elements)
        for moment in range(start, stop):
            self.tensors[moment][size] = 1.0

    def _copies(self, name: str, readers: Sequence[ReaderMoves]) -> None:
        """Buffers of moves, and copies."""
        homes = self.lives[name]
        for reader in readers:
            for v, move in reader.moves.items():
                if not (move.copy and move.source == move.target):
                    buffers = _buffers(move.given, move.wanted)
                    self._hold(self.moments[reader.operator, reader.place], {v: 1.0}, buffers)
        wanted = {key: layout for reader in readers for key, (layout, _) in reader.wanted.items()}
        for key, layout in wanted.items():
            here = added(*(terms for home, terms in homes.items() if same_placement(home, layout)))
            for start, stop, terms in self._held_by(key, here, readers):
                for moment in range(start, stop):
                    self._hold(moment, terms, layout.elements)

    def _held_by(self, key: Hashable, here: Terms, readers: Sequence[ReaderMoves]) -> list[tuple[int, int, Terms]]:
        """When a copy is there, and the variable that is 1 if it is."""
        taken, used = [], []
        for reader in readers:
            takes = reader.wanted[key][1] if key in reader.wanted else {}
            move, computes = self.moments[reader.operator, reader.place], self.moments[reader.operator, "computes"]
            moved = {
                v: 1.0
                for v, transfer in reader.moves.items()
                if transfer.copy and transfer.source == key != transfer.target
            }
            if takes:
                taken.append((move + 1, takes))
                used.append((computes + 1, takes))
            if moved:
                used.append((move + 1, moved))
        times = sorted({start for start, _ in taken} | {stop for stop, _ in used})
        spans = []
        for start, stop in pairwise(times):
            before = [terms for moment, terms in taken if moment <= start]
            after = [terms for moment, terms in used if moment >= stop]
            if not before or not after:
                continue
            there = self.program.variable(is_whole=False)
            for first in before:
                for last in after:
                    both = added(first) if first is last else added(first, last)
                    terms = added({there: 1.0}, here, added(both, times=-1))
                    self.program.row(terms, 0.0 if first is last else -1.0)
            spans.append((start, stop, {there: 1.0}))
        return spans


@lru_cache(maxsize=262144)
def _buffers(given: TensorLayout, wanted: TensorLayout) -> int:
    """The most elements that a move takes on a device in addition to the piece that it starts from."""
    if same_placement(given, wanted):
        return 0
    return int(most_elements(redistribute(given, wanted).named_steps).max())
