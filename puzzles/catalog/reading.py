"""What puzzles of every track have in their files: their texts, and the calls that they allow or forbid."""

from __future__ import annotations

from typing import Any

from .fields import Fields
from .paper import Paper, cited


def publication(fields: Fields, name: str) -> Paper:
    """A field that names a publication."""
    source = cited(fields.text(name))
    if isinstance(source, str):
        raise fields.refusal(f"there is no publication '{source}' in puzzles/content/papers.toml", name)
    return source


def texts_of(fields: Fields) -> dict[str, Any]:
    """The texts that puzzles of every track have."""
    return {
        "title": fields.text("title"),
        "statement": fields.text("statement").strip() + "\n",
        "starter": fields.text("starter").strip() + "\n",
        "hints": fields.texts("hints"),
        "concept": fields.text("concept", "").strip(),
        "in_practice": fields.text("in_practice", "").strip(),
        "sources": tuple(map(cited, fields.texts("sources"))),
        "credit": fields.text("credit", ""),
        "praise": fields.text("praise", "No better solution is known."),
    }


def rules_of(fields: Fields, known: tuple[str, ...]) -> dict[str, Any]:
    """The calls that are allowed or forbidden."""
    rules = {name: fields.texts(name, known) for name in ("allowed", "forbidden")}
    if rules["allowed"] and rules["forbidden"]:
        raise fields.refusal("give either the calls that are allowed, or those that are forbidden")
    return rules
