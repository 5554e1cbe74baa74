"""The environment of all templates: everything is escaped, except for rendered Markdown and our own pictures."""

from __future__ import annotations

from functools import cache
from typing import Any

from puzzles.tracks.outcomes import capitalized, stars_text

from .markdown import message_html, text_html


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
