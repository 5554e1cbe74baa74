"""A table of files that never folds or crops their names: where they do not fit, each has its own line."""

from collections.abc import Callable, Sequence

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

UNLIMITED_WIDTH = 10_000
"""Columns of a terminal on which every table fits."""


class NamedRows:
    """A table with a row for each of `names`. An empty name means: of the same file as the row above.

    `make` builds the table, with a column for the names or, given None, without them. Its cells do not wrap. Print it
    with `crop=False`, because a name may be wider than the terminal.
    """

    def __init__(self, make: Callable[[Sequence[str] | None], Table], names: Sequence[str], heading: str = "") -> None:
        """`heading` belongs to the names; where they have no column it comes above the table."""
        self.make = make
        self.names = names
        self.heading = heading

    def fits(self, console: Console) -> bool:
        """True if the table without its names fits."""
        return least_width(console, self.make(None)) <= console.width

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        whole = self.make(self.names)
        if least_width(console, whole) <= options.max_width:
            yield whole
            return
        lines = console.render_lines(self.make(None), options, pad=False)
        if self.heading:
            yield Text(self.heading, style="bold", no_wrap=True, overflow="ignore")
        blank = 1  # below a table is an empty line
        head = len(lines) - blank - len(self.names)
        for name, line in zip([""] * head + [*self.names, ""], lines):
            if name:
                yield Text(name, no_wrap=True, overflow="ignore")
            yield from line
            yield Segment.line()


def name_width(names: Sequence[str]) -> int:
    """The least width of a column in which no name is folded at a space."""
    return max(map(cell_len, names), default=0)


def least_width(console: Console, table: Table) -> int:
    """The columns below which something in a table would be folded or cropped."""
    return _measured(console, table).minimum


def full_width(console: Console, table: Table) -> int:
    """The columns that a table fills if no line in it is wrapped."""
    return _measured(console, table).maximum


def _measured(console: Console, table: Table) -> Measurement:
    return console.measure(table, options=console.options.update(max_width=UNLIMITED_WIDTH))
