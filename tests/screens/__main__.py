"""`make screens`: types all scenes, writes their screens, and has the tests of approved texts write them.

What no scene has and no test reads is removed.
"""

import os
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.screens.scenes import SCENES
from tests.screens.texts import readings, remove_unread
from tests.screens.typed import FOLDER, approved, screen_of


def main(names: list[str]) -> None:
    """Writes all screens and texts, or the screens of the scenes that are named."""
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
    if not names:
        remove_unread()
        os.environ["APPROVE"] = "1"
        sys.exit(pytest.main(["-q", *dict.fromkeys(reading.test for reading in readings())]))


if __name__ == "__main__":
    main(sys.argv[1:])
