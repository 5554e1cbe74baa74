"""The built site, served on the loopback interface, as a player uses it in Chromium: typing, waiting for a verdict."""

import gzip
import json
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from email.utils import formatdate
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from puzzles.page.build import PARS, offline_worker
from tests.support.chromium import IS_HERE, complaints, open_browser
from tests.support.commands import ROOT

SITE = Path(os.environ.get("PUZZLES_SITE", ROOT / "site"))
IS_REQUIRED = os.environ.get("PUZZLES_BROWSER") == "required"

NEEDS_SITE = [
    pytest.mark.slow,
    pytest.mark.skipif(not IS_HERE, reason="needs chromium and chromedriver on the PATH"),
    pytest.mark.skipif(not (IS_REQUIRED or SITE.is_dir()), reason="needs the built site: make site"),
]

PATIENCE = 40
"""Seconds until a test gives up; it goes on as soon as what it waits for has come."""


TYPES = {".html": "text/html", ".js": "text/javascript", ".mjs": "text/javascript", ".css": "text/css",
         ".json": "application/json", ".wasm": "application/wasm", ".svg": "image/svg+xml", ".zip": "application/zip",
         ".whl": "application/octet-stream", ".txt": "text/plain",
         ".webmanifest": "application/manifest+json"}  # fmt: skip


@cache
def compressed(path: Path) -> bytes:
    return gzip.compress(path.read_bytes(), 6)


@contextmanager
def answering(get: Callable[[BaseHTTPRequestHandler], None]) -> Iterator[str]:
    """The address, on the loopback interface, of a server that answers each request with a function."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            get(self)

        do_POST = do_OPTIONS = do_GET

        def log_message(self, format: str, *given: object) -> None:
            """Nothing is logged."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class SiteServer:
    """What serves a site: `get` answers a request.

    `sent` has the compressed bytes and `answered` the answers by path; `missing` names files that are not served.
    Another `site` is a new version; `policy` is a Content-Security-Policy that the host adds.
    """

    def __init__(self, site: Path) -> None:
        self.site = site
        self.sent: Counter[str] = Counter()
        self.answered: Counter[str] = Counter()
        self.down = False
        self.policy = ""
        self.missing: set[str] = set()
        self.address = ""
        for path in site.rglob("*"):
            if path.is_file() and path.suffix in TYPES:
                compressed(path)

    def get(self, request: BaseHTTPRequestHandler) -> None:
        name = request.path.partition("?")[0].strip("/") or "index.html"
        path = self.site / name
        if self.down or name in self.missing or not path.is_file():
            return request.send_error(503 if self.down else 404)
        data = compressed(path)
        self.sent[name] += len(data)
        self.answered[name] += 1
        request.send_response(200)
        request.send_header("Content-Type", TYPES[path.suffix])
        request.send_header("Content-Encoding", "gzip")
        request.send_header("Last-Modified", formatdate(path.stat().st_mtime, usegmt=True))
        request.send_header("Content-Length", str(len(data)))
        if self.policy:
            request.send_header("Content-Security-Policy", self.policy)
        request.end_headers()
        request.wfile.write(data)
        return None


class Game:
    """The site, as somebody uses it. Python is loaded once for all tests of the module."""

    def __init__(self, browser: Any, server: SiteServer) -> None:
        self.browser, self.server = browser, server

    def until(self, condition: Callable[[], Any]) -> Any:
        from selenium.webdriver.support.wait import WebDriverWait

        return WebDriverWait(self.browser, PATIENCE, 0.05).until(lambda _: condition())

    def script(self, text: str, *given: object) -> Any:
        return self.browser.execute_script(text, *given)

    def find(self, selector: str) -> Any:
        return self.browser.find_element("css selector", selector)

    def text(self, selector: str) -> str:
        return str(self.script("return document.querySelector(arguments[0])?.textContent ?? ''", selector))

    def go(self, fragment: str) -> None:
        """Opens another part of the page, as a link on it does. Where the page is not open yet, it is loaded."""
        if not self.script("return document.querySelector('main') !== null"):
            return self.visit(fragment)
        self.script("location.hash = ''")
        self.until(lambda: self.script("return document.querySelector('main')?.dataset.page") == "map")
        self.script("location.hash = arguments[0]", fragment)
        page = fragment.split("/")[0] or "map"
        self.until(lambda: self.script("return document.querySelector('main')?.dataset.page") == page)

    def open(self, fragment: str, *status: str) -> None:
        self.go(fragment)
        self.until_status(*(status or ("not_attempted", "passed", "over_target", "failed")))

    def visit(self, fragment: str = "") -> None:
        """Loads the page anew, at a part of it."""
        self.browser.get("about:blank")
        self.browser.get(f"{self.server.address}#{fragment}")
        self.until(lambda: self.script("return document.querySelector('main')?.dataset.page"))

    @property
    def status(self) -> str:
        return str(self.script("return document.querySelector('.verdict')?.dataset.status ?? ''"))

    @property
    def stars(self) -> int:
        return int(self.script("return document.querySelector('.verdict').dataset.stars"))

    @property
    def verdicts(self) -> int:
        """How many there were so far."""
        return int(self.script("return Number(document.querySelector('main').dataset.verdicts ?? 0)"))

    def until_status(self, *wanted: str) -> None:
        self.until(lambda: self.status in wanted and not self.is_running)

    @property
    def is_running(self) -> bool:
        return bool(self.script("return document.querySelector('main')?.dataset.running ?? ''"))

    def type(self, text: str) -> None:
        """Types a text over the code, as an input method enters it."""
        from selenium.webdriver import ActionChains, Keys

        self.until(lambda: self.browser.find_elements("css selector", ".cm-content"))
        self.find(".cm-content").click()
        ActionChains(self.browser, duration=0).key_down(Keys.CONTROL).send_keys("a").key_up(Keys.CONTROL).perform()
        self.browser.execute_cdp_cmd("Input.insertText", {"text": text})

    def code(self) -> str:
        self.until(lambda: self.browser.find_elements("css selector", ".cm-content"))
        return str(self.script("return document.querySelector('.cm-content').cmTile?.view?.state.doc.toString() ?? "
                               "document.querySelector('.cm-content').cmView.view.state.doc.toString()"))  # fmt: skip

    def play(self, slug: str, text: str, *status: str) -> None:
        """Opens a puzzle, types a code, and waits for the verdict on it."""
        self.open(slug)
        self.judge(text, *status)

    def judge(self, text: str, *status: str) -> None:
        """Types another code, which runs in the same Python, and waits for the verdict on it."""
        before = self.verdicts
        self.type(text)
        self.until(lambda: self.verdicts > before)
        self.until_status(*(status or ("passed", "over_target", "failed")))

    def menu_item(self, name: str) -> None:
        """Chooses something in a menu; a link that it copies is in the page's data."""
        self.script("delete document.documentElement.dataset.link; window.prompt = () => null")
        items = "[...document.querySelectorAll('#menu button')]"
        self.script(f"{items}.find((one) => one.textContent === arguments[0]).click()", name)

    def saved(self, name: str, file: Path) -> Path:
        """The file that a menu item saves."""
        behavior = {"behavior": "allow", "downloadPath": str(file.parent)}
        self.browser.execute_cdp_cmd("Browser.setDownloadBehavior", behavior)
        self.menu_item(name)
        self.until(file.is_file)
        return file

    def give(self, file: Path, data: bytes | None = None) -> None:
        """Opens a saved file from the menu."""
        if data is not None:
            file.write_bytes(data)
        self.find("#menu input[type=file]").send_keys(str(file))

    @contextmanager
    def before_the_page(self, script: str) -> Iterator[None]:
        """Every document that is loaded meanwhile runs a script before its own."""
        made = self.browser.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": script})
        try:
            yield
        finally:
            self.browser.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", made)

    def complaints(self) -> list[str]:
        return complaints(self.browser)

    def kept(self) -> dict[str, Any]:
        return dict(json.loads(self.script("return localStorage.getItem('training-puzzles') ?? '{}'")))


@contextmanager
def opened_game(profile: Path, site: Path = SITE) -> Iterator[Game]:
    """The site in a browser of its own."""
    assert site.is_dir(), "there is no site to test; run 'make site'"
    server = SiteServer(site)
    with answering(server.get) as address:
        server.address = f"http://{address}/"
        browser = open_browser(profile)
        try:
            yield Game(browser, server)
        finally:
            browser.quit()


def write_offline_worker(site: Path, later: Sequence[str] = ()) -> None:
    """The service worker of a site whose files a test has changed."""
    names = sorted(path.relative_to(site).as_posix() for path in site.rglob("*") if path.is_file())
    served = [name for name in names if not name.startswith((".", "licences", "docs", "offline"))]
    pars = [name for name in served if name.startswith(f"{PARS}/")]
    (site / "offline.js").write_text(offline_worker(site, served, [*later, *pars]), encoding="utf-8")
