"""Prints paragraphs at the width of the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from puzzles.catalog.text_lines import MAX_WIDTH, wrapped

if TYPE_CHECKING:
    from rich.console import Console


def print_wrapped(
    console: Console, text: str, style: str = "", indent: str = "", lead: str = "", lead_style: str = "bold"
) -> None:
    """Prints a paragraph at the width of the terminal; it begins with `lead`, which has its own style."""
    from rich.text import Text

    shown = Text(wrapped(lead + text, min(console.width, MAX_WIDTH), indent, indent), style=style)
    shown.stylize(lead_style, 0, len(indent + lead))
    console.print(shown, soft_wrap=True)
