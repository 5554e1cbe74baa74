"""Tables that any terminal shows in full: one that is too wide goes on below, with its first column again.

A column of words may wrap, a heading and a figure never do, and nothing is cropped. Rejected: rich's own way, which
shortens cells until a row fits ('s/…'), since a figure without its end is wrong; and a record for each row, which no
longer lets a reader compare down a column.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.measure import Measurement
    from rich.table import Column, Table

UNLIMITED_WIDTH = 10_000
"""Characters of a line that every table fits."""


def print_table(console: Console, table: Table) -> None:
    """Prints a table at the width of the console, in as many parts as it needs."""
    for part in fitted(console, table):
        console.print(part)


def fitted(console: Console, table: Table, repeated: int = 0) -> Iterator[Table]:
    """The table, or parts of it that fit the console, each of which begins with the column of the number `repeated`.
    Where even two columns do not fit, they are folded at any letter."""
    whole = _unshrinkable(console, table)
    if _measured(console, whole).minimum <= console.width:
        yield whole
        return
    columns = list(whole.columns)
    first = columns.pop(repeated)
    shown = [first]
    for column in columns:
        if len(shown) > 1 and _measured(console, _part(whole, [*shown, column])).minimum > console.width:
            yield _folded(console, _part(whole, shown))
            shown = [first]
        shown.append(column)
    yield _folded(console, _part(whole, shown))


def least_width(console: Console, table: Table) -> int:
    """The characters of a line below which something would be folded within a word or cropped."""
    return _measured(console, _unshrinkable(console, table)).minimum


def full_width(console: Console, table: Table) -> int:
    """The characters of a line at which nothing in a table is wrapped."""
    return _measured(console, table).maximum


def _measured(console: Console, content: RenderableType) -> Measurement:
    return console.measure(content, options=console.options.update(max_width=UNLIMITED_WIDTH))


def _folded(console: Console, part: Table) -> Table:
    """A part, whose words may be folded at any letter if it does not fit otherwise."""
    if _measured(console, part).minimum > console.width:
        for column in part.columns:
            column.no_wrap, column.overflow, column.min_width = False, "fold", None
    return part


def _unshrinkable(console: Console, table: Table) -> Table:
    """The table with columns that are never narrower than a word or, where cells do not wrap, than a cell; rich itself
    forgets `no_wrap` when it measures."""
    whole = _part(table, table.columns)
    for column in whole.columns:
        contents = [column.header, *column.cells] if table.show_header else [*column.cells]
        sizes = [_measured(console, content) for content in contents]
        least = max((size.maximum if column.no_wrap else size.minimum for size in sizes), default=0)
        column.min_width = max(least, column.min_width or 0)
    return whole


def _part(table: Table, columns: Sequence[Column]) -> Table:
    """The table with these of its columns."""
    from rich.table import Table

    part = Table(
        box=table.box, show_header=table.show_header, show_edge=table.show_edge, pad_edge=table.pad_edge,
        padding=table.padding, collapse_padding=table.collapse_padding,
        title=table.title, title_justify=table.title_justify,
    )  # fmt: skip
    for column in columns:
        part.add_column(
            column.header, justify=column.justify, style=column.style, no_wrap=column.no_wrap, overflow=column.overflow,
            min_width=column.min_width, ratio=column.ratio,
        )  # fmt: skip
    for cells in zip(*(column.cells for column in columns)):
        part.add_row(*cells)
    return part
