"""What commands print: paragraphs, pages that fit the screen, and the command to type next."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple

from puzzles.text_lines import MAX_WIDTH, wrapped

if TYPE_CHECKING:
    from rich.console import Console


FOLDERS = "puzzles.folders"
"""Where click's context keeps the folders of --puzzles."""


def next_command(*words: str) -> str:
    """'puzzles hint relay --puzzles week3'; without folders where no command is running, as in a notebook."""
    click = sys.modules.get("click")  # which only commands load
    ctx = click.get_current_context(silent=True) if click else None
    paths = ctx.meta.get(FOLDERS, ()) if ctx else ()
    return shlex.join(["puzzles", *words, *(word for path in paths for word in ("--puzzles", path))])


def print_wrapped(
    console: Console, text: str, style: str = "", indent: str = "", lead: str = "", lead_style: str = "bold"
) -> None:
    """Prints a paragraph at the width of the terminal; it begins with `lead`, which has its own style."""
    from rich.text import Text

    shown = Text(wrapped(lead + text, min(console.width, MAX_WIDTH), indent, indent), style=style)
    shown.stylize(lead_style, 0, len(indent + lead))
    console.print(shown, soft_wrap=True)


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
    from rich.text import Text

    with console.capture() as capture:
        part.show(console)
    widths = [Text.from_ansi(line).cell_len for line in capture.get().splitlines()]
    return sum(max(1, -(-width // console.width)) for width in widths)
