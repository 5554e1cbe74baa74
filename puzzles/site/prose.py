"""Plain Markdown of the catalog as HTML: paragraphs, lists of lines, code, and names in backquotes."""

from __future__ import annotations

from html import escape
from textwrap import dedent


def prose(text: str) -> str:
    """Paragraphs as HTML; an indented one is code."""
    return "".join(map(_paragraph, text.strip("\n").split("\n\n")))


def _paragraph(text: str) -> str:
    if text.startswith("    "):
        return f"<pre><code>{escape(dedent(text))}</code></pre>"
    return f"<p>{inline(' '.join(text.split()))}</p>"


def inline(text: str) -> str:
    """A text with its backquoted parts as code."""
    pieces = escape(text).split("`")
    if len(pieces) % 2 == 0:
        return "`".join(pieces)
    return "".join(f"<code>{piece}</code>" if i % 2 else piece for i, piece in enumerate(pieces))
