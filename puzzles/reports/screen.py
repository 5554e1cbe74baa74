"""Fits a page on the screen of a terminal: optional parts are left out if there is no room for them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from rich.console import Console


class ScreenPart(NamedTuple):
    """A part of a page. An optional one is left out where there is no room for all of it."""

    show: Callable[[Console], None]
    optional: bool = True


def show_fitted(console: Console, parts: Iterable[ScreenPart]) -> None:
    """Prints all parts that are not optional, and the first of the others that fit, in their order.

    The last row stays free for the cursor. There is room for everything if the output is not a terminal.
    """
    measured = [(part, _rows(console, part)) for part in parts]
    room = console.height - 1 - sum(rows for part, rows in measured if not part.optional)
    for part, rows in measured:
        if part.optional and console.is_terminal:
            if rows > room:
                continue
            room -= rows
        part.show(console)


def _rows(console: Console, part: ScreenPart) -> int:
    """Rows of the screen that a part takes."""
    from rich.text import Text

    with console.capture() as capture:
        part.show(console)
    widths = [Text.from_ansi(line).cell_len for line in capture.get().splitlines()]
    return sum(max(1, -(-width // console.width)) for width in widths)
