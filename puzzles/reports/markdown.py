"""Renders Markdown as HTML: whole texts of puzzles, and the code in messages, which may come from a player."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from markdown_it import MarkdownIt


def text_html(text: str) -> str:
    """The text of a puzzle: CommonMark and tables, with HTML escaped."""
    return str(_whole().render(text))


def message_html(text: str) -> str:
    """A message in one line: only `code` in backquotes is rendered, since links and pictures could be a player's."""
    return str(_code_only().renderInline(text))


@cache
def _whole() -> MarkdownIt:
    from markdown_it import MarkdownIt

    return MarkdownIt("commonmark", {"html": False}).enable("table")


@cache
def _code_only() -> MarkdownIt:
    from markdown_it import MarkdownIt

    return MarkdownIt("zero", {"html": False}).enable("backticks")
