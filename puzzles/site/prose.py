"""A line of the catalog as HTML, with names in backquotes as code."""

from __future__ import annotations

from html import escape


def inline(text: str) -> str:
    """A text with its backquoted parts as code."""
    pieces = escape(text).split("`")
    if len(pieces) % 2 == 0:
        return "`".join(pieces)
    return "".join(f"<code>{piece}</code>" if i % 2 else piece for i, piece in enumerate(pieces))
