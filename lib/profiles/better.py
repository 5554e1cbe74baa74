"""What could be shorter: the measured pipeline as a problem for the solver, its bound, and shorter orders with each
stage's own times."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import mean, median
from typing import Any

from lib.errors import RuleError
from lib.recognition.rows import Pipeline
from lib.schedules import Cell, Timetable
from lib.solver import Problem, solve
from lib.solver.bounds import bound
from lib.solver.solution import figures

from .accounting import Accounting

SHORTER = 0.01
"""An order is shown if it is shorter by this share than the run's order, replayed in the same way."""

EFFORT = 0.1
HALVES = (0.4, 0.5, 0.6)
"""Shares of a backward in its input half that are tried where only the full backward was measured."""

LEAST, MOST = 0.001, 9_999.0
"""Times of a problem, in ms."""

MOST_SOLVED = 20_000
"""Orders are searched for pipelines of at most so many forwards."""

Rows = Sequence[Sequence[Cell]]


@dataclass(frozen=True)
class OrderBound:
    """With median times, no order of this kind takes less than `ms`; the measured order takes `replay`, or `even` if
    all stages had equal times."""

    ms: float
    reason: str
    replay: float
    even: float
    has_halves: bool


@dataclass(frozen=True)
class Better:
    """A shorter order: its name, its time with the medians of each stage, and, if halves are `assumed`, its times with
    40 and 60 % of a backward in the input half."""

    table: Timetable
    ms: float
    replay: float
    span: tuple[float, float]
    assumed: bool
    held: float

    @property
    def shorter(self) -> float:
        """By which share it is shorter than the run's order, replayed in the same way."""
        return 1 - self.ms / self.replay


@dataclass(frozen=True)
class Prospect:
    """What the measured times allow. `refusal` says why there is no bound, or no search for orders."""

    bound: OrderBound | None = None
    better: Better | None = None
    refusal: str = ""


def median_times(accounting: Accounting) -> dict[tuple[int, str], float]:
    """By stage and operation, the median time in ms, without cells that overlap with others."""
    alone: dict[tuple[int, str], list[float]] = defaultdict(list)
    shared: dict[tuple[int, str], list[float]] = defaultdict(list)
    for row in accounting.step.spans:
        for span in row:
            for stage, op in span.kind:
                (alone if len(span.cells) == 1 else shared)[stage, op].append(span.length / len(span.cells))
    return {key: median(times) for key, times in {**shared, **alone}.items()}


def prospect(accounting: Accounting, effort: float = EFFORT) -> Prospect:
    """The bound of the measured order's kind, and a shorter order if one is found."""
    table = accounting.step.table
    pipeline = Pipeline.of_table(table)
    kind, p, v, _ = pipeline.placement
    if kind == "other":
        return Prospect(refusal="The stages have no known placement on ranks, so there is no bound.")
    times = median_times(accounting)
    split = any(op == "W" for _, op in times)
    measured: Rows = [[cell for slot in row for cell in slot] for row in table.rows]
    try:
        problem = Problem(
            p, table.batches, placement=kind, chunks=v, whole=not split, least="makespan",
            send=_rounded(accounting.message, 0.0), **_lengths(times, table.stages, 0.5, whole=not split),
        )  # fmt: skip
        rows = _split(measured) if split else measured
        capped = replace(problem, memory=max(figures(problem, rows).held))
    except RuleError as why:
        return Prospect(refusal=f"There is no bound: {why}.")
    replay = _makespan(capped, rows)
    least = bound(capped)
    typical: dict[str, Any] = {name: _rounded(mean(capped.by_stage(name))) for name in ("forward", "backward_input")}
    typical["backward_weight"] = _rounded(mean(capped.by_stage("backward_weight")), 0.0)
    even = replace(capped, **typical)
    shown = OrderBound(capped.time(least.ticks), least.reason, replay, _makespan(even, rows), split)
    if table.stages * table.batches > MOST_SOLVED:
        return Prospect(shown, refusal="No better order was searched for: the pipeline is too large.")
    return Prospect(shown, _better(capped, measured, times, effort))


def _better(problem: Problem, measured: Rows, times: Mapping[tuple[int, str], float], effort: float) -> Better | None:
    """The shortest order of the solver and the textbooks, if it is shorter than the run's."""
    wholes = [(problem, measured)] if problem.whole else []
    halves = replace(problem, whole=False, **_lengths(times, problem.stages, 0.5, whole=False))
    shorter = []
    for solved, rows in [*wholes, (halves, _split(measured))]:
        replay = _makespan(problem, measured) if problem.whole else _makespan(solved, rows)
        fields = {name: getattr(solved, name) for name in solved.__match_args__}
        try:
            solution = solve(effort=effort, proof_seconds=0, **fields)
        except RuleError:  # nothing fits, as where halves hold more
            continue
        if solution.makespan < (1 - SHORTER) * replay:
            shorter.append((solution.makespan, solved, solution, replay))
    if not shorter:
        return None
    ms, solved, solution, replay = min(shorter, key=lambda better: better[0])
    assumed = problem.whole and not solved.whole
    rows = [[cell for slot in row for cell in slot] for row in solution.table.rows]
    others = [replace(solved, **_lengths(times, solved.stages, share, whole=False)) for share in HALVES if assumed]
    spread = [_makespan(other, rows) for other in others] or [ms]
    return Better(solution.table, ms, replay, (min(spread), max(spread)), assumed, max(solution.held))


def _makespan(problem: Problem, rows: Rows) -> float:
    return problem.time(max(figures(problem, rows).ends))


def _split(rows: Rows) -> list[list[Cell]]:
    """The rows with each backward split into its halves."""
    return [[cell._replace(op=op) for cell in row for op in ("IW" if cell.op == "B" else cell.op)] for row in rows]


def _lengths(times: Mapping[tuple[int, str], float], stages: int, share: float, whole: bool) -> dict[str, Any]:
    """The times of a problem by stage. The input half is a share of a full backward; in the first stage it is 0,
    because the model's input needs no gradient."""
    halves = []
    for stage in range(stages):
        back = times.get((stage, "B"), 0.0)
        if whole:
            halves.append((back, 0.0))
        elif (stage, "I") in times:
            halves.append((times[stage, "I"], times[stage, "W"]))
        else:
            halves.append((back * share, back * (1 - share)) if stage else (0.0, back))
    return {
        "forward": tuple(_rounded(times[stage, "F"]) for stage in range(stages)),
        "backward_input": tuple(_rounded(input_half) for input_half, _ in halves),
        "backward_weight": tuple(_rounded(weight_half, 0.0) for _, weight_half in halves),
    }


def _rounded(ms: float, least: float = LEAST) -> float:
    """A time rounded to µs, as a problem can have it."""
    return min(max(round(ms, 3), least), MOST)
