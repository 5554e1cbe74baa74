"""Puzzles that need numpy on the built site, with a wheel in the place of numpy's; and what is said without one.

The wheel is loaded and imported as numpy's is, but computes nothing. So what runs for real is all that numpy is not
needed for: how it is found, handed over, installed and kept, and devices that wait for each other.
"""

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from puzzles.page.build import ARRAYS, numpy_files
from tests.support.commands import ROOT, solution
from tests.support.numpy_stand_in import write_wheel
from tests.support.site_game import NEEDS_SITE, SITE, Game, opened_game, write_offline_worker

pytest.importorskip("selenium.webdriver", reason="needs the extra: pip install -e '.[browser]' (make browser)")

pytestmark = NEEDS_SITE

WITHOUT_NUMPY = """
const load = window.fetch;
window.fetch = async (address, ...more) => {
  const answer = await load(address, ...more);
  if (address !== "puzzles.json") return answer;
  return new Response(JSON.stringify({ ...await answer.json(), numpy: null }));
};
"""
WITHOUT_SUSPENDING = "delete WebAssembly.Suspending;"

DEVICES = """
from lib import DeadlockError
from lib.engine.inprocess import Scheduler

totals = []

def ring(port):
    number, total = [int(port.device)], 0
    for _ in range(3):
        port.send((port.device + 1) % 4, number)
        number = port.receive((port.device - 1) % 4)
        total += number[0]
    totals.append(total)

def waits(port):
    try:
        port.receive((port.device + 1) % 4)
    finally:
        totals.append("ended")

def fails(port):
    if port.device == 2:
        raise ValueError("on purpose")
    port.receive(2)

def said(work):
    scheduler = Scheduler(4)
    scheduler.start(work)
    try:
        return scheduler.advance()
    except (DeadlockError, ValueError) as why:
        return str(why)

facts = [said(ring), totals, said(fails), said(waits).count("line 17 of your_code.py"), totals[4:]]
raise RuntimeError(repr(facts).replace("'", ""))
"""


@pytest.fixture(scope="module")
def game(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Game]:
    folder = tmp_path_factory.mktemp("site")
    with opened_game(tmp_path_factory.mktemp("profile"), with_stand_in(folder / "site")) as opened:
        yield opened


def with_stand_in(site: Path) -> Path:
    """The built site with a wheel that is none of numpy, as the builder adds numpy's."""
    shutil.copytree(SITE, site, copy_function=os.link, ignore=shutil.ignore_patterns("offline.js", "puzzles.json"))
    (folder,) = (path.name for path in site.glob("python-*"))
    lock = json.loads((site / folder / "pyodide-lock.json").read_text(encoding="utf-8"))
    wheel = write_wheel(site.parent / lock["packages"]["numpy"]["file_name"])
    for path in site.rglob("*.whl"):
        path.unlink()  # where the site has numpy itself
    shown = json.loads((SITE / "puzzles.json").read_text(encoding="utf-8"))
    shown["numpy"] = numpy_files(site, folder, wheel, ROOT / "build" / ARRAYS)
    (site / "puzzles.json").write_text(json.dumps(shown), encoding="utf-8")
    write_offline_worker(site, later=[file["address"] for file in shown["numpy"].values()])
    return site


def later_files(game: Game) -> dict[str, int]:
    """How often each file was asked for that goes with numpy."""
    return {Path(name).name: count for name, count in game.server.answered.items() if name.endswith((".whl", ARRAYS))}


def test_numpy_is_loaded_when_a_puzzle_needs_it_and_only_then(game: Game) -> None:
    game.visit("basic")
    game.until_status("not_attempted")
    game.until(lambda: game.script("return document.documentElement.dataset.spare") == "true")
    game.until(lambda: game.script("return navigator.serviceWorker.controller !== null"))
    assert later_files(game) == {}
    game.go("FSDP")
    game.type(f"import numpy\nraise RuntimeError(f'numpy {{numpy.__version__}}')\n{solution('engine/fsdp')}")
    game.until_status("failed")
    assert "numpy 0" in game.text(".verdict .message")
    assert "has no picture" in game.text(".picture")
    wheel, archive = sorted(later_files(game), key=lambda name: not name.endswith(".whl"))
    assert wheel.startswith("numpy-")
    assert archive == ARRAYS
    game.go("matmul")
    game.open("ddp")
    assert set(later_files(game).values()) == {1}


def test_devices_wait_for_each_other_in_a_browser(game: Game) -> None:
    game.go("FSDP")
    game.type(DEVICES)
    game.until(lambda: "[True, " in game.text(".verdict .message"))
    assert "[True, [3, 6, 5," in game.text(".verdict .message")
    assert "4, [ended, ended, ended," in game.text(".verdict .message")


def test_what_goes_with_numpy_is_kept_for_a_visit_without_a_network(game: Game) -> None:
    game.server.down = True
    game.visit("FSDP")
    game.until(lambda: "RuntimeError" in game.text(".verdict .message"))
    game.server.down = False
    assert set(later_files(game).values()) == {1}


def test_a_site_without_numpy_says_so_and_shows_what_there_is_to_read(game: Game) -> None:
    with game.before_the_page(WITHOUT_NUMPY):
        game.visit()
        said = [one.text for one in game.browser.find_elements("css selector", ".away")]
        assert len(said) == 2
        assert all("built without" in one for one in said)
        for slug in ("FSDP", "ffn"):
            game.go(slug)
            assert "built without" in game.text(".banner")
            assert f"puzzles start {slug}" in game.text(".banner")
            assert game.text(".starter")
        assert game.find(".sketch img").size["width"] > 100


def test_a_browser_that_cannot_suspend_python_is_told_which_can(game: Game) -> None:
    with game.before_the_page(WITHOUT_SUSPENDING):
        game.visit("FSDP")
        assert all(fact in game.text(".banner") for fact in ("wait for each other", "Chrome", "Edge", "137"))
        game.go("matmul")
        assert "puzzles start" not in game.text(".banner"), "layouts have one device only"
