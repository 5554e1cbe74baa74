"""Wraps text for a terminal between words, and never inside a call, a command or a path."""

from __future__ import annotations

import re
from textwrap import TextWrapper
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

MAX_WIDTH = 88
"""Columns of running text: wider is harder to read."""

WHOLE = re.compile(r"`[^`\n]+`|'puzzles [^'\n]+'|< \S+")
"""What stays in one piece: code in backquotes, commands in quotes, limits such as '< 34'."""

GLUE = "\0"
"""Replaces a space at which no line may end."""


def wrapped(text: str, width: int, indent: str = "", hanging: str | None = None) -> str:
    """Text in lines of at most `width` columns, unless one word or piece of code is wider. The first line begins with
    `indent`, all others with `hanging`, which is the same unless it is given."""
    hanging = indent if hanging is None else hanging
    room = width - max(len(indent), len(hanging))
    wrapper = TextWrapper(
        width,
        initial_indent=indent,
        subsequent_indent=hanging,
        break_on_hyphens=False,
        break_long_words=False,
    )
    glued = WHOLE.sub(lambda found: found[0].replace(" ", GLUE) if len(found[0]) <= room else found[0], text)
    return "\n".join(line.replace(GLUE, " ").rstrip() for line in wrapper.wrap(" ".join(glued.split())))


def say(
    console: Console, text: str, style: str = "", indent: str = "", lead: str = "", lead_style: str = "bold"
) -> None:
    """Prints a paragraph at the width of the terminal; it begins with `lead`, which has its own style."""
    from rich.text import Text

    shown = Text(wrapped(lead + text, min(console.width, MAX_WIDTH), indent, indent), style=style)
    shown.stylize(lead_style, 0, len(indent + lead))
    console.print(shown, soft_wrap=True)
