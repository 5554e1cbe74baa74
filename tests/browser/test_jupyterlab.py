"""A player at a real browser: JupyterLab, headless Chromium, a wrong solution and then a right one."""

from __future__ import annotations

import os
import secrets
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from puzzles.catalog.puzzle import END_OF_GAP
from puzzles.catalog.schedule import PUZZLES
from tests.support.chromium import IS_HERE, open_browser
from tests.support.kernel import ROOT

WHY = "needs the extra: pip install -e '.[browser]' (make browser); and chromium and chromedriver"
if not all(map(find_spec, ("jupyterlab", "selenium"))):  # without importing them, which takes seconds
    pytest.skip(WHY, allow_module_level=True)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not IS_HERE and not os.environ.get("PUZZLES_BROWSER"), reason=WHY),
]
"""PUZZLES_BROWSER=required makes a missing browser an error, as in CI."""

PATIENCE = 60
"""Seconds to wait for anything that the browser should show."""


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[str]:
    """The address of a JupyterLab that serves fresh notebooks; it ends with the test."""
    from puzzles.player.authoring import books

    work = tmp_path / "work"
    work.mkdir()
    for book in books():
        (work / book.file).write_text(book.text, encoding="utf-8")
    with closing(socket.socket()) as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    token = secrets.token_hex(16)
    private = {f"JUPYTER_{name}_DIR": str(tmp_path / name.lower()) for name in ("CONFIG", "DATA", "RUNTIME")}
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    command = [sys.executable, "-m", "jupyter", "lab", "--no-browser", f"--port={port}", "--ServerApp.port_retries=0"]
    command += ["--allow-root", f"--ServerApp.root_dir={work}", f"--IdentityProvider.token={token}"]
    log = tmp_path / "lab.log"
    with log.open("w") as out:
        server = subprocess.Popen(
            [*command, "--LabApp.news_url=None", "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate"],
            stdout=out,
            stderr=out,
            env={**os.environ, **private, "PYTHONPATH": path},
            cwd=work,
        )
        try:
            yield f"http://127.0.0.1:{port}/lab/tree/01_puzzles.ipynb?token={token}"
        finally:
            server.terminate()
            server.wait(timeout=20)


@pytest.fixture
def page(lab: str, tmp_path: Path) -> Iterator[Page]:
    browser = open_browser(tmp_path / "profile", 1400, 1000)
    try:
        yield Page(browser, lab)
    finally:
        if folder := os.environ.get("PUZZLES_SCREENSHOTS"):
            browser.save_screenshot(f"{folder}/browser_test.png")
        browser.quit()


class Page:
    """JupyterLab's page, as far as a player needs it."""

    def __init__(self, browser: Any, address: str) -> None:
        self.browser = browser
        from selenium.common.exceptions import TimeoutException

        self._open(address)
        try:
            self._until_notebook()
        except TimeoutException:  # a JupyterLab that has just started may forget which file it was asked for
            self._open(address)
            self._until_notebook()

    def _until_notebook(self) -> None:
        self.until(lambda: self.ask("return !!document.querySelector('.jp-Notebook .jp-CodeCell')"), "the notebook")

    def _open(self, address: str) -> None:
        from selenium.common.exceptions import WebDriverException

        def opened() -> bool:
            try:
                self.browser.get(address)
            except WebDriverException:  # the server is not up yet
                return False
            return True

        self.until(opened, "the server")

    def until(self, holds: Any, what: str) -> Any:
        """The answer of `holds`, as soon as it is something."""
        from selenium.webdriver.support.ui import WebDriverWait

        wait = WebDriverWait(self.browser, PATIENCE, poll_frequency=0.1)
        return wait.until(lambda _: holds(), f"waited in vain for {what}")

    def ask(self, script: str, *arguments: Any) -> Any:
        return self.browser.execute_script(script, *arguments)

    def cell(self, beginning: str) -> Any:
        """The code cell whose text begins so; scrolled to, since JupyterLab draws only what is in sight."""
        script = """
            const [beginning] = arguments;
            for (const cell of document.querySelectorAll('.jp-Notebook .jp-CodeCell')) {
                const text = [...cell.querySelectorAll('.cm-line')].map(line => line.textContent).join('\\n');
                if (text.startsWith(beginning)) { cell.scrollIntoView({block: 'center'}); return cell; }
            }
            const panel = document.querySelector('.jp-WindowedPanel-outer') || document.querySelector('.jp-Notebook');
            const before = panel.scrollTop;
            panel.scrollTop = before + 500;
            if (panel.scrollTop === before) panel.scrollTop = 0;
            return null;"""
        return self.until(lambda: self.ask(script, beginning), f"a cell that begins with {beginning!r}")

    def run(self, beginning: str, text: str | None = None) -> None:
        """Clicks into a cell, replaces what stands there by a text if one is given, and presses Ctrl+Enter."""
        from selenium.webdriver.common.action_chains import ActionChains
        from selenium.webdriver.common.keys import Keys

        def press_control(key: str) -> ActionChains:
            return ActionChains(self.browser).key_down(Keys.CONTROL).send_keys(key).key_up(Keys.CONTROL)

        self.cell(beginning).find_element("css selector", ".cm-content").click()
        if text is not None:
            press_control("a").send_keys(Keys.DELETE).perform()
            # As one input event, because an editor that helps with brackets and indentation is not what is tested here.
            self.browser.execute_cdp_cmd("Input.insertText", {"text": text})
        press_control(Keys.ENTER).perform()

    def result(self, beginning: str, status: str) -> Any:
        """The text that a play shows below its cell, once it is of that status, and True if its picture is seen."""
        script = """
            const [cell, status] = arguments;
            const page = cell.querySelector(`.training-puzzles[data-status="${status}"]`);
            if (!page) return null;
            const svg = page.querySelector('svg');
            const box = svg ? svg.getBoundingClientRect() : {width: 0, height: 0};
            return {text: page.innerText, stars: page.querySelector('[aria-label$="stars"]').textContent,
                    picture: [box.width, box.height], shapes: svg ? svg.querySelectorAll('path').length : 0};"""
        return self.until(lambda: self.ask(script, self.cell(beginning), status), f"a result that is {status}")


WRONG = PUZZLES["basic"].starter.replace(
    END_OF_GAP,
    "activations[1] = model.forward(0, activations[0], weights[0])\n"
    "    activations[2] = model.forward(1, activations[0], weights[1])\n"
    f"    {END_OF_GAP}",
)
BEST = (
    (ROOT / PUZZLES["basic"].goal.records[0].by)
    .read_text(encoding="utf-8")
    .partition("from lib import Model")[2]
    .strip()
)
PLAY = 'await play("basic"'
PUPPY = "return document.querySelectorAll('.three-stars svg g').length === 1"


def test_a_player_is_wrong_and_then_right(page: Page) -> None:
    from puzzles.player.authoring import solution_or_starter
    from puzzles.tracks import reference_file

    page.run("# Makes the puzzles importable")
    page.run("from lib import")
    sketches = (
        "return [...document.querySelectorAll('.jp-RenderedMarkdown img')].filter(i => i.naturalWidth > 90).length"
    )
    page.cell("def basic")
    page.until(lambda: page.ask(sketches), "the sketch of what to build")

    page.run("def basic", WRONG)
    page.run(PLAY)
    wrong = page.result(PLAY, "failed")
    assert wrong["stars"] == "☆☆☆"
    assert "rank 0, t=4, forward(layer=1):" in wrong["text"]
    assert "model.forward(1, activations[0], weights[1])" in wrong["text"]
    assert "Traceback" not in wrong["text"]
    assert min(wrong["picture"]) > 100
    assert wrong["shapes"] > 5

    page.run("def basic", solution_or_starter(PUZZLES["basic"], reference_file("basic")))
    page.run(PLAY)
    right = page.result(PLAY, "passed")
    assert right["stars"] == "★★★"
    assert "16.5 timesteps" in right["text"]
    assert min(right["picture"]) > 100

    page.run("def basic", BEST)
    page.run(PLAY)
    page.until(lambda: page.ask(PUPPY), "the reward for three stars")
    assert page.result(PLAY, "passed")["stars"] == "★★★"


DRAWN = "from lib import run_async\nfrom drawing import draw"


def tooltips(page: Page) -> list[str]:
    """What the browser shows when the pointer is on a named shape of the picture below the imports' cell."""
    script = """
        const picture = arguments[0].querySelector('.jp-OutputArea-output svg, .jp-OutputArea-output img');
        if (!picture) return null;
        picture.scrollIntoView({block: 'center'});
        const found = ['a picture'];
        for (const title of picture.querySelectorAll('* > * > title')) {
            const shape = title.parentNode, box = shape.getBoundingClientRect();
            const hit = document.elementFromPoint(box.left + box.width / 2, box.top + box.height / 2);
            if (hit && shape !== picture && shape.contains(hit)) found.push(title.textContent);
        }
        return found;"""
    return list(page.until(lambda: page.ask(script, page.cell(DRAWN.splitlines()[0])), "the picture"))


def test_the_shapes_of_a_picture_have_tooltips(page: Page) -> None:
    page.run("# Makes the puzzles importable")
    program = (
        f"{DRAWN}\n\n\nasync def one(model):\n"
        "    weights, _ = model.load_weights(0)\n"
        "    model.forward(0, model.get_activation([0]), weights)\n\n\n"
        "draw(await run_async(one, 1, 1, 1))"
    )
    page.run("from lib import", program)
    assert [words for words in tooltips(page) if "forward" in words and "layer 0" in words]
