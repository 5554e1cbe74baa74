"""`make screens`: types all scenes, writes what is on their screens, and removes files that no scene has."""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.screens.scenes import SCENES
from tests.screens.typed import FOLDER, approved, screen_of


def main(names: list[str]) -> None:
    """Writes all screens, or those of the scenes that are named."""
    for scene in SCENES:
        if names and scene.name not in names:
            continue
        with TemporaryDirectory() as folder:
            screen = screen_of(scene, Path(folder))
        file = approved(scene)
        if not file.exists() or file.read_text(encoding="utf-8") != screen:
            file.write_text(screen, encoding="utf-8")
            print(f"wrote {file.name}")
    for file in {*FOLDER.glob("*.txt")} - {*map(approved, SCENES)}:
        file.unlink()
        print(f"removed {file.name}")


if __name__ == "__main__":
    main(sys.argv[1:])
