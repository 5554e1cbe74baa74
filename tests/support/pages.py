"""Files of the documentation, and the blocks of code in them."""

import re

from tests.test_imports import ROOT


def page(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def blocks(text: str, language: str) -> list[str]:
    """The blocks of a language, which may be a pattern and name a title."""
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
