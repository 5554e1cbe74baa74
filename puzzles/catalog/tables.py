"""Tables that any terminal shows in full: one that is too wide goes on below, with its first column again.

A column of words may wrap, a heading and a figure never do, and nothing is cropped. Rejected: rich's own way, which
shortens cells until a row fits ('s/…'), since a figure without its end is wrong; and a record for each row, which no
longer lets a reader compare down a column.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
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
    columns = list(table.columns)
    whole = _part(console, table, columns)
    if _fits(console, whole):
        yield whole
        return
    first = columns.pop(repeated)
    shown = [first]
    for column in columns:
        if len(shown) > 1 and not _fits(console, _part(console, table, [*shown, column])):
            yield _folded(console, _part(console, table, shown))
            shown = [first]
        shown.append(column)
    yield _folded(console, _part(console, table, shown))


def least_width(console: Console, table: Table) -> int:
    """The characters of a line below which something would be folded within a word or cropped."""
    return _measured(console, _part(console, table, list(table.columns))).minimum


def full_width(console: Console, table: Table) -> int:
    """The characters of a line at which nothing in a table is wrapped."""
    return _measured(console, table).maximum


def _measured(console: Console, table: Table) -> Measurement:
    return console.measure(table, options=console.options.update(max_width=UNLIMITED_WIDTH))


def _fits(console: Console, part: Table) -> bool:
    return _measured(console, part).minimum <= console.width


def _folded(console: Console, part: Table) -> Table:
    """A part, whose words may be folded at any letter if it does not fit otherwise."""
    if not _fits(console, part):
        for column in part.columns:
            column.no_wrap, column.overflow, column.min_width = False, "fold", None
    return part


def _part(console: Console, table: Table, columns: list[Column]) -> Table:
    """The table with these of its columns, which are never narrower than a word or, where cells do not wrap, than a
    cell; rich itself forgets `no_wrap` when it measures."""
    from rich.table import Table

    part = Table(
        box=table.box, show_header=table.show_header, show_edge=table.show_edge, pad_edge=table.pad_edge,
        padding=table.padding, collapse_padding=table.collapse_padding,
        title=table.title, title_justify=table.title_justify,
    )  # fmt: skip
    for column in columns:
        contents = [column.header, *column.cells] if table.show_header else [*column.cells]
        options = console.options.update(max_width=UNLIMITED_WIDTH)
        sizes = [console.measure(content, options=options) for content in contents]
        least = max((size.maximum if column.no_wrap else size.minimum for size in sizes), default=0)
        part.add_column(
            column.header, justify=column.justify, style=column.style, no_wrap=column.no_wrap, overflow=column.overflow,
            min_width=max(least, column.min_width or 0), ratio=column.ratio,
        )  # fmt: skip
    for cells in zip(*(column.cells for column in columns)):
        part.add_row(*cells)
    return part
