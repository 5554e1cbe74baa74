"""`solve`: the best schedule that search, textbooks and, for small problems, a constraint solver find."""

from typing import Unpack

from lib.errors import RuleError
from lib.schedules import Cell, Timetable

from .exact import proven
from .problem import Problem, ProblemFields, is_number
from .search import EFFORT, TRIALS, Candidate, best, shortened
from .solution import Figures, Solution, figures, solution
from .textbook import PATTERN, cells, orders
from .timing import timed

PROOF_SECONDS = 20.0
MAX_SECONDS = 10**6

PATTERNS = 4
"""Settled patterns of a large problem that are tried."""


def solve(
    ranks: int,
    microbatches: int,
    *,
    effort: float = 1.0,
    proof_seconds: float = PROOF_SECONDS,
    **more: Unpack[ProblemFields],
) -> Solution:
    """The best schedule found for a `Problem` of these fields.

    The search takes the same steps in every run, seconds to half a minute of them; `effort` makes it longer or shorter.
    It is never worse than a textbook order that fits. Where the package ortools is installed a small problem is solved
    exactly, in up to `proof_seconds`.

    Raises:
        RuleError: there is no such problem, or nothing fits; the message says what would.
    """
    try:
        problem = Problem(ranks, microbatches, **more)
    except TypeError as why:
        unknown = str(why).rpartition(" ")[2]
        raise RuleError(f"a problem has no {unknown}; it has {', '.join(Problem.__match_args__)}") from None
    for name, number, most in (("effort", effort, 100), ("proof_seconds", proof_seconds, MAX_SECONDS)):
        if not is_number(number) or not 0 <= number <= most:
            raise RuleError(f"{name} must be from 0 to {most:,}; got {number!r:.40}")
    found = _found(problem, effort)
    if found.is_optimal or proof_seconds <= 0:
        return found
    proof = proven(problem, round(found.took * problem.unit), proof_seconds)
    if proof is None:
        return found
    return solution(problem, proof.table or found.table, is_proven=True)


def _found(problem: Problem, effort: float) -> Solution:
    """The best of the search and of the textbooks."""
    known = [rows for name in _names(problem) if (rows := cells(problem, name))]
    candidate = best(problem, int(EFFORT * effort), max(int(TRIALS * effort), 1))
    if candidate is not None:
        known.insert(0, cells_of(problem, candidate))
    found = [(figures(problem, rows), rows) for rows in known]
    fitting = [one for one in found if problem.fits(one[0].held)]
    if not fitting:
        least = min((max(one.held) for one, _ in found), default=problem.v * problem.ranks)
        raise RuleError(
            f"no schedule was found for a memory of {min(problem.caps):g}; take memory={least:g}, which an order needs"
        )
    return solution(problem, Timetable.of(min(fitting, key=lambda one: _measures(problem, one[0]))[1]))


def _names(problem: Problem) -> list[str]:
    """The published orders; of patterns, which take long to settle, those that are best on few microbatches."""
    few = shortened(problem)
    names = [*orders(problem.placement, problem.whole)]
    patterns = [name for name in names if name.startswith(PATTERN)]
    if few == problem or not patterns:
        return names
    timed = [(_measures(few, figures(few, rows)), name) for name in patterns if (rows := cells(few, name))]
    return [name for name in names if name not in patterns] + [name for _, name in sorted(timed)[:PATTERNS]]


def _measures(problem: Problem, one: Figures) -> tuple[int, int]:
    """What is to be least, then the other measure."""
    span, makespan = max(end - start for start, end in zip(one.starts, one.ends)), max(one.ends)
    return (span, makespan) if problem.least == "span" else (makespan, span)


def cells_of(problem: Problem, one: Candidate) -> list[list[Cell]]:
    """The cells of a candidate, by rank."""
    m, half = problem.microbatches, problem.stages * problem.microbatches
    numbers: list[list[int]] = [[] for _ in range(problem.ranks)]
    timed(problem, one.steps, one.policy, numbers)
    rows: list[list[Cell]] = []
    for row in numbers:
        backs = iter([number - half for number in row if number >= half])
        rows.append([])
        for number in row:
            op = "W" if number < 0 else "F" if number < half else "B" if problem.whole else "I"
            place = next(backs) if number < 0 else number % half
            rows[-1].append(Cell(place // m, op, place % m))
    return rows
