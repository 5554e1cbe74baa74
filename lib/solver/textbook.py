"""The textbook orders that a problem can have: starts of the search, which is never worse than any that fits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import NamedTuple

from lib.errors import RuleError
from lib.schedules import Cell, Timetable, breadth_first, gpipe, interleaved, one_f_one_b, zb_h1, zb_h2, zb_v

from .problem import Problem


class Textbook(NamedTuple):
    """An order of `lib.schedules`."""

    order: Callable[..., Timetable]


def orders(problem: Problem) -> Iterator[Textbook]:
    """The orders with the problem's placement."""
    match problem.placement:
        case "contiguous":
            yield from map(Textbook, (one_f_one_b, gpipe) if problem.whole else (one_f_one_b, zb_h1, zb_h2))
        case "looped":
            yield from map(Textbook, (interleaved, breadth_first))
        case "V":
            yield Textbook(zb_v)


@lru_cache(maxsize=8)
def _table(order: Callable[..., Timetable], *sizes: int) -> Timetable | None:
    try:
        return order(*sizes)
    except RuleError:  # some take a multiple of the ranks
        return None


def cells(problem: Problem, book: Textbook) -> list[list[Cell]] | None:
    """The order at the problem's size, with backwards in one piece or in halves as the problem has them; None if it
    does not exist at that size."""
    more = [problem.v] if problem.placement == "looped" else []
    found = _table(book.order, problem.ranks, problem.microbatches, *more)
    return None if found is None else [list(_halved(row, problem.whole)) for row in found.rows]


def _halved(row: tuple[tuple[Cell, ...], ...], whole: bool) -> Iterator[Cell]:
    for cell in (cell for slot in row for cell in slot):
        if cell.op == "F" or (whole and cell.op == "B"):
            yield cell
        elif not whole:
            yield from (cell._replace(op=half) for half in ("IW" if cell.op == "B" else cell.op))


def ordered(problem: Problem, book: Textbook) -> list[list[int]] | None:
    """Its forwards and input halves, numbered as in `timing`."""
    found, m = cells(problem, book), problem.microbatches
    if found is None:
        return None
    half = problem.stages * m
    return [
        [(half if cell.op != "F" else 0) + cell.stage * m + cell.batch for cell in row if cell.op != "W"]
        for row in found
    ]
