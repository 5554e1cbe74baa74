"""What the site keeps, in Chromium: with storage off, in two tabs, across reloads, damaged; and addresses that are."""

import json
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest

from puzzles.page.in_browser import calls
from tests.support.commands import solution
from tests.support.site_game import NEEDS_SITE, SITE, Game, opened_game

pytest.importorskip("selenium.webdriver", reason="needs the extra: pip install -e '.[browser]' (make browser)")

from selenium.webdriver import ActionChains, Keys
from selenium.webdriver.support.select import Select

pytestmark = NEEDS_SITE


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Game]:
    with opened_game(tmp_path_factory.mktemp("profile")) as game:
        yield game


@pytest.fixture
def game(opened: Game) -> Iterator[Game]:
    """The site with nothing kept."""
    store(opened, "{}")
    yield opened
    opened.server.missing.clear()


def store(game: Game, text: str) -> None:
    """Puts a text where the site keeps its data, from a page that runs nothing."""
    game.browser.get(f"{game.server.address}licences.txt")
    game.script("localStorage.clear(); localStorage.setItem('training-puzzles', arguments[0])", text)


OFF = "Object.defineProperty(window, 'localStorage', { get() { throw new DOMException('off', 'SecurityError'); } });"
FULL = "Storage.prototype.setItem = () => { throw new DOMException('full', 'QuotaExceededError'); };"


@pytest.mark.sampled(1)
@pytest.mark.parametrize("storage", [OFF, FULL])
def test_without_room_code_stays_in_memory_and_is_saved_in_a_file(game: Game, storage: str, tmp_path: Path) -> None:
    with game.before_the_page(storage):
        game.visit("basic")
        game.until_status("not_attempted")
        game.type(solution("basic"))
        game.until(lambda: "no room" in game.text("#toast"))
        game.open("ddp")
        game.type("async def ddp(model):\n    'mine'\n")
        game.open("basic", "passed")
        assert game.code() == solution("basic")
        saved = json.loads(everything(game, tmp_path))
        assert saved["codes"] == {"basic": solution("basic"), "ddp": "async def ddp(model):\n    'mine'\n"}
    game.visit()
    assert game.kept().get("codes", {}) == {}


def stored(game: Game) -> bytes:
    """What is stored, as JavaScript writes it."""
    text = "JSON.stringify(JSON.parse(localStorage.getItem('training-puzzles')))"
    return bytes(game.script(f"return [...new TextEncoder().encode({text})]"))


def everything(game: Game, folder: Path) -> bytes:
    """The file with everything, as the menu saves it."""
    file = game.saved("Save everything in a file", folder / "training-puzzles.json")
    try:
        return file.read_bytes()
    finally:
        file.unlink()


LETTERS = [
    "a",
    "def ",
    "\n",
    "\r",
    "\r\n",
    "\f",
    "\0",
    '"',
    "\\",
    "<b>",
    "é",
    "\u2028",
    "\ufeff",
    "\ud83e\uddea",
    "\ud800",
    " ",
]


def random_store(draw: random.Random) -> dict[str, Any]:
    """What the site may have stored: also for puzzles that are gone, with texts that are not Python."""

    def text() -> str:
        return "".join(draw.choices(LETTERS, k=draw.randrange(40)))

    def some(value: Callable[[], object]) -> dict[str, object]:
        slugs = ["basic", "gpipe", "zb_h1", "FSDP", "gone", "__proto__", "constructor", text()]
        return {slug: value() for slug in draw.sample(slugs, draw.randrange(len(slugs)))}

    return {
        "codes": some(text),
        "best": some(lambda: {"stars": draw.randrange(4)}),
        "hints": some(lambda: draw.randrange(9)),
        "drafts": some(lambda: [[text() for _ in range(draw.randrange(3))] for _ in range(4)]),
        "versions": some(lambda: [{"at": draw.randrange(10**13), "text": text()} for _ in range(draw.randrange(4))]),
        "look": {"theme": draw.choice(["light", "dark"])},
    }


def test_a_file_with_everything_brings_back_every_byte(game: Game, tmp_path: Path) -> None:
    draw = random.Random(66)
    for _ in range(8):
        store(game, json.dumps(random_store(draw)))
        kept = stored(game)
        game.visit("profile")
        saved = everything(game, tmp_path)
        assert saved == kept
        game.script("localStorage.clear()")
        game.visit("profile")
        game.give(tmp_path / "mine.json", saved)
        game.until(lambda: game.script("return document.querySelector('#toast').textContent.startsWith('Opened')"))
        assert stored(game) == saved
        assert game.script("return document.documentElement.dataset.theme") == json.loads(kept)["look"]["theme"]


def test_a_file_with_everything_adds_to_what_is_there(game: Game, tmp_path: Path) -> None:
    older, newer = ({"at": at, "text": f"{at}"} for at in (1, 2))
    own = {
        "codes": {"ddp": "own", "fsdp": "same", "basic": "only here"},
        "versions": {"gpipe": [older]},
        "best": {"ddp": {"stars": 1}, "fsdp": {"stars": 3}},
        "hints": {"ddp": 2},
        "drafts": {"gpipe": [["0F0"], [], [], []]},
    }
    store(game, json.dumps(own))
    game.visit("profile")
    game.script("window.confirm = (words) => { window.asked = words; return true; }")
    given = {"codes": {"ddp": "given", "fsdp": "same", "gpipe": 7}, "versions": {"gpipe": [older, newer]},
             "drafts": {"gpipe": [["0F1"], [], [], []]},
             "best": {"ddp": {"stars": 2}, "fsdp": {"stars": 2}}, "hints": {"ddp": 1}}  # fmt: skip
    game.give(tmp_path / "mine.json", json.dumps(given).encode())
    game.until(lambda: "damaged" in game.text("#toast"))
    assert "ddp" in game.script("return window.asked")
    assert "fsdp" not in game.script("return window.asked")
    kept = game.kept()
    assert kept["codes"] == {"ddp": "given", "fsdp": "same", "basic": "only here"}
    assert [one["text"] for one in kept["versions"]["ddp"]] == ["own"]
    assert kept["versions"]["gpipe"] == [older, newer]
    assert (kept["drafts"]["gpipe"][0], table_versions(game)) == (["0F1"], ["0F0\n\n\n"])
    assert (kept["best"], kept["hints"]) == ({"ddp": {"stars": 2}, "fsdp": {"stars": 3}}, {"ddp": 2})


@pytest.mark.parametrize("text", ["{", "null", "{}", '{"name": "x"}', '{"codes": {}}', "def basic(model):"])
def test_a_file_of_something_else_changes_nothing(game: Game, tmp_path: Path, text: str) -> None:
    game.visit("profile")
    game.give(tmp_path / "other.json", text.encode())
    game.until(lambda: "other.json was not opened" in game.text("#toast"))
    assert game.kept() == {}


def test_code_is_saved_and_opened_as_files_of_python(game: Game, tmp_path: Path) -> None:
    codes = {
        "ddp": "N = 1\n\ndef ddp(model):\n    x = (\n",
        "fsdp": "N = 2\n\f\u2028def fsdp(model): return N",
        "gone": "#",
    }
    store(game, json.dumps({"codes": codes}))
    game.visit("profile")
    with ZipFile(game.saved("Save my code as .py files (zip)", tmp_path / "my_solutions.zip")) as archive:
        archive.extractall(tmp_path)
    files = {file.stem: file for file in (tmp_path / "my_solutions").iterdir()}
    assert {slug: file.read_bytes() for slug, file in files.items()} == {
        slug: code.encode() for slug, code in codes.items()
    }
    game.script("localStorage.clear()")
    game.visit("profile")
    for slug, said in (("ddp", "Opened ddp"), ("fsdp", "Opened fsdp"), ("gone", "gone.py was not opened")):
        game.give(files[slug])
        game.until(lambda said=said: said in game.text("#toast"))
    assert game.kept()["codes"] == {slug: codes[slug] for slug in ("ddp", "fsdp")}


@contextmanager
def another_tab(game: Game, fragment: str) -> Iterator[None]:
    first = game.browser.current_window_handle
    game.browser.switch_to.new_window("tab")
    try:
        game.visit(fragment)
        game.until(lambda: game.find(".cm-content"))
        yield
    finally:
        game.browser.close()
        game.browser.switch_to.window(first)


def mine(number: int) -> str:
    return f"async def gpipe(model):\n    return {number}\n"


@pytest.mark.sampled(1)
@pytest.mark.parametrize("choice", ["takenewer", "keepthis"])
def test_a_stale_tab_does_not_overwrite_and_offers_both(game: Game, choice: str) -> None:
    game.visit("gpipe")
    game.until_status("not_attempted")
    game.type(mine(1))
    game.until(lambda: game.kept()["codes"].get("gpipe") == mine(1))
    with another_tab(game, "gpipe"):
        game.until(lambda: game.code() == mine(1))
        game.type(mine(2))
        game.until(lambda: game.kept()["codes"]["gpipe"] == mine(2))
    game.until(lambda: game.find(".newer").is_displayed())
    assert "newer version" in game.text(".newer")
    game.type(mine(3))
    assert game.kept()["codes"]["gpipe"] == mine(2), "the stale tab has not overwritten it"
    game.find(f".newer .{choice}").click()
    wanted = {"takenewer": (2, 3), "keepthis": (3, 2)}[choice]
    game.until(lambda: game.code() == mine(wanted[0]))
    game.until(lambda: game.kept()["codes"]["gpipe"] == mine(wanted[0]))
    assert not game.find(".newer").is_displayed()
    assert mine(wanted[1]) in [one["text"] for one in game.kept()["versions"]["gpipe"]]


def test_a_stale_tab_that_is_left_loses_nothing(game: Game) -> None:
    game.visit("gpipe")
    game.until_status("not_attempted")
    with another_tab(game, "gpipe"):
        game.type(mine(4))
        game.until(lambda: game.kept()["codes"].get("gpipe") == mine(4))
    game.type(mine(5))
    game.open("gpipe")
    assert game.code() == mine(4)
    assert mine(5) in [one["text"] for one in game.kept()["versions"]["gpipe"]]


def test_other_puzzles_of_another_tab_stay(game: Game) -> None:
    game.visit("gpipe")
    game.until_status("not_attempted")
    with another_tab(game, "ddp"):
        game.type("x = 1\n")
        game.until(lambda: game.kept()["codes"].get("ddp") == "x = 1\n")
    game.type(mine(1))
    game.until(lambda: game.kept()["codes"].get("gpipe") == mine(1))
    assert game.kept()["codes"]["ddp"] == "x = 1\n"


def open_table(game: Game, fragment: str = "gpipe") -> None:
    game.visit(fragment)
    game.until(lambda: game.status)
    if game.find("#byhand").get_attribute("aria-pressed") == "false":
        game.find("#byhand").click()
    game.until(lambda: missing(game))


def missing(game: Game) -> int:
    """Cells that are not placed."""
    return int(game.script("return document.querySelector('.byhand').dataset.missing ?? 0"))


def place(game: Game, *cells: str) -> None:
    """Puts cells last on the ranks of their stages, with the keyboard."""
    for cell in cells:
        left = missing(game)
        game.script("arguments[0].focus()", game.find(f"[data-cell='{cell}']"))
        game.find(f"[data-cell='{cell}']").send_keys("e")
        game.until(lambda left=left: missing(game) == left - 1)


def kept_table(game: Game) -> list[list[str]] | None:
    return game.kept().get("drafts", {}).get("gpipe")


def table_versions(game: Game) -> list[str]:
    return [one["text"] for one in game.kept().get("versions", {}).get("gpipe/timetable", [])]


def test_a_timetable_by_hand_is_kept(game: Game) -> None:
    open_table(game)
    assert missing(game) == 32
    place(game, "2F0", "0F0", "2F1")
    rows = game.script("return document.querySelector('.byhand textarea').value").split("\n")
    assert [row.strip() for row in rows] == ["0F0", "", "2F0 2F1", ""], "E puts each stage on its own rank"
    open_table(game)
    assert missing(game) == 29
    store(game, json.dumps({"drafts": {"gpipe": [["9X9"], [], [], []]}}))
    open_table(game)
    game.until(lambda: missing(game) == 32)
    assert "another version" in game.text(".byhand .told")
    assert table_versions(game) == ["9X9\n\n\n"]


@pytest.mark.parametrize("shared", ["\n\n\n", "0F0\n1F0\n\n", "0F0 0F1\n\n\n"])
def test_a_timetable_of_a_link_is_kept_with_the_first_move_only(game: Game, shared: str) -> None:
    own = [["0F0"], ["1F0"], ["2F0"], ["3F0"]]
    store(game, json.dumps({"drafts": {"gpipe": own}}))
    open_table(game, calls.fragment("gpipe", "timetable", shared))
    left = 32 - len(shared.split())
    game.until(lambda: missing(game) == left)
    game.until(lambda: "somebody shared" in game.text(".byhand .told"))
    assert kept_table(game) == own
    game.find("#undo").click()
    game.until(lambda: missing(game) == 28)
    assert kept_table(game) == own
    game.find("#redo").click()
    game.until(lambda: missing(game) == left)
    place(game, "3F3")
    assert kept_table(game) == [*(row.split() for row in shared.split("\n")[:3]), ["3F3"]]
    assert "0F0\n1F0\n2F0\n3F0" in table_versions(game)


def test_a_link_to_a_timetable_that_is_only_looked_at_changes_nothing(game: Game) -> None:
    own = json.dumps({"drafts": {"gpipe": [["0F0"], [], [], []]}})
    store(game, own)
    open_table(game, calls.fragment("gpipe", "timetable", "0F1\n\n\n"))
    game.until(lambda: "somebody shared" in game.text(".byhand .told"))
    game.open("ddp")
    assert json.loads(own).items() <= game.kept().items()


@pytest.mark.parametrize("choice", ["takenewer", "keepthis"])
def test_a_stale_tab_does_not_overwrite_a_timetable(game: Game, choice: str) -> None:
    open_table(game)
    place(game, "0F0")
    with another_tab(game, "gpipe"):
        game.until(lambda: game.status)
        game.find("#byhand").click()
        game.until(lambda: missing(game) == 31)
        place(game, "1F0", "2F0")
        newer = kept_table(game)
    newer_banner = ".byhand .newer"
    game.until(lambda: game.find(newer_banner).is_displayed())
    place(game, "0F1")
    assert kept_table(game) == newer, "the stale tab has not overwritten it"
    game.find(f"{newer_banner} .{choice}").click()
    stale = [["0F0", "0F1"], [], [], []]
    wanted, other = (newer, stale) if choice == "takenewer" else (stale, newer)
    game.until(lambda: kept_table(game) == wanted and missing(game) == 32 - sum(map(len, wanted)))
    assert not game.find(newer_banner).is_displayed()
    assert "\n".join(map(" ".join, other)) in table_versions(game)


def test_an_earlier_timetable_comes_back(game: Game) -> None:
    open_table(game)
    place(game, "0F0", "1F0")
    game.find("#clear").click()
    game.until(lambda: missing(game) == 32)
    open_table(game)
    versions = Select(game.find(".byhand .versions"))
    assert versions.options[1].text.endswith("2 cells")
    versions.select_by_index(1)
    game.until(lambda: missing(game) == 30)
    assert kept_table(game) == [["0F0"], ["1F0"], [], []]


def test_an_earlier_version_comes_back_after_a_reload(game: Game) -> None:
    game.visit("gpipe")
    game.until_status("not_attempted")
    for number in range(12):
        game.type(mine(number))
        buttons = (
            "[...document.querySelectorAll('.tools button')].find((one) => one.textContent === 'Start over').click()"
        )
        game.script(buttons)
    game.visit("gpipe")
    game.until(lambda: game.status)
    texts = [one["text"] for one in game.kept()["versions"]["gpipe"]]
    assert texts == [mine(number) for number in range(2, 12)]
    versions = Select(game.find(".versions"))
    assert len(versions.options) == 11
    assert "2 lines" not in versions.options[0].text
    versions.select_by_index(3)
    game.until(lambda: game.code() == mine(9))
    game.until(lambda: game.kept()["codes"]["gpipe"] == mine(9))


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    "damage",
    ["{", "null", "[]", '"x"', '{"codes": 5}', '{"best": {"basic": {"stars": "<b>"}}}', '{"hints": {"basic": -1}}',
     '{"codes": {"basic": 3}, "versions": {"basic": [{"at": "x", "text": 1}]}}', '{"drafts": {"gpipe": "x"}}'],
)  # fmt: skip
def test_damaged_data_is_left_out_with_a_sentence(game: Game, damage: str) -> None:
    whole = {"codes": {"ddp": "x = 1\n"}, "best": {}, "hints": {}}
    stored = (
        json.dumps({**whole, **json.loads(damage)}) if damage.startswith('{"') and "codes" not in damage else damage
    )
    store(game, stored)
    game.visit("basic")
    game.until_status("not_attempted")
    if stored != "[]":  # which has nothing to lose
        assert "damaged" in game.text("#toast")
        assert game.script("return localStorage.getItem('training-puzzles-damaged')") == stored
    game.type("x = 2\n")
    game.until(lambda: game.kept()["codes"].get("basic") == "x = 2\n")
    if stored != damage:
        assert game.kept()["codes"]["ddp"] == "x = 1\n"


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("fragment", "page", "said"),
    [
        ("%", "map", "no puzzle %"),
        ("__proto__", "map", "no puzzle __proto__"),
        ("constructor/code/x", "map", "no puzzle"),
        ("gpipe/code/%%%%", "gpipe", "damaged"),
        ("gpipe/run/%00", "gpipe", "damaged"),
        ("gpipe/__proto__/x", "gpipe", "neither code, a run nor"),
        ("gpipe/code", "gpipe", ""),
        ("main", "map", "no puzzle main"),
        (calls.fragment("ddp", "timetable", "0F0"), "ddp", "no timetable by hand"),
    ],
)
def test_a_damaged_address_leads_somewhere_with_a_sentence(game: Game, fragment: str, page: str, said: str) -> None:
    game.visit(fragment)
    assert game.script("return document.querySelector('main').dataset.page") == page
    assert said in game.text("#toast")
    assert len(game.text("main")) > 200


def test_two_courses_on_one_host_share_nothing(game: Game, tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).symlink_to(SITE)
    site, game.server.site = game.server.site, tmp_path
    try:
        for name, fragment in (("a", "basic"), ("b", "ddp")):
            game.browser.get(f"{game.server.address}{name}/index.html#{fragment}")
            game.until_status("not_attempted", "passed")
            game.type(solution(fragment))
            game.until_status("passed")
            game.until(lambda: game.script("return navigator.serviceWorker.controller !== null"))
        kept = [
            json.loads(game.script(f"return localStorage.getItem('training-puzzles /{name}/')")) for name in ("a", "b")
        ]
        assert [list(one["codes"]) for one in kept] == [["basic"], ["ddp"]]
        assert [list(one["best"]) for one in kept] == [["basic"], ["ddp"]]
        names = game.browser.execute_async_script("caches.keys().then(arguments[0])")
        assert {name.split()[1] for name in names if " " in name} >= {"/a/", "/b/"}
    finally:
        game.server.site = site


def test_what_a_site_kept_before_sites_had_their_own_places_is_there(game: Game, tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to(SITE)
    store(game, json.dumps({"codes": {"gpipe": mine(1)}}))
    site, game.server.site = game.server.site, tmp_path
    try:
        game.browser.get(f"{game.server.address}a/index.html#gpipe")
        game.until(lambda: game.status)
        assert game.code() == mine(1)
    finally:
        game.server.site = site


def test_the_browser_is_asked_to_keep_what_is_stored_and_to_stay_while_something_is_not(game: Game) -> None:
    asks = "window.asked = 0; StorageManager.prototype.persist = async () => { window.asked++; return true; };"
    leaves = "const event = new Event('beforeunload', { cancelable: true }); return !dispatchEvent(event)"
    with game.before_the_page(asks):
        game.visit("gpipe")
        game.until_status("not_attempted")
        assert game.script("return window.asked") == 0
        game.type(mine(1))
        game.until(lambda: game.kept().get("codes", {}).get("gpipe") == mine(1))
        assert game.script("return window.asked") == 1
        assert game.script(leaves) is False
    with another_tab(game, "gpipe"):
        game.type(mine(2))
        game.until(lambda: game.kept()["codes"]["gpipe"] == mine(2))
    game.until(lambda: game.find(".newer").is_displayed())
    assert game.script(leaves) is True
    game.find(".newer .takenewer").click()
    assert game.script(leaves) is False
    with game.before_the_page(FULL):
        game.visit("gpipe")
        game.until(lambda: game.status)
        game.type(mine(3))
        game.until(lambda: game.script(leaves))


def test_the_last_of_two_quick_routes_is_shown_and_the_map_keeps_its_scroll(game: Game) -> None:
    game.visit()
    game.script("scrollTo(0, 900)")
    long = calls.fragment("gpipe", "code", "# " + "long " * 300_000)
    game.script("location.hash = arguments[0]; setTimeout(() => { location.hash = 'ddp'; });", long)
    game.until_status("not_attempted")
    assert game.script("return [location.hash, document.querySelector('main').dataset.page]") == ["#ddp", "ddp"]
    assert "Distributed" in game.text("h1")
    game.script("location.hash = ''")
    game.until(lambda: game.script("return document.querySelector('main').dataset.page") == "map")
    assert game.script("return scrollY") == 900


def test_how_to_leave_the_editor_with_the_keyboard_is_said(game: Game) -> None:
    game.visit("gpipe")
    game.until_status("not_attempted")
    game.judge(mine(1))  # until then Escape may end a completion that was asked for while typing
    assert game.find(".keys").is_displayed()
    assert "Escape" in game.text(".keys")
    assert game.script("return document.activeElement.getAttribute('aria-describedby')") == "keys"
    ActionChains(game.browser).send_keys(Keys.ESCAPE, Keys.TAB).perform()
    game.until(lambda: game.script("return document.activeElement.textContent") == "Run")


def elsewhere(game: Game, name: str) -> str:
    """The site at another origin, where no service worker has kept it."""
    return game.server.address.replace("127.0.0.1", f"{name}.localhost")


def test_without_the_list_of_puzzles_there_is_a_sentence_and_a_way_on(game: Game) -> None:
    game.server.missing = {"puzzles.json"}
    game.browser.get(elsewhere(game, "list"))
    game.until(lambda: "could not be loaded" in game.text("main"))
    game.server.missing = set()
    game.find("main button").click()
    game.until(lambda: game.script("return document.querySelector('main')?.dataset.page") == "map")


def test_without_its_script_the_page_says_so(game: Game) -> None:
    game.server.missing = {"main.js"}
    game.browser.get(elsewhere(game, "script"))
    game.until(lambda: "be loaded completely" in game.text("main"))


def test_where_python_cannot_be_loaded_the_verdict_says_why(game: Game) -> None:
    game.server.missing = {path.relative_to(SITE).as_posix() for path in SITE.glob("python-*/game.zip")}
    game.browser.get(f"{elsewhere(game, 'python')}#ddp")
    game.until(lambda: game.status == "broken")
    assert "game.zip: 404" in game.text(".verdict .message")
    assert "reload" in game.text(".verdict .next")
    assert len(game.text(".sheet")) > 200


def test_a_host_that_forbids_the_sandbox_is_named(game: Game) -> None:
    game.server.policy = "script-src 'self' blob: 'wasm-unsafe-eval'"
    try:
        game.browser.get(f"{elsewhere(game, 'policy')}#ddp")
        game.until(lambda: game.status == "broken")
    finally:
        game.server.policy = ""
    assert "Content-Security-Policy" in game.text(".verdict .message")


def test_skipping_to_the_puzzle_keeps_its_address(game: Game) -> None:
    game.visit("gpipe")
    game.script("document.querySelector('.skip').click()")
    assert game.script("return [location.hash, document.activeElement.id]") == ["#gpipe", "main"]


@pytest.mark.parametrize("lacking", ["DecompressionStream", "WebAssembly", "Object.hasOwn"])
def test_a_browser_that_is_too_old_is_told_so(game: Game, lacking: str) -> None:
    with game.before_the_page(f"delete window.{lacking};"):
        game.browser.get("about:blank")
        game.browser.get(game.server.address)
        game.until(lambda: "too old" in game.text("main"))
        assert "Firefox" in game.text("main")
