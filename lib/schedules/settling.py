"""V-Min and V-Half: a repeating pattern of slots, settled into the order of one step under a cap on memory.

Qi et al. 2024, Pipeline Parallelism with Controllable Memory, give the slots of microbatch 0 on each rank; microbatch j
comes 6 j slots later. A single step has no neighbours, so its cells can start earlier than the pattern says.
"""

from collections.abc import Mapping, Sequence
from math import inf
from typing import NamedTuple

from .cells import Cell

PERIOD = 6
"""Slots from one microbatch to the next: three halves in each of two chunks."""


class Slots(NamedTuple):
    """The slots of microbatch 0 on a rank: forward and input half of its lower chunk 0, and of chunk 1 on the way
    back."""

    f0: int
    f1: int
    i1: int
    i0: int


def v_min_slots(p: int) -> list[Slots]:
    """By rank, the slots of V-Min, which holds a third of what 1F1B holds. The way back begins k slots after the last
    forward. With 2 ranks mod 3, k = 0 would do as well; but with 4 a single step is up to four slots shorter."""
    k = 2 * ((1 - p) % 3)
    return [Slots(r, 2 * p - 1 - r, 2 * p + k + r, 4 * p + k - 1 - r) for r in range(p)]


def v_half_slots(p: int) -> list[Slots]:
    """By rank, the slots of V-Half, which holds half of what 1F1B holds."""
    k = 3 if p % 2 == 0 else 0
    return [Slots(2 * r, 3 * p - 2 - r, 3 * p + k + 2 * r - 1, 6 * p + k - r - 2) for r in range(p)]


class StageCosts(NamedTuple):
    """By stage, the times of F, I and W, and the memory of a microbatch before and after its input half; the time of a
    message; and the cap of each rank."""

    f: Sequence[float]
    i: Sequence[float]
    w: Sequence[float]
    send: float
    m_b: Sequence[float]
    m_w: Sequence[float]
    cap: Sequence[float]


def settled(slots: Sequence[Slots], m: int, costs: StageCosts, in_turn: float = 0) -> list[list[Cell]] | None:
    """The order of m microbatches on each rank: repeatedly, the cell that can start first. Weight halves keep their
    slots while the rank has more than `in_turn` forwards left, and then give way. None if no order fits the cap."""
    p = len(slots)
    ends = {op: [[inf] * m for _ in range(2 * p)] for op in "FI"}
    ranks = [_SettledRank(r, slots[r], p, m, costs, ends) for r in range(p)]
    chosen = [rank.first(in_turn) for rank in ranks]
    for _ in range(6 * p * m):
        r = min(range(p), key=chosen.__getitem__)
        start, place = chosen[r]
        if start == inf:
            return None
        stage, op, _ = ranks[r].take(place, start)
        after = {"F": stage + 1, "I": stage - 1, "W": stage}[op]
        for near in {r, min(after, 2 * p - 1 - after)} - {-1}:
            chosen[near] = ranks[near].first(in_turn)
    return [rank.row for rank in ranks]


def own_step(slots: Sequence[Slots], m: int, cap: int) -> list[list[Cell]]:
    """A pattern's rows with equal times, under its own cap."""
    ones = [1] * (2 * len(slots))
    rows = settled(slots, m, StageCosts(ones, ones, ones, 0, ones, ones, [cap] * len(slots)))
    assert rows is not None, "a pattern fits under its own cap"
    return rows


class _SettledRank:
    """The cells of a rank by slot, and those that are done."""

    def __init__(
        self, r: int, slots: Slots, p: int, m: int, costs: StageCosts, ends: Mapping[str, list[list[float]]]
    ) -> None:
        self.costs, self.ends, self.cap = costs, ends, costs.cap[r]
        self.cells = _by_slot(slots, (r, 2 * p - 1 - r), m)
        m_b, m_w = costs.m_b, costs.m_w
        self.change = [{"F": m_b[s], "I": m_w[s] - m_b[s], "W": -m_w[s]}[op] for s, op, _ in self.cells]
        self.kinds = [(stage, op) for stage in (r, 2 * p - 1 - r) for op in "FI"]
        self.queues = [[n for n, cell in enumerate(self.cells) if cell[:2] == kind] for kind in self.kinds]
        self.sources = [self._source(stage, op, p) for stage, op in self.kinds]
        self.halves = [n for n, cell in enumerate(self.cells) if cell.op == "W"]
        self.left: list[int] = [*range(len(self.cells))]  # in the order of their slots
        self.heads, self.done = [0] * 4, 0
        self.clock, self.memory, self.forwards = 0.0, 0.0, 2 * m
        self.row: list[Cell] = []

    def _source(self, stage: int, op: str, p: int) -> tuple[Sequence[float] | None, float]:
        """By microbatch, when the input of a kind of cell is made, and the time of its message."""
        before = stage - 1 if op == "F" else stage + 1
        if before < 0:
            return None, 0
        if before == 2 * p:
            return self.ends["F"][stage], 0
        return self.ends[op][before], 0 if stage + before == 2 * p - 1 else self.costs.send

    def first(self, in_turn: float) -> tuple[float, int]:
        """The earliest start of any cell, and that cell's index."""
        candidates: list[tuple[float, bool, int]] = []
        for queue, head, (made_at, send) in zip(self.queues, self.heads, self.sources):
            if head < len(queue):
                ready = made_at[head] + send if made_at is not None else 0
                if ready < inf:
                    candidates.append((max(ready, self.clock), False, queue[head]))
        if self.done < len(self.halves):
            place = self.halves[self.done]
            stage, _, batch = self.cells[place]
            if self.ends["I"][stage][batch] < inf:
                candidates.append((self.clock, self.forwards <= in_turn, place))
        for start, _, place in sorted(candidates):
            if self.fits(place):
                return start, place
        return inf, 0

    def fits(self, place: int) -> bool:
        """True if a cell can come now, so that all cells in earlier slots can still follow in order."""
        memory = self.memory + self.change[place]
        if memory > self.cap:
            return False
        if self.change[place] > 0:
            for n in self.left:
                if n == place:
                    break
                memory += self.change[n]
                if memory > self.cap:
                    return False
        return True

    def take(self, place: int, start: float) -> Cell:
        stage, op, batch = cell = self.cells[place]
        self.clock = start + {"F": self.costs.f, "I": self.costs.i, "W": self.costs.w}[op][stage]
        self.memory += self.change[place]
        self.row.append(cell)
        self.left.remove(place)
        if op == "W":
            self.done += 1
            return cell
        self.ends[op][stage][batch] = self.clock
        self.forwards -= op == "F"
        kind = self.kinds.index((stage, op))
        self.heads[kind] += 1
        return cell


def _by_slot(slots: Slots, stages: tuple[int, int], m: int) -> list[Cell]:
    """The cells of m microbatches by slot. A weight half takes the first free slot, the oldest first."""
    low, high = stages
    by_slot: dict[int, Cell] = {}
    for first, stage, op in zip(slots, (low, high, high, low), "FFII"):
        by_slot |= {first + PERIOD * batch: Cell(stage, op, batch) for batch in range(m)}
    cells, waiting = [], 0
    pending = iter([by_slot[slot]._replace(op="W") for slot in sorted(by_slot) if by_slot[slot].op == "I"])
    for slot in range(max(by_slot) + 1):
        if slot in by_slot:
            cells.append(by_slot[slot])
            waiting += by_slot[slot].op == "I"
        elif waiting:
            cells.append(next(pending))
            waiting -= 1
    return [*cells, *pending]
