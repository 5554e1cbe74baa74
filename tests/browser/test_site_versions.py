"""A new version of the site while a page of the older one is open: it plays on, and the next visit has the new one."""

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.commands import solution
from tests.support.site_game import NEEDS_SITE, SITE, Game, opened_game, write_offline_worker

pytest.importorskip("selenium.webdriver", reason="needs the extra: pip install -e '.[browser]' (make browser)")

pytestmark = NEEDS_SITE

HASHED = re.compile(r"(?:(?<=chunk-)|(?<=editor-))[A-Z0-9]{8}|(?<=python-)[0-9a-f]{12}")
"""In the names of files and folders, what follows from their content."""


def next_version(site: Path) -> Path:
    """A version in which every file that is named after its content has another name."""
    shutil.copytree(SITE, site, copy_function=os.link)
    for path in [path for path in site.iterdir() if path.suffix in (".js", ".html")]:
        text = HASHED.sub(lambda name: name[0][::-1], path.read_text(encoding="utf-8"))
        path.unlink()
        path.with_name(HASHED.sub(lambda name: name[0][::-1], path.name)).write_text(text, encoding="utf-8")
    for folder in site.glob("python-*"):
        folder.rename(site / HASHED.sub(lambda name: name[0][::-1], folder.name))
    index = site / "index.html"
    index.write_text(index.read_text(encoding="utf-8").replace("<html ", '<html data-version="2" '), encoding="utf-8")
    write_offline_worker(site)
    return site


@pytest.fixture
def game(tmp_path: Path) -> Iterator[Game]:
    """An open page, with a newer version of the site published and waiting."""
    with opened_game(tmp_path / "profile") as game:
        game.visit("basic")
        game.until(lambda: game.script("return navigator.serviceWorker.controller !== null"))
        game.server.site = next_version(tmp_path / "site")
        game.visit()
        game.until(lambda: is_waiting(game))
        yield game


def is_waiting(game: Game) -> bool:
    asked = (
        "const done = arguments[0]; navigator.serviceWorker.getRegistration().then((one) => done(Boolean(one.waiting)))"
    )
    return bool(game.browser.execute_async_script(asked))


def version(game: Game) -> str:
    return str(game.script("return document.documentElement.dataset.version ?? '1'"))


def plays(game: Game) -> None:
    game.play("ddp", solution("ddp") + f"# version {version(game)}\n", "passed")
    game.find("#compare").click()
    game.until(lambda: game.text(".differing"))
    game.play("gpipe", solution("gpipe") + f"# version {version(game)}\n", "passed")


def test_the_older_version_plays_on_and_the_next_visit_has_the_new_one(game: Game) -> None:
    assert version(game) == "1"
    plays(game)
    assert game.complaints() == []
    game.visit("gpipe")
    game.until(lambda: version(game) == "2")
    game.until(lambda: game.status == "passed")
    plays(game)
    assert len(game.browser.execute_async_script("caches.keys().then(arguments[0])")) == 1
    game.server.down = True
    game.visit("ddp")
    game.until(lambda: game.status == "passed")
    assert version(game) == "2"


def test_the_new_version_waits_for_a_page_of_the_older_one(game: Game) -> None:
    first = game.browser.current_window_handle
    game.browser.switch_to.new_window("tab")
    game.visit("gpipe")
    game.until_status("not_attempted")
    assert version(game) == "1"
    game.browser.switch_to.window(first)
    plays(game)
    game.script("navigator.locks.request('open', () => new Promise(() => {}))")
    game.browser.close()
    game.browser.switch_to.window(game.browser.window_handles[0])
    # A closed page counts as open until the browser has ended it; a busy machine does that late. Then its lock is free.
    game.browser.execute_async_script("navigator.locks.request('open', arguments[0].bind(null, null))")
    game.visit("gpipe")
    game.until(lambda: version(game) == "2")
    game.until(lambda: game.status == "passed")
