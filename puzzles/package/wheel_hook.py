"""Puts the package `training_puzzles` around the folders when a wheel is built, and the puzzles in it compiled; an
editable install finds both here."""

import sys
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class WheelHook(BuildHookInterface[Any]):  # type: ignore[misc]  # mypy does not follow it
    """Called by the build backend; pyproject.toml names this file."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "standard":
            build_data["force_include"]["puzzles/package/training_puzzles"] = "training_puzzles"
            sys.path.insert(0, self.root)
            from puzzles.catalog.content import COMPILED, compiled  # what is built, and nothing that is installed

            COMPILED.parent.mkdir(exist_ok=True)
            COMPILED.write_text(compiled(), encoding="utf-8")
            name = COMPILED.relative_to(self.root).as_posix()
            build_data["force_include"][name] = f"training_puzzles/{name}"
