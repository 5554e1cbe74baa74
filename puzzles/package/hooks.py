"""What the build backend calls; pyproject.toml names this file.

The package's description is README.md, with links that also work outside the repository. A wheel has the package
`training_puzzles` around the folders, and the puzzles in it compiled; an editable install finds both here.
"""

import re
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!\w+:|#)([^)]*)\)")


class MetadataHook(MetadataHookInterface):  # type: ignore[misc]  # mypy does not follow it
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


class WheelHook(BuildHookInterface[Any]):  # type: ignore[misc]  # mypy does not follow it
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "standard":
            build_data["force_include"]["puzzles/package/training_puzzles"] = "training_puzzles"
            sys.path.insert(0, self.root)
            from puzzles.catalog.content import COMPILED, compiled  # what is built, and nothing that is installed

            COMPILED.parent.mkdir(exist_ok=True)
            COMPILED.write_text(compiled(), encoding="utf-8")
            name = COMPILED.relative_to(self.root).as_posix()
            build_data["force_include"][name] = f"training_puzzles/{name}"
