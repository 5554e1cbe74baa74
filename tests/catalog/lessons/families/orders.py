"""Orders of a pipeline that no textbook recommends."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from lib.pipelines.timetable import Cell, Timetable

Order = Callable[..., Timetable]


def one_by_one(p: int, m: int) -> Timetable:
    """Each microbatch goes forth and back before the next one starts."""
    return Timetable.of([[Cell(r, op, b) for b in range(m) for op in "FB"] for r in range(p)])


def long_warm_up(p: int, m: int) -> Timetable:
    """1F1B in which rank r is 2(p - r) - 1 forwards ahead, nearly twice as many as it needs."""
    return Timetable.of([_row(r, m, min(2 * (p - r) - 1, m)) for r in range(p)])


def _row(r: int, m: int, ahead: int) -> list[Cell]:
    row = [Cell(r, "F", b) for b in range(ahead)]
    for b in range(m):
        row.append(Cell(r, "B", b))
        if b + ahead < m:
            row.append(Cell(r, "F", b + ahead))
    return row


def in_halves(order: Order) -> Order:
    """The order with both halves of each backward, one after the other."""

    def halved(p: int, m: int, **sizes: int) -> Timetable:
        rows = [[cell for slot in row for cell in slot] for row in order(p, m, **sizes).rows]
        halves = {"F": "F", "B": "IW"}
        return Timetable.of([[cell._replace(op=op) for cell in row for op in halves[cell.op]] for row in rows])

    return halved


def in_pairs(order: Order) -> Order:
    """The order in which each forward and the backward right after it, of another microbatch, are a pair."""

    def paired(p: int, m: int, **sizes: int) -> Timetable:
        return Timetable(tuple(tuple(_paired([*row])) for row in order(p, m, **sizes).rows))

    def _paired(row: list[tuple[Cell, ...]]) -> Iterator[tuple[Cell, ...]]:
        while row:
            slot = row.pop(0)
            if len(slot) == 1 == len(row[0] if row else ()) and _is_pair(slot[0], row[0][0]):
                slot = (*slot, *row.pop(0))
            yield slot

    return paired


def _is_pair(first: Cell, second: Cell) -> bool:
    return (first.op, second.op) == ("F", "B") and first.batch != second.batch
