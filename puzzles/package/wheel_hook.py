"""Puts the package `training_puzzles` around the folders when a wheel is built; an editable install finds it here."""

from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class WheelHook(BuildHookInterface[Any]):  # type: ignore[misc]  # mypy does not follow it
    """Called by the build backend; pyproject.toml names this file."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "standard":
            build_data["force_include"]["puzzles/package/training_puzzles"] = "training_puzzles"
