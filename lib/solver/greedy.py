"""The greedy search that was published with zero bubble (Qi et al. 2024, section 3.1), for one stage on each rank.

It places microbatch by microbatch: a forward down the ranks, then an input half up the ranks. Weight halves go where a
rank would wait or has no room. Three switches cover choices that the paper leaves open; all combinations are tried.
"""

from collections import deque
from collections.abc import Sequence
from itertools import product
from typing import NamedTuple

from lib.schedules import Cell

from .problem import Problem


class Mode(NamedTuple):
    """The last forward of the warm-up may delay the first backward; a rank may leave out a forward while the next rank
    has two fewer; a weight half also fills a gap that is too short for it, if that costs nothing in the end."""

    delays: bool
    skips: bool
    fills: bool


MODES = tuple(Mode(*switches) for switches in product((True, False), repeat=3))


class StuckError(Exception):
    """A rank has neither room nor a weight half that would make room, or its input is not made yet."""


class GreedyRun:
    """The cells placed so far, and when they end."""

    def __init__(self, problem: Problem) -> None:
        self.problem, self.m, self.ranks = problem, problem.microbatches, range(problem.ranks)
        self.f, self.i, self.w, self.c = problem.ticks
        self.m_b, self.m_w, self.cap = problem.sizes
        self.rank_of = [problem.rank_of(stage) for stage in range(problem.stages)]
        self.rows: list[list[Cell]] = [[] for _ in self.ranks]
        self.clock, self.held, self.waited = ([0] * problem.ranks for _ in range(3))
        self.count = [dict.fromkeys("FIW", 0) for _ in self.rank_of]
        self.pending: list[deque[int]] = [deque() for _ in self.ranks]
        """By rank, the stages of the weight halves that can be placed."""
        self.ends: dict[Cell, int] = {}

    def made(self, stage: int, op: str) -> int | None:
        """When the input of the next cell is available; None if it is not made yet."""
        batch, other = self.count[stage][op], stage - 1 if op == "F" else stage + 1
        if op == "W" or other < 0:
            return 0
        if other == len(self.rank_of):
            return self.ends.get(Cell(stage, "F", batch))
        there = self.ends.get(Cell(other, op, batch))
        return None if there is None else there + self.c * (self.rank_of[other] != self.rank_of[stage])

    def ready(self, stage: int, op: str) -> int:
        made = self.made(stage, op)
        if made is None or self.count[stage][op] >= self.m:
            raise StuckError
        return made

    def put(self, stage: int, op: str) -> None:
        r, cell = self.rank_of[stage], Cell(stage, op, self.count[stage][op])
        start = max(self.clock[r], self.ready(stage, op))
        if self.rows[r]:
            self.waited[r] += start - self.clock[r]
        self.clock[r] = self.ends[cell] = start + {"F": self.f, "I": self.i, "W": self.w}[op][stage]
        self.held[r] += self.more(stage, op)
        self.count[stage][op] += 1
        self.rows[r].append(cell)
        if op == "I":
            self.pending[r].append(stage)

    def more(self, stage: int, op: str) -> int:
        """The memory that a cell adds on its rank."""
        return {"F": self.m_b[stage], "I": self.m_w[stage] - self.m_b[stage], "W": -self.m_w[stage]}[op]

    def put_weight(self, r: int) -> None:
        self.put(self.pending[r].popleft(), "W")

    def make_room(self, stage: int, op: str) -> None:
        r = self.rank_of[stage]
        while self.held[r] + self.more(stage, op) > self.cap[r]:
            if not self.pending[r]:
                raise StuckError
            self.put_weight(r)

    def fill(self, r: int, until: int) -> int:
        """Places the weight halves for which there is time. Returns the remaining time, if a weight half is left."""
        while self.pending[r] and self.clock[r] + self.w[self.pending[r][0]] <= until:
            self.put_weight(r)
        return until - self.clock[r] if self.pending[r] else 0

    def spare(self, r: int) -> int:
        """How long the rank can wait without becoming the rank that waits longest."""
        return max(self.waited) - self.waited[r]

    def put_rest(self) -> None:
        for r in self.ranks:
            while self.pending[r]:
                self.put_weight(r)


def greedy(delays: bool, skips: bool, fills: bool, problem: Problem) -> list[list[Cell]] | None:
    """The rows of one run; None if it does not fit."""
    run = _Contiguous(problem, Mode(delays, skips, fills))
    try:
        run.warm_up()
        for _ in range(1, problem.microbatches):
            run.forwards()
            run.backwards()
    except StuckError:
        return None
    run.put_rest()
    return run.rows


class _Contiguous(GreedyRun):
    def __init__(self, problem: Problem, mode: Mode) -> None:
        super().__init__(problem)
        self.mode = mode

    def put_in_room(self, r: int, op: str) -> None:
        """Places a cell after the weight halves that make room for it, and those for which there is time."""
        self.make_room(r, op)
        gap = self.fill(r, self.ready(r, op)) if r or op == "I" else 0
        if gap > 0 and (self.mode.fills or gap > self.spare(r)):
            self.put_weight(r)
        self.put(r, op)

    def warm_up(self) -> None:
        for r in self.ranks:
            self.put(r, "F")
        last = self.ranks[-1]
        more = [0] * len(self.ranks)
        back = self.ends[Cell(last, "F", 0)] + self.i[last]
        for r in reversed(self.ranks[:-1]):
            held, clock, until = self.held[r], self.clock[r], back + self.c
            while more[r] + 1 < self.m and held + self.m_b[r] <= self.cap[r]:
                if (clock if self.mode.delays else clock + self.f[r] - 1) >= until:
                    break
                held, clock, more[r] = held + self.m_b[r], clock + self.f[r], more[r] + 1
            back = max(clock, until) + self.i[r]
        for r in self.ranks[1:]:
            # A rank is one forward behind the rank before it, unless it has all of them.
            more[r] = min(more[r], more[r - 1] if more[r] + 1 == self.m else max(more[r - 1] - 1, 0))
        for r in self.ranks:
            for _ in range(more[r]):
                self.put(r, "F")
        for r in reversed(self.ranks):
            self.put_in_room(r, "I") if self.m_w[r] > self.m_b[r] else self.put(r, "I")

    def forwards(self) -> None:
        wanted = [self.wants_forward(r) for r in self.ranks]
        for r in self.ranks:
            if all(wanted[r:]):
                self.put_in_room(r, "F")

    def wants_forward(self, r: int) -> bool:
        done = self.count[r]["F"]
        if done >= self.m:
            return False
        if not self.mode.skips or r == self.ranks[-1] or done < self.count[r + 1]["F"] + 2:
            return True
        following = self.clock[r + 1] + self.f[r] + self.i[r] + self.c
        if self.clock[r] >= following:
            return False
        over = self.held[r] + self.m_b[r] - self.cap[r]
        weights = min(-(-over // self.m_w[r]), len(self.pending[r])) if over > 0 and self.m_w[r] else 0
        if self.clock[r] + self.f[r] + weights * self.w[r] <= following:
            return True
        return following - self.clock[r] > self.spare(r)

    def backwards(self) -> None:
        for r in reversed(self.ranks):
            while not r and self.count[r]["F"] == self.m and self.pending[r]:
                self.put_weight(r)
            self.put_in_room(r, "I")


def greedy_v(fills_forward: bool, fills_back: bool, problem: Problem) -> list[list[Cell]] | None:
    """The rows of the best run; None if none fits. The switches: before forwards, or before backwards in lower chunks,
    a weight half is also placed where it is too long. Each run knows how long each rank waited in the previous run."""
    best, before = None, [-1] * problem.ranks
    while True:
        run = _V(problem, fills_forward, fills_back, before)
        try:
            run.warm_up()
            for _ in range(2 * problem.microbatches):
                run.backwards()
                run.forwards()
        except StuckError:
            break
        run.put_rest()
        if best is not None and max(run.waited) >= max(best.waited):
            break
        best, before = run, run.waited
    return None if best is None else best.rows


class _V(GreedyRun):
    def __init__(self, problem: Problem, fills_forward: bool, fills_back: bool, before: Sequence[int]) -> None:
        super().__init__(problem)
        self.fills_forward, self.fills_back, self.before = fills_forward, fills_back, before

    def upper(self, r: int) -> int:
        return len(self.rank_of) - 1 - r

    def spare(self, r: int) -> int:
        return max(*self.waited, 0, max(self.before) - self.before[r]) - self.waited[r]

    def warm_up(self) -> None:
        last = self.ranks[-1]
        for r in self.ranks:
            self.put_forward(r)
        for r in reversed(self.ranks):
            while r < last and self.has_time(r):
                for rank in range(r + 1):
                    self.put_forward(rank)
            self.put_forward(self.upper(r))
        lower = True
        for r in self.ranks[1:]:
            while self.is_behind(r):
                for rank in reversed(range(r, last + 1)):
                    stage = rank if lower else self.upper(rank)
                    if self.count[stage]["F"] < self.m:
                        self.put_forward(stage)
                lower = not lower

    def put_forward(self, stage: int) -> None:
        if self.held[self.rank_of[stage]] + self.m_b[stage] > self.cap[self.rank_of[stage]]:
            raise StuckError
        self.put(stage, "F")

    def has_time(self, r: int) -> bool:
        """True if another forward fits before the first one comes back up the V."""
        room = self.held[r] + self.m_b[r] * (2 + 2 * r) <= self.cap[r]
        early = self.clock[r] + self.f[r] <= self.ready(self.upper(r), "F")
        return room and early and self.count[r]["F"] < self.m

    def is_behind(self, r: int) -> bool:
        """True if a rank has done fewer forwards than the rank before it."""
        mine, above = ((self.count[q]["F"], self.count[self.upper(q)]["F"]) for q in (r, r - 1))
        return sum(mine) < sum(above) or mine[1] <= above[1] < self.m

    def backwards(self) -> None:
        turns = []
        for r in self.ranks:
            self.make_room(r, "I")
            upper = self.upper(r)
            is_lower = self.count[r]["I"] < self.count[upper]["I"] and (
                r == self.ranks[-1] or self.made(r, "I") is not None or self.count[upper]["I"] >= self.m
            )
            turns.append((not is_lower, r if not is_lower else -r, r if is_lower else upper))
        for is_upper, _, stage in sorted(turns):
            r = self.rank_of[stage]
            self.put_filled(stage, "I", not is_upper or self.fills_back)

    def forwards(self) -> None:
        for r in self.ranks:
            lower, upper = self.count[r]["F"], self.count[self.upper(r)]["F"]
            if upper >= self.m:
                continue
            if upper < lower and (r == self.ranks[-1] or self.made(self.upper(r), "F") is not None):
                stage = self.upper(r)
            elif upper >= lower or (lower < self.m and self.made(r, "F") is not None):
                stage = r
            else:
                continue
            self.make_room(stage, "F")
            self.put_filled(stage, "F", self.fills_forward)

    def put_filled(self, stage: int, op: str, fills: bool) -> None:
        """Places a cell after the weight halves for which there is time, and one for which there nearly is."""
        r = self.rank_of[stage]
        other = stage - 1 if op == "F" else stage + 1
        if 0 <= other < len(self.rank_of) and self.rank_of[other] != r:
            gap = self.fill(r, self.ready(stage, op))
            if gap > 0 and fills and gap > self.spare(r):
                self.put_weight(r)
        self.put(stage, op)
