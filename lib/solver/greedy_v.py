"""The greedy search that was published with ZB-V (Qi et al. 2024, section 6): a forward and a backward in turn on every
rank, each in the chunk whose input is there."""

from collections.abc import Sequence

from lib.schedules import Cell

from .greedy import GreedyRun, StuckError
from .problem import Problem


def greedy_v(fills_forward: bool, fills_back: bool, problem: Problem) -> list[list[Cell]] | None:
    """The rows of the best run; None if none fits. The switches: before forwards, or before backwards in lower chunks,
    a weight half also goes where it is too long. Each run knows how long each rank waited in the run before."""
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
        """A cell after the weight halves for which there is time, and one for which there nearly is."""
        r = self.rank_of[stage]
        other = stage - 1 if op == "F" else stage + 1
        if 0 <= other < len(self.rank_of) and self.rank_of[other] != r:
            gap = self.fill(r, self.ready(stage, op))
            if gap > 0 and fills and gap > self.spare(r):
                self.put_weight(r)
        self.put(stage, op)
