"""The greedy search that was published for zero-bubble pipelines (Qi et al. 2024, section 3.1), and textbook orders,
written and timed here without the solver: what it is compared with.

Where the paper leaves a step open, the choice is that of its authors' program, as far as it is known.
"""

from collections.abc import Iterator
from itertools import accumulate, product
from typing import NamedTuple

Rows = list[list[tuple[int, str, int]]]
"""For each rank its cells in order: stage, F or I or W or B, microbatch."""


class Case(NamedTuple):
    """Times, and the sizes of a rank's memory, in whole numbers; for all stages (for the cap: ranks), or for each."""

    p: int
    m: int
    f: int | tuple[int, ...]
    i: int | tuple[int, ...]
    w: int | tuple[int, ...]
    c: int
    cap: int | tuple[int, ...]
    m_b: int = 1
    m_w: int = 1


def of(figure: int | tuple[int, ...], place: int) -> int:
    return figure if isinstance(figure, int) else figure[place]


def length(case: Case, op: str, stage: int) -> int:
    return sum(of({"F": case.f, "I": case.i, "W": case.w}[half], stage) for half in ("IW" if op == "B" else op))


def spans(case: Case, rows: Rows) -> list[int]:
    """By rank, from the start of its first cell to the end of its last."""
    begun, over = times(case, rows)
    return [over[rank] - begun[rank] for rank in begun]


def makespans(case: Case, rows: Rows) -> list[int]:
    """By rank, the end of its last cell."""
    return times(case, rows)[1]


def times(case: Case, rows: Rows) -> tuple[dict[int, int], list[int]]:
    """By rank, the start of its first cell and the end of its last, if each starts as early as it can. The messages
    of a rank leave in the order of its cells, one after the other."""
    rank_of = {cell[0]: rank for rank, row in enumerate(rows) for cell in row}
    last = max(rank_of)
    ends: dict[tuple[int, str, int], int] = {}
    left_at: dict[int, int] = {}
    arrivals: dict[tuple[int, str, int], int] = {}
    begun: dict[int, int] = {}
    clock = [0] * len(rows)
    left = [list(reversed(row)) for row in rows]

    def ready(cell: tuple[int, str, int]) -> int | None:
        stage, op, batch = cell
        if op == "W":
            return ends.get((stage, "I", batch))
        if op == "F":
            needs = [(stage - 1, "F", batch)] if stage else []
        else:
            back = (stage + 1, op, batch)
            needs = [(stage, "F", batch)] + ([back] if stage < last else [])
        if not all(need in ends for need in needs):
            return None
        return max(((ends if rank_of[need[0]] == rank_of[stage] else arrivals)[need] for need in needs), default=0)

    moved = True
    while moved:
        moved = False
        for rank, stack in enumerate(left):
            while stack and (at := ready(stack[-1])) is not None:
                cell = stack.pop()
                start = max(clock[rank], at)
                begun.setdefault(rank, start)
                clock[rank] = ends[cell] = start + length(case, cell[1], cell[0])
                receiver = cell[0] + 1 if cell[1] == "F" else cell[0] - 1
                if cell[1] != "W" and rank_of.get(receiver, rank) != rank:
                    arrivals[cell] = left_at[rank] = max(left_at.get(rank, 0), clock[rank]) + case.c
                moved = True
    assert not any(left), "these rows wait for each other"
    return begun, clock


def most_held(case: Case, rows: Rows) -> int:
    """What the rank that holds most holds."""
    return max(all_held(case, rows))


def all_held(case: Case, rows: Rows) -> list[int]:
    """By rank, the most that it holds."""
    change = {"F": case.m_b, "I": case.m_w - case.m_b, "W": -case.m_w, "B": -case.m_b}
    return [max(accumulate((change[op] for _, op, _ in row), initial=0)) for row in rows]


def textbook(case: Case, warm: int, late: int) -> Rows:
    """1F1B with `warm` forwards ahead for each rank behind, and each weight half `late` r input halves late on rank r:
    (1, 1) is ZB-H1, (2, 2) is ZB-H2."""
    rows: Rows = []
    for r in range(case.p):
        ahead = min(warm * (case.p - 1 - r), case.m)
        row = [(r, "F", b) for b in range(ahead)]
        for b in range(case.m):
            row += [(r, "F", b + ahead)] if b + ahead < case.m else []
            row += [(r, "I", b)] + ([(r, "W", b - late * r)] if b >= late * r else [])
        row += [(r, "W", b) for b in range(max(case.m - late * r, 0), case.m)]
        rows.append(row)
    return rows


class _Greedy:
    """One run of the search, microbatch by microbatch: forwards down the ranks, then input halves up. `delays`: the
    last forward of the warm-up may delay the first backward. `skips`: a rank may leave out a forward while the next
    rank has two less. `fills`: a weight half goes also into a gap that is too short for it where that saves nothing."""

    def __init__(self, case: Case, delays: bool, skips: bool, fills: bool) -> None:
        self.case, self.delays, self.skips, self.fills = case, delays, skips, fills
        p = case.p
        self.rows: Rows = [[] for _ in range(p)]
        self.clock, self.held, self.bubble = [0] * p, [0] * p, [0] * p
        self.count = [dict.fromkeys("FIW", 0) for _ in range(p)]
        self.end: dict[tuple[int, str, int], int] = {}

    def arrival(self, r: int, op: str) -> int:
        """When what the next such cell of a rank needs from another is there."""
        other = r - 1 if op == "F" else r + 1
        if op == "W" or not 0 <= other < self.case.p:
            return 0
        return self.end[other, op, self.count[r][op]] + self.case.c

    def put(self, r: int, op: str) -> None:
        case, count = self.case, self.count[r]
        start = max(self.clock[r], self.arrival(r, op))
        self.bubble[r] += start - self.clock[r] if count["F"] else 0
        self.clock[r] = self.end[r, op, count[op]] = start + length(case, op, r)
        self.held[r] += {"F": case.m_b, "I": case.m_w - case.m_b, "W": -case.m_w}[op]
        self.rows[r].append((r, op, count[op]))
        count[op] += 1

    def pending(self, r: int) -> int:
        return self.count[r]["I"] - self.count[r]["W"]

    def make_room(self, r: int, more: int) -> None:
        while self.held[r] + more > of(self.case.cap, r):
            if not self.pending(r):
                raise ValueError("it does not fit")
            self.put(r, "W")

    def fill(self, r: int, op: str) -> None:
        """Weight halves before a cell that is waited for."""
        until = self.arrival(r, op)
        while self.pending(r) and self.clock[r] + of(self.case.w, r) <= until:
            self.put(r, "W")
        if self.pending(r) and self.clock[r] < until:
            spare = max(self.bubble) - self.bubble[r]
            if until - self.clock[r] > spare or self.fills:
                self.put(r, "W")

    def warm_up(self) -> None:
        case = self.case
        for r in range(case.p):
            self.put(r, "F")
        more = [0] * case.p
        back = self.end[case.p - 1, "F", 0] + of(case.i, case.p - 1)
        for r in reversed(range(case.p - 1)):
            held, clock = self.held[r], self.clock[r]
            while 1 + more[r] < case.m and held + case.m_b <= of(case.cap, r):
                if (clock >= back + case.c) if self.delays else (clock + of(case.f, r) > back + case.c):
                    break
                held, clock, more[r] = held + case.m_b, clock + of(case.f, r), more[r] + 1
            back = max(clock, back + case.c) + of(case.i, r)
        for r in range(1, case.p):
            while 0 < more[r] >= more[r - 1] and 1 + more[r] < case.m:
                more[r] -= 1
        for r in range(case.p):
            for _ in range(more[r]):
                self.put(r, "F")
        for r in reversed(range(case.p)):
            self.put(r, "I")

    def wants_forward(self, r: int) -> bool:
        case, f = self.case, self.count[r]["F"]
        if f >= case.m:
            return False
        if self.skips and r + 1 < case.p and f >= self.count[r + 1]["F"] + 2:
            following = self.clock[r + 1] + of(case.f, r) + of(case.i, r) + case.c
            if self.clock[r] >= following:
                return False
            weights = 0
            while self.held[r] + case.m_b - weights * case.m_w > of(case.cap, r) and weights < self.pending(r):
                weights += 1
            if self.clock[r] + of(case.f, r) + weights * of(case.w, r) <= following:
                return True
            return following - self.clock[r] > max(self.bubble) - self.bubble[r]
        return True

    def round(self) -> None:
        p = self.case.p
        wanted = [self.wants_forward(r) for r in range(p)]
        for r in reversed(range(p - 1)):
            wanted[r] = wanted[r] and wanted[r + 1]
        for r in range(p):
            if wanted[r]:
                self.make_room(r, self.case.m_b)
                if r:
                    self.fill(r, "F")
                self.put(r, "F")
        for r in reversed(range(p)):
            self.make_room(r, self.case.m_w - self.case.m_b)
            if r + 1 < p:
                self.fill(r, "I")
            if not r and self.count[r]["F"] == self.case.m:
                while self.pending(r):
                    self.put(r, "W")
            self.put(r, "I")

    def run(self) -> Rows:
        self.warm_up()
        for _ in range(1, self.case.m):
            self.round()
        for r in range(self.case.p):
            while self.pending(r):
                self.put(r, "W")
        return self.rows


def published(case: Case) -> Rows | None:
    """The best of the runs with all choices; None if none of them fits."""
    found: list[Rows] = []
    for choices in product((True, False), repeat=3):
        try:
            found.append(_Greedy(case, *choices).run())
        except (ValueError, KeyError):
            continue
    return min(found, key=lambda rows: max(spans(case, rows)), default=None)


MOST = {"ZB-H1": 1.0, "ZB-H2": 1.0, "published": 1.02}
"""By name, the longest span of a solution over theirs: the solver starts from the textbook orders, and not from the
greedy search."""


def known(case: Case) -> Iterator[tuple[str, Rows]]:
    """What was published and fits under the cap of a case."""
    for name, rows in (
        ("ZB-H1", textbook(case, 1, 1)),
        ("ZB-H2", textbook(case, 2, 2)),
        ("published", published(case)),
    ):
        if rows is not None and all(held <= of(case.cap, rank) for rank, held in enumerate(all_held(case, rows))):
            yield name, rows
