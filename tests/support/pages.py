"""Files of the documentation, the blocks of code in them, and what a link to the page holds."""

import re
import zlib
from base64 import urlsafe_b64decode

from tests.test_imports import ROOT


def page(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def blocks(text: str, language: str) -> list[str]:
    """The blocks of a language, which may be a pattern and name a title."""
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def read_link(link: str) -> tuple[str, str, str]:
    """Slug, kind and text of a link, as the page's script reads it."""
    slug, kind, data = link.rpartition("#")[2].split("/")
    return slug, kind, zlib.decompress(urlsafe_b64decode(data + "=" * (-len(data) % 4)), -zlib.MAX_WBITS).decode()
