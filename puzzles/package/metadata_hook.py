"""The package's description is README.md, with links that also work outside the repository."""

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!\w+:|#)([^)]*)\)")


class MetadataHook(MetadataHookInterface):  # type: ignore[misc]  # mypy does not follow it
    """Called by the build backend; pyproject.toml names this file."""

    def update(self, metadata: dict[str, Any]) -> None:
        text = Path(self.root, "README.md").read_text(encoding="utf-8")
        source = metadata.get("urls", {}).get("Source")
        metadata["readme"] = {"content-type": "text/markdown", "text": absolute(text, source)}


def absolute(text: str, source: str | None) -> str:
    """Links into the repository become addresses there; without a public repository, their text alone stays."""

    def turn(link: re.Match[str]) -> str:
        image, words, path = link.groups()
        if source is None:
            return "" if image else words
        return f"{image}[{words}]({source}/{'raw' if image else 'blob'}/main/{path})"

    return LINK.sub(turn, text)
