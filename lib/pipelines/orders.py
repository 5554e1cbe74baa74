"""The textbook orders of pipelines, for p ranks, m microbatches, and v chunks of a rank.

A rank's row is written as a script of operations and chunks: `F1` is the forward of its chunk 1; the k-th `F1` is for
microbatch k. `(F0B1)` are two cells that start together. Operations for microbatch m or later are left out.

V-Min and V-Half are repeating patterns of slots, settled into the order of one step under a cap on memory. Qi et al.
2024, Pipeline Parallelism with Controllable Memory, give the slots of microbatch 0 on each rank; microbatch j comes 6 j
slots later. A single step has no neighbours, so its cells can start earlier than the pattern says.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import inf
from typing import NamedTuple

from lib.errors import RuleError

from .timetable import Cell, Slot, Timetable

# --- Patterns that are settled ---

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


# --- Orders ---

Script = Callable[[int], str]
"""The script of each rank."""

CELL = re.compile(r"([FBIW])(\d+)")
SLOT = re.compile(r"\([^)]*\)|[FBIW]\d+")


def gpipe(p: int, m: int) -> Timetable:
    """All forwards, then all backwards (Huang et al. 2019, section 2.3)."""
    return _looped(p, m, 1, lambda r: "F0" * m + "B0" * m)


def one_f_one_b(p: int, m: int, more: int = 0) -> Timetable:
    """Each forward is followed by a backward, as soon as possible (Narayanan et al. 2019, section 3.2).

    With `more`, each rank has so many more forwards of warm-up.
    """
    _require(more >= 0, f"1F1B needs all of its warm-up; got {more} more")
    return _looped(p, m, 1, lambda r: "F0" * (p - r - 1 + more) + "F0B0" * m)


def eager_1f1b(p: int, m: int) -> Timetable:
    """1F1B with twice its warm-up, so that messages travel while ranks compute (Zhuang et al. 2023)."""
    return _looped(p, m, 1, lambda r: "F0" * (2 * (p - r - 1)) + "F0B0" * m)


def seq1f1b(p: int, m: int, shares: int = 2) -> Timetable:
    """1F1B on shares of the tokens, which come back from the last to the first (Sun et al. 2024).

    Share s of microbatch b is the microbatch `shares` b + s of the timetable.
    """
    _require(shares >= 1, f"a sequence has at least one share; got {shares}")
    units = m * shares
    table = _looped(p, units, 1, lambda r: "F0" * (p - r - 2 + shares) + "F0B0" * units)
    back = [unit - unit % shares + shares - 1 - unit % shares for unit in range(units)]
    rows = (
        (cell if cell.op == "F" else cell._replace(batch=back[cell.batch]) for (cell,) in row) for row in table.rows
    )
    return Timetable.of(rows)


def interleaved(p: int, m: int, v: int = 2, group: int | None = None, warmup: int | None = None) -> Timetable:
    """1F1B on v chunks of a rank, with `group` microbatches of a chunk at a time (Narayanan et al. 2021, section
    2.2.2).

    A group has p microbatches, or m // (m // p) if p does not divide m, as in PyTorch's ScheduleInterleaved1F1B. The
    first rank has at most `warmup` forwards before its first forward-backward pair, and each later rank one fewer. With
    p v - 1, ranks hold fewer activations and wait longer for messages.
    """
    backwards = [f"B{v - 1 - chunk}" for chunk in _in_groups(p, m, v, group)]
    return _interleaved(p, m, v, group, 2, lambda r: backwards, warmup)


def interleaved_zb(p: int, m: int, v: int = 2, group: int | None = None) -> Timetable:
    """Interleaved 1F1B with half the lead, and with weight halves r late on rank r, as in ZB-H1.

    PyTorch's ScheduleInterleavedZeroBubble.
    """
    back = [v - 1 - chunk for chunk in _in_groups(p, m, v, group)]

    def backwards(r: int) -> list[str]:
        pairs = [f"I{chunk}" + (f"W{back[n - r]}" if n >= r else "") for n, chunk in enumerate(back)]
        return pairs[:-1] + ["".join([*pairs[-1:], *(f"W{chunk}" for chunk in back[len(back) - r :])])]

    return _interleaved(p, m, v, group, 1, backwards)


def _in_groups(p: int, m: int, v: int, group: int | None) -> list[int]:
    """The chunks of a rank's forwards, in order."""
    size = _group(p, m, group)
    _require(
        m % size == 0, f"interleaved 1F1B needs a multiple of {size} microbatches, the microbatches of a group; got {m}"
    )
    return [k // size % v for k in range(m * v)]


def _group(p: int, m: int, group: int | None) -> int:
    """The microbatches of a group: as many as ranks, or m split into as many groups as fit."""
    return max(m // max(m // max(p, 1), 1) if group is None else group, 1)


def _interleaved(
    p: int, m: int, v: int, group: int | None, lead: int, backwards: Callable[[int], list[str]], most: int | None = None
) -> Timetable:
    """Forwards ahead of the next rank, then a forward and a backward in turn."""
    forwards = [f"F{chunk}" for chunk in _in_groups(p, m, v, group)]
    first = (v - 1) * _group(p, m, group)
    least = first + p - 1
    _require(most is None or most >= least, f"the first rank needs at least {least} forwards of warm-up; got {most}")

    def script(r: int) -> str:
        ahead = min(lead * (p - r - 1) + first, m * v, m * v if most is None else most - r)
        back = backwards(r)
        pairs = zip(forwards[ahead:], back)
        return "".join(forwards[:ahead] + [cells for pair in pairs for cells in pair] + back[m * v - ahead :])

    return _looped(p, m, v, script)


def breadth_first(p: int, m: int, v: int = 2) -> Timetable:
    """All microbatches through a chunk before the next chunk (Lamy-Poirier 2022, section 4)."""
    script = "".join([f"F{chunk}" * m for chunk in range(v)] + [f"B{chunk}" * m for chunk in reversed(range(v))])
    return _looped(p, m, v, lambda r: script)


def zb_h1(p: int, m: int) -> Timetable:
    """1F1B whose weight halves run r microbatches late on rank r (Qi et al. 2024, section 2.1)."""
    return _looped(p, m, 1, lambda r: "F0" * (p - r - 1) + "F0I0" * r + "F0I0W0" * m)


def zb_h2(p: int, m: int) -> Timetable:
    """Twice as many forwards first: several steps leave no bubble between them (Qi et al. 2024, section 2.2)."""
    return _looped(p, m, 1, lambda r: "F0" * (2 * (p - r) - 2) + "F0I0" * (2 * r) + "F0I0W0" * m)


def zb_v(p: int, m: int) -> Timetable:
    """Two chunks of a rank in a V: the first rank has the first and the last stage (Qi et al. 2024, section 6).

    PyTorch's ScheduleZBVZeroBubble.
    """
    n = max(2 * p - 1, m)

    def script(r: int) -> str:
        return (
            "F0" * (2 * (p - r) - 1)
            + "F1F0" * r
            + "F1I1W1" * (p - r)
            + "F0I0W0F1I1W1" * (n - 2 * p + r + 1)
            + "I0W0F1I1W1" * (p - r - 1)
            + "I0I1" * r
            + "I0W0" * (p - r)
            + "W1" * r
            + "W0" * r
        )

    return _v(p, m, script)


def v_min(p: int, m: int) -> Timetable:
    """The V of ZB-V with about a third of its memory (Qi et al. 2024, Controllable Memory, section 3)."""
    return _settled(v_min_slots, p, m, 2 * ((p + 4) // 3))


def v_half(p: int, m: int) -> Timetable:
    """The V of ZB-V with about half its memory (Qi et al. 2024, Controllable Memory, section 3)."""
    return _settled(v_half_slots, p, m, 2 * ((p + 2) // 2))


def _settled(slots: Callable[[int], Sequence[Slots]], p: int, m: int, cap: int) -> Timetable:
    """A pattern with equal times, under its own cap."""
    _require(min(p, m) >= 1, f"ranks and microbatches are at least 1; got {p} and {m}")
    ones = [1] * (2 * p)
    rows = settled(slots(p), m, StageCosts(ones, ones, ones, 0, ones, ones, [cap] * p))
    assert rows is not None, "a pattern fits under its own cap"
    return Timetable.of(rows)


def dualpipev(p: int, m: int) -> Timetable:
    """A forward of one chunk overlaps with a backward of the other, in the V of ZB-V (DeepSeek-AI, DualPipe).

    Where a pair has no price, its slot computes the forward, then the backward, and then sends both results, which
    takes F + B. PyTorch's ScheduleDualPipeV.
    """
    _require(m >= 2 * p, f"DualPipeV needs a microbatch for each of its {2 * p} stages; got {m}")
    return _v(p, m, _dual(p, m))


def dualpipe(p: int, m: int) -> Timetable:
    """DualPipeV on twice as many ranks, with the way back on the other half. Half of the microbatches go from the first
    rank to the last, the others the opposite way. Each stage is on two ranks (DeepSeek-AI 2024, section 3.2.1)."""
    _require(p % 2 == m % 2 == 0 < p, f"DualPipe needs even numbers of ranks and microbatches; got {p} and {m}")
    _require(m >= 2 * p, f"DualPipe needs two microbatches for each of its {p} stages; got {m}")
    script, half = _dual(p // 2, m // 2), m // 2

    def row(r: int) -> tuple[Slot, ...]:
        near, stages = (r, (r, p - 1 - r)) if r < p // 2 else (p - 1 - r, (p - 1 - r, r))
        return _row(script(near), stages, half, (0, half) if r == near else (half, 0))

    return Timetable(tuple(map(row, range(p))), copies=2)


def _dual(p: int, m: int) -> Script:
    """DualPipe on the p ranks of a half, each with chunk 0 on the way out and chunk 1 on the way back."""

    def script(r: int) -> str:
        lower = p - r - 1  # the ranks below this one in the V
        main = "(F0B1)(F1B0)" * (m - 2 * p + r + 1)
        if not lower:
            main = "F0B1" + main.removeprefix("(F0B1)")
        turn = [f"{'B' if k <= r else 'I'}{1 - k % 2}" for k in range(2 * r + 2)]
        late = [f"W{cell[1]}" for cell in turn if cell[0] == "I"] + ["W0"] * lower
        end = [f"{weight}I0" for weight in late[:lower]] + late[lower:]
        return (
            "F0" * (2 * lower) + "F0F1" * (r + 1) + "I1W1F1" * lower + main + "B1(F1B0)" * lower + "".join(turn + end)
        )

    return script


def chimera(p: int, m: int) -> Timetable:
    """Two pipelines of 1F1B in opposite directions; each stage is on two ranks (Li and Hoefler 2021).

    More than p microbatches are computed p at a time ("direct concatenation").
    """
    _require(p % 2 == m % 2 == 0 < p, f"Chimera needs even numbers of ranks and microbatches; got {p} and {m}")
    down = list(_in_waves(p, m // 2, p // 2))
    up = [(start, cell._replace(batch=cell.batch + m // 2)) for start, cell in down]
    timed = [(start, cell.stage, cell) for start, cell in down] + [
        (start, p - 1 - cell.stage, cell) for start, cell in up
    ]
    return _by_start(p, timed, 2)


def hanayo(p: int, m: int, waves: int = 1) -> Timetable:
    """Microbatches pass through the ranks forth and back, in so many waves (Liu et al. 2023, Hanayo).

    One wave is Chimera with the way back on the same ranks, which saves the second copy of the weights.
    """
    _require(min(p, m, waves) >= 1, f"ranks, microbatches and waves are at least 1; got {p}, {m} and {waves}")
    folded = [*range(p), *reversed(range(p))] * waves
    timed = [(start, folded[cell.stage], cell) for start, cell in _in_waves(len(folded), m, p)]
    return _by_start(p, timed)


def _in_waves(stages: int, m: int, group: int) -> Iterator[tuple[int, Cell]]:
    """The slots of m microbatches that start every second slot, `group` at a time, and go forward and back without a
    pause. No two cells on one rank start at once."""
    for batch in range(m):
        first = batch // group * 2 * stages + batch % group * 2
        for stage in range(stages):
            yield first + stage, Cell(stage, "F", batch)
            yield first + 2 * stages - 1 - stage, Cell(stage, "B", batch)


def _by_start(p: int, timed: Sequence[tuple[int, int, Cell]], copies: int = 1) -> Timetable:
    """Cells with their slots and ranks, in the order of the slots."""
    rows = (((cell,) for _, rank, cell in sorted(timed) if rank == r) for r in range(p))
    return Timetable(tuple(map(tuple, rows)), copies=copies)


def _looped(p: int, m: int, v: int, script: Script) -> Timetable:
    """The chunks of rank r are the stages r, r + p, r + 2p, ..."""
    _require(min(p, m, v) >= 1, f"ranks, microbatches and chunks are at least 1; got {p}, {m} and {v}")
    return Timetable(tuple(_row(script(r), range(r, p * v, p), m) for r in range(p)))


def _v(p: int, m: int, script: Script) -> Timetable:
    """The chunks of rank r are stage r, and on the way back stage 2p - 1 - r."""
    _require(min(p, m) >= 1, f"ranks and microbatches are at least 1; got {p} and {m}")
    return Timetable(tuple(_row(script(r), (r, 2 * p - 1 - r), m) for r in range(p)))


def _row(script: str, stages: Sequence[int], m: int, firsts: Sequence[int] = ()) -> tuple[Slot, ...]:
    """The slots of a script, in which a chunk may begin with a later microbatch. A B counts as an I and a W."""
    seen: defaultdict[str, int] = defaultdict(int)
    first, kept = dict(zip(stages, firsts)), list[Slot]()
    groups = SLOT.findall(script)
    named = {
        group: [
            (stages[int(chunk)], op, ("I" + chunk, "W" + chunk) if op == "B" else (op + chunk,))
            for op, chunk in CELL.findall(group)
        ]
        for group in {*groups}
    }
    for group in groups:
        slot, fits = [], True
        for stage, op, halves in named[group]:
            batch = seen[halves[0]]
            for half in halves:
                seen[half] += 1
            fits = fits and batch < m
            slot.append(Cell(stage, op, batch + first[stage] if first else batch))
        if fits:
            kept.append(tuple(slot))
    return tuple(kept)


def _require(met: bool, problem: str) -> None:
    if not met:
        raise RuleError(problem)
