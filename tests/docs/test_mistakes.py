"""docs/mistakes.md and the screens in README.md are drawn from the approved screens, and are current."""

from __future__ import annotations

import pytest

from docs.generate import screens
from docs.generate.gallery import FOLDER
from puzzles import version
from puzzles.catalog.path import CORE
from tests.screens.scenes import MISTAKES
from tests.support.commands import ROOT


@pytest.mark.parametrize("name", screens.SHOWN)
def test_the_picture_of_a_screen_is_current_and_loads_nothing(name: str) -> None:
    file = FOLDER / f"screen_{name}.svg"
    drawn = file.read_text(encoding="utf-8")
    assert drawn == screens.picture(name), "make docs"
    assert "url(" not in drawn.replace("url(#", "")
    assert f"docs/pictures/{file.name}" in (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_page_of_mistakes_is_current() -> None:
    assert screens.PAGE.read_text(encoding="utf-8") == screens.page(), "make docs"


def test_a_page_is_at_its_address_or_in_the_clone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(version, "_addresses", dict)
    assert (version.page("mistakes"), version.page("no_such_page")) == ("docs/mistakes.md", "")
    monkeypatch.setattr(version, "_addresses", lambda: {"Documentation": "https://acme.example/docs/"})
    assert version.page("mistakes") == "https://acme.example/docs/mistakes/"


def test_there_are_twenty_mistakes_in_the_order_of_the_path() -> None:
    places = [CORE.index(mistake.path.partition("/")[0]) for mistake in MISTAKES]
    assert len({mistake.path for mistake in MISTAKES}) == 20
    assert places == sorted(places)
