"""The environment of all templates: everything is escaped, except for rendered Markdown and our own pictures."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from puzzles.tracks.outcomes import capitalized, stars_text

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


@cache
def environment() -> Any:
    """jinja2's environment, with the filters `message`, `markdown`, `stars`, `capitalized` and `picture`."""
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    made = Environment(
        loader=PackageLoader("puzzles.reports"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters["message"] = lambda text: Markup(message_html(text))
    made.filters["markdown"] = lambda text: Markup(text_html(text))
    made.filters["stars"] = stars_text
    made.filters["capitalized"] = capitalized
    made.filters["picture"] = Markup
    return made
