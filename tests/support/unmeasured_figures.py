"""Facts that a text states: which do not hold, and which figures no test has measured."""

import re
from collections.abc import Iterable, Sequence

Fact = str | tuple[str, bool]
"""A quote, with its figures as they are measured; or a quote and whether it is true."""


def wrong(text: str, facts: Iterable[Fact]) -> list[Fact]:
    """Quotes that are not true, or not in the text."""
    return [
        fact for fact in facts if (fact not in text if isinstance(fact, str) else not fact[1] or fact[0] not in text)
    ]


def unmeasured(text: str, facts: Sequence[Fact], references: str) -> list[str]:
    """The places with a digit once the quotes are taken out, and the references, which are no statements."""
    quotes = [fact if isinstance(fact, str) else fact[0] for fact in facts]
    for quote in sorted(quotes, key=len, reverse=True):
        text = text.replace(quote, "")
    return re.findall(r".{0,30}\d.{0,20}", re.sub(references, "", text))
