"""The published orders for a problem. The search starts from these, and is never worse than any that fits."""

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache, partial
from itertools import accumulate
from math import inf
from types import MappingProxyType

from lib import PuzzleError, schedules
from lib.schedules import Cell, Timetable
from lib.schedules.settling import Slots, StageCosts, settled, v_half_slots, v_min_slots

from .problem import Problem

Rows = list[list[Cell]]
Order = Callable[[Problem], Rows | None]

PATTERN = "pattern"
"""The prefix of the name of a settled pattern."""

IN_TURN = (0, 1, 2, inf)
"""How many forwards are left when weight halves begin to give way; with infinity they always do."""


def _sized(order: Callable[..., Timetable], problem: Problem) -> Rows | None:
    m, p, v = problem.microbatches, problem.ranks, problem.v
    try:
        table = order(p, m, *([v] if problem.placement == "looped" else []))
    except PuzzleError:  # some take a multiple of the ranks
        return None
    return [list(_halved(row, problem.whole)) for row in table.rows]


def _halved(row: tuple[tuple[Cell, ...], ...], whole: bool) -> Iterator[Cell]:
    """Cells with backwards in one piece or in halves, as the problem requires."""
    names = {"F": "F", "B": "B", "I": "B", "W": ""} if whole else {"F": "F", "B": "IW", "I": "I", "W": "W"}
    for cell in (cell for slot in row for cell in slot):
        yield from (cell._replace(op=op) for op in names[cell.op])


def _pattern(slots: Callable[[int], list[Slots]], in_turn: float, unit: bool, problem: Problem) -> Rows | None:
    """V-Min or V-Half, settled under the problem's cap with its times or with equal times."""
    f, i, w, c = problem.ticks
    ones, sizes = [1] * problem.stages, problem.sizes
    if not unit and c == 0 and len({*f, *i, *w}) == 1:
        return None
    costs = StageCosts(ones, ones, ones, 0, *sizes) if unit else StageCosts(f, i, w, c, *sizes)
    return settled(slots(problem.ranks), problem.microbatches, costs, in_turn)


def _fewer_in_flight(problem: Problem) -> Rows | None:
    """1F1B with as few warm-up forwards as the caps ask for; None if they ask for no fewer than 1F1B has. A rank has no
    more of them than the rank before it, whose backwards it would wait for."""
    p, m_b, _, caps = problem.ranks, *problem.sizes
    most = list(accumulate((cap // held if held else p for cap, held in zip(caps, m_b, strict=True)), min))
    if all(limit >= p - rank for rank, limit in enumerate(most)):
        return None
    rows: Rows = []
    for rank, limit in enumerate(most):
        warmup = max(1, min(limit, p - rank))
        row = [Cell(rank, "F", batch) for batch in range(min(warmup, problem.microbatches))]
        for batch in range(problem.microbatches):
            row += [Cell(rank, op, batch) for op in ("B" if problem.whole else "IW")]
            row += [Cell(rank, "F", batch + warmup)] * (batch + warmup < problem.microbatches)
        rows.append(row)
    return rows


@lru_cache(maxsize=64)
def orders(placement: str, whole: bool) -> Mapping[str, Order]:
    """The orders with a placement, by name."""
    books: list[Callable[..., Timetable]]
    match placement:
        case "contiguous":
            books = [schedules.one_f_one_b, schedules.gpipe, *([] if whole else [schedules.zb_h1, schedules.zb_h2])]
        case "looped":
            books = [schedules.interleaved, schedules.breadth_first, *([] if whole else [schedules.interleaved_zb])]
        case _:
            books = [schedules.zb_v, schedules.dualpipev]
    by_name: dict[str, Order] = {book.__name__: partial(_sized, book) for book in books}
    if placement == "contiguous":
        by_name["one_f_one_b with fewer in flight"] = _fewer_in_flight
    if placement == "V" and not whole:
        by_name |= {book.__name__: partial(_sized, book) for book in (schedules.v_min, schedules.v_half)}
        for in_turn in IN_TURN:
            for unit in (True, False):
                for slots in (v_min_slots, v_half_slots):
                    by_name[f"{PATTERN} {slots.__name__} {in_turn} {unit}"] = partial(_pattern, slots, in_turn, unit)
    return MappingProxyType(by_name)


@lru_cache(maxsize=128)
def cells(problem: Problem, name: str) -> Rows | None:
    """An order at the problem's size; None if it does not exist at that size, or does not fit."""
    return orders(problem.placement, problem.whole)[name](problem)


def ordered(problem: Problem, name: str) -> list[list[int]] | None:
    """The forwards and input halves of an order, numbered as in `timing`."""
    rows, m = cells(problem, name), problem.microbatches
    if rows is None:
        return None
    half = problem.stages * m
    return [
        [(half if cell.op != "F" else 0) + cell.stage * m + cell.batch for cell in row if cell.op != "W"]
        for row in rows
    ]
