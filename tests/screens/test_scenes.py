"""Every screen is as it was approved. After a change that is wanted: `make screens`, and read the diff."""

from difflib import unified_diff
from pathlib import Path

import pytest

from tests.screens.scenes import SCENES, Scene
from tests.screens.texts import readings, unread
from tests.screens.typed import FOLDER, approved, screen_of

CASES = [pytest.param(scene, id=scene.name, marks=pytest.mark.slow if scene.slow else ()) for scene in SCENES]


@pytest.mark.parametrize("scene", CASES)
def test_a_screen_is_as_approved(scene: Scene, tmp_path: Path) -> None:
    file = approved(scene)
    wanted = file.read_text(encoding="utf-8") if file.exists() else ""
    screen = screen_of(scene, tmp_path)
    diff = unified_diff(wanted.splitlines(), screen.splitlines(), f"tests/screens/{file.name}", "now", lineterm="")
    assert screen == wanted, "\n".join([*diff, "If this is wanted: make screens"])


def test_each_approved_file_is_of_a_scene() -> None:
    assert {*FOLDER.glob("*.txt")} == {*map(approved, SCENES)}
    assert len({scene.name for scene in SCENES}) == len(SCENES)


def test_each_approved_text_is_read_by_a_test() -> None:
    assert unread() == []
    assert [reading for reading in readings() if not reading.test.partition("::")[2].startswith("test_")] == []
