"""Finds the figures in a text that no test has measured."""

from __future__ import annotations

import re
from collections.abc import Iterable


def unmeasured(text: str, quotes: Iterable[str], references: str) -> list[str]:
    """The places with a digit once the quotes are taken out, and the references, which are no statements."""
    for quote in sorted(quotes, key=len, reverse=True):
        text = text.replace(quote, "")
    return re.findall(r".{0,30}\d.{0,20}", re.sub(references, "", text))
