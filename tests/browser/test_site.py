"""The built site in a real browser, on the loopback interface: play by typing, links, the timetable, a phone, offline.

`make site` builds it; without it the tests are skipped, or fail where PUZZLES_BROWSER=required.
"""

import json
import re
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any
from xml.etree import ElementTree
from zipfile import ZipFile

import pytest
from PIL import Image, ImageChops, ImageStat

from puzzles.catalog.path import CORE
from puzzles.page.in_browser import calls
from puzzles.tracks import ALL, reference_file
from tests.support.commands import ROOT, solution
from tests.support.pages import read_link
from tests.support.profiles import TRACES
from tests.support.site_game import NEEDS_SITE, SITE, Game, opened_game

pytest.importorskip("selenium.webdriver", reason="needs the extra: pip install -e '.[browser]' (make browser)")

from selenium.webdriver import ActionChains, Keys

pytestmark = NEEDS_SITE
CONTRAST = (ROOT / "tests" / "support" / "contrast.js").read_text(encoding="utf-8")
MAX_SECONDS, MOST_BYTES = 8, 10_000_000
"""The budget of the first visit: from opening to the first verdict, and all that is transferred, compressed."""
WARM = 0.3
"""Seconds from pressing Run to a verdict, once Python is there."""


@pytest.fixture(scope="module")
def game(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Game]:
    with opened_game(tmp_path_factory.mktemp("profile")) as opened:
        yield opened


def test_the_first_visit_keeps_to_its_budget(game: Game) -> None:
    begin = time.perf_counter()
    game.browser.get(f"{game.server.address}#basic")
    game.until(lambda: game.script("return document.querySelector('.verdict progress') !== null"))
    assert "MB" in game.text(".verdict") or "starting" in game.text(".verdict")
    game.until_status("not_attempted")
    seconds = min(time.perf_counter() - begin, seconds_of_work(game.browser.service.process.pid))
    sent = sum(game.server.sent.values())
    print(f"first verdict {seconds:.1f} s after opening; {sent / 1e6:.1f} MB transferred")
    assert seconds < MAX_SECONDS
    assert 5_000_000 < sent < MOST_BYTES
    assert game.complaints() == []
    game.until(lambda: game.script("return navigator.serviceWorker.controller !== null"))
    twice = {name for name, count in game.server.answered.items() if count > 1}
    assert twice <= {"icon.svg"}, "a browser asks for the icon of its tab as often as it likes"
    hosts = game.script("return performance.getEntriesByType('resource').map((entry) => new URL(entry.name).origin)")
    assert {*hosts} == {game.server.address.rstrip("/")}


def test_what_python_imports_at_the_start_is_compiled() -> None:
    (file,) = SITE.glob("python-*/python_stdlib.zip")
    with ZipFile(file) as library:
        names = set(library.namelist())
    assert {"typing.pyc", "asyncio/events.pyc", "_pyodide/_base.pyc", "plistlib.py", "encodings/cp437.pyc"} <= names
    assert not {"typing.py", "plistlib.pyc", "unittest/mock.py", "encodings/big5.py"} & names


def seconds_of_work(parent: int) -> float:
    """Seconds for which the processes below one have computed, on all cores. Where other programs are running too, that
    is what the visit would have taken without them."""
    psutil = pytest.importorskip("psutil")
    return sum(sum(one.cpu_times()[:2]) for one in psutil.Process(parent).children(recursive=True))


def test_a_classic_is_solved_by_typing_key_by_key(game: Game) -> None:
    """Indentation and closing brackets come from the editor; '<' here is Backspace, which goes back one level."""
    game.open("basic")
    game.type("from lib import Model\n\n\ndef basic(model: Model) -> Model:\n    # mine")
    keys = ActionChains(game.browser, duration=0)
    for line in typed_lines():
        if line == ")":  # the editor has put it on the next line already
            keys.send_keys(Keys.ARROW_DOWN, Keys.END)
            continue
        keys.send_keys(Keys.ENTER)
        keys.send_keys(Keys.BACKSPACE * (len(line) - len(line.lstrip("<"))), line.lstrip("<"))
    keys.perform()
    game.until_status("passed")
    assert game.stars >= 2
    assert "        weights[layer], " in game.code()
    assert game.kept()["best"]["basic"]["stars"] == game.stars
    assert game.complaints() == []


def typed_lines() -> list[str]:
    """The reference solution from its second statement on, as keys: without indentation, but '<' for each level that a
    line is further left than the editor puts it."""
    lines = solution("basic").rstrip().splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("def basic")) + 1
    level, keys = 1, []
    for line in filter(str.strip, lines[start:]):
        own = (len(line) - len(line.lstrip())) // 4
        keys.append(")" if line.strip() == ")" else "<" * max(level - own, 0) + line.strip())
        level = own + line.rstrip().endswith((":", "("))
    return keys


def test_a_classic_and_a_modern_puzzle_are_solved(game: Game) -> None:
    for slug in ("gpipe", "zb_h1"):
        game.open(slug)
        game.type(solution(slug))
        game.until_status("passed")
        assert game.stars >= 2
        game.until(lambda: "You have built" in game.text(".next"))
        game.until(lambda: "any schedule needs" in game.text(".story"))
        assert game.until(lambda: game.script("return document.querySelector('canvas')?.dataset.drawn"))
    assert "27" in game.text(".verdict")
    assert "★★" in game.text("#stars")
    took = min(seconds_of_a_verdict(game) for _ in range(3))
    print(f"a verdict on zb_h1 takes {1000 * took:.0f} ms once Python is loaded")
    assert took < WARM
    assert game.complaints() == []


def test_the_reference_is_shown_beside_a_solution(game: Game) -> None:
    line = "for layer in reversed(range(model.LAYERS)):"
    game.play("ddp", solution("ddp").replace(line, "for layer in range(model.LAYERS)[::-1]:"), "passed")
    game.find("#compare").click()
    game.until(lambda: game.text(".differing"))
    assert "- " in game.text(".differing .mine")
    assert f"+     {line}" in game.text(".differing .theirs")
    assert game.until(lambda: game.script("return document.querySelector('.picture .scrolls img')?.naturalWidth")) > 300
    assert game.complaints() == []
    game.find("#uncompare").click()
    game.until(lambda: game.script("return document.querySelector('canvas')?.dataset.drawn"))


@pytest.mark.slow
def test_the_core_path_is_played_from_the_first_puzzle_on(game: Game) -> None:
    """Only what the page offers is pressed: begin, and then the next puzzle after each pass. Without numpy there are no
    puzzles on real tensors."""
    game.visit()
    kept = game.script("return localStorage.getItem('training-puzzles')")
    game.script("localStorage.clear()")
    game.visit()
    assert game.text(".stop[href='#ddp'] .mark") == "core"
    assert game.text(".stop[href='#wsdp'] .mark") == "extra"
    game.find(".begin a").click()
    played = [slug for slug in CORE if ALL[slug].name in ("schedule", "plan")]
    walked = []
    for _ in ["warm_up", *played]:
        game.until_status("not_attempted")
        slug = game.script("return location.hash.slice(1)")
        walked.append(slug)
        text = game.code().replace("# Send activations[2] to rank 1.", "await model.pass_to(1, activations[2])")
        reference = reference_file(slug)
        game.type(text if reference is None else reference.read_text(encoding="utf-8"))
        game.until_status("passed")
        game.find(".headline .go").click()
        game.until(lambda slug=slug: game.script("return document.querySelector('main').dataset.page") != slug)
    assert walked == ["warm_up", *played]
    game.open("fsdp")
    assert "Core 7 of" in game.text(".place")
    assert "zero1; the same on" in game.text(".place")
    game.script("localStorage.setItem('training-puzzles', arguments[0])", kept)
    game.visit()


def test_a_plan_is_shown_as_a_picture_and_shared(game: Game) -> None:
    game.play("mixtral_64", (ROOT / "solutions" / "plan" / "mixtral_64.py").read_text(encoding="utf-8"), "passed")
    widths = "const image = document.querySelector('.picture img'); return [image?.naturalWidth, image?.clientWidth]"
    game.until(lambda: (game.script(widths)[0] or 0) > 300)
    assert len({*game.script(widths)}) == 1, "at its own size, so that its labels can be read"
    game.menu_item("Film of the run (GIF)")
    game.until(lambda: "no film" in game.text("#toast"))
    game.menu_item("Copy a link to the run only")
    made = game.until(lambda: game.script("return document.documentElement.dataset.link"))
    game.open(made.partition("#")[2], "passed")
    assert game.stars >= 2
    assert game.complaints() == []


def test_before_anything_has_run_the_run_of_the_reference_is_shown_as_par(game: Game) -> None:
    game.go("zero1")
    game.until(lambda: game.script("return document.querySelector('.par canvas')?.dataset.drawn"))
    assert game.script("return getComputedStyle(document.querySelector('.par canvas')).filter") == "grayscale(1)"
    assert "Par, the run of" in game.text(".picture")
    game.menu_item("Copy a link to the run only")
    game.until(lambda: "no picture yet" in game.text("#toast"))
    game.type(solution("zero1"))
    game.until_status("passed")
    game.until(lambda: "Par, " not in game.text(".picture"))


@pytest.mark.parametrize("width", [1440, 1280, 390])
def test_no_line_of_a_starter_and_no_sketch_is_cut(game: Game, width: int) -> None:
    with screen(game, width, 900):
        for slug in ("gpipe", "vocab_parallel", "three_d"):
            game.go(slug)
            tab = lambda name: game.script(f"document.querySelector('.tabs [data-tab={name}]').click()")  # noqa: E731
            tab("Code")
            game.until(lambda: game.browser.find_elements("css selector", ".cm-content"))
            inside = "const box = document.querySelector(arguments[0]); return box.scrollWidth <= box.clientWidth"
            assert game.script(inside, ".cm-scroller")
            tab("Statement")
            game.until(lambda: game.script("return document.querySelector('.sketch img').naturalWidth"))
            assert game.script(inside, ".sketch .scrolls")
            larger = game.find(".sketch button")
            if larger.is_displayed():
                game.script("arguments[0].click()", larger)
                sizes = (
                    "const image = document.querySelector('.sketch img'); return image.clientWidth - image.naturalWidth"
                )
                game.until(lambda sizes=sizes: game.script(sizes) == 0)


def test_judging_is_said_stopped_and_left(game: Game) -> None:
    """A plan of 128 stages and 128 microbatches is judged for some seconds on any machine."""
    plan = (ROOT / "solutions" / "plan" / "llama_405b_16384.py").read_text(encoding="utf-8")
    game.go("llama_405b_16384")
    game.type(re.sub(r"Split\(.*\)", "Split(dp=16, pp=128, tp=8)", plan))
    game.until(lambda: game.status == "judging")
    game.find(".stop-run").click()
    game.until_status("stopped")
    assert "you stopped it" in game.text(".verdict")
    game.find(".run").click()
    game.until(lambda: game.status == "judging")
    game.open("zero1", "passed", "not_attempted")


def test_the_run_button_gets_a_fresh_python(game: Game) -> None:
    count = "import lib\nlib.seen = getattr(lib, 'seen', 0) + 1\nprint('run', lib.seen)\n"
    game.open("zero1")
    game.type(count + solution("zero1"))
    game.until(lambda: game.text(".printed pre") == "run 1\n" and not game.is_running)
    game.type(count + solution("zero1") + "# changed\n")
    game.until(lambda: game.text(".printed pre") == "run 2\n" and not game.is_running)
    game.find(".run").click()
    game.until(lambda: game.text(".printed pre") == "run 1\n")


def seconds_of_a_verdict(game: Game) -> float:
    """From pressing Run to the verdict, or as long as all processes have computed for it."""
    game.until(lambda: not game.is_running)
    before = seconds_of_work(game.browser.service.process.pid)
    took = game.browser.execute_async_script(
        """const done = arguments[0], verdict = document.querySelector(".verdict"), begin = performance.now();
        new MutationObserver(() => done(performance.now() - begin)).observe(verdict, { childList: true });
        document.querySelector(".run").click();"""
    )
    return min(took / 1000, seconds_of_work(game.browser.service.process.pid) - before)


def test_a_mistake_is_marked_at_its_line(game: Game) -> None:
    game.open("ddp")
    game.type(solution("ddp").replace("model.forward(layer,", "model.forward(layer + 1,"))
    game.until_status("failed")
    line = 1 + game.code().split("model.forward(layer + 1,")[0].count("\n")
    assert f"Line {line}: " in game.text(".verdict .message")
    assert "forward(layer=" in game.text(".verdict .message")
    assert "Par, the run of" in game.text(".picture"), "only weights were loaded"
    marked = game.until(lambda: game.find(".cm-lintRange-error"))
    assert "model.forward" in marked.text
    game.type("async def ddp(model)\n    pass")
    game.until(lambda: "valid Python" in game.text(".verdict .message"))


def test_calls_are_completed_with_their_parameters_and_meaning(game: Game) -> None:
    game.open("zero2")
    game.type("async def zero2(model):\n    model")
    game.find(".cm-content").send_keys(".pas")
    listed = lambda: game.text(".cm-tooltip-autocomplete li[aria-selected]")  # noqa: E731
    game.until(lambda: listed() == "pass_to(rank, v, tag=0)")
    game.until(lambda: "Sends any object" in game.text(".cm-completionInfo"))
    accept = lambda: bool(listed()) and game.find(".cm-content").send_keys(Keys.ENTER)  # noqa: E731
    game.until(lambda: "model.pass_to()" in game.code() or accept())
    game.type("async def zero2(model):\n    ")
    game.find(".cm-content").send_keys(Keys.F1)
    game.until(lambda: "await model.allgather(v, layer)" in game.text(".cm-tooltip-autocomplete"))
    game.find(".cm-content").send_keys(Keys.ESCAPE)
    game.type("async def zero2(model):\n    model.scatterreduce\n")
    word = game.until(lambda: next((one for one in game.browser.find_elements("css selector", ".cm-line span, .cm-line")
                                    if one.text.strip() == "model.scatterreduce"), None))  # fmt: skip
    ActionChains(game.browser, duration=20).move_to_element_with_offset(word, 60 - word.size["width"] // 2, 0).perform()
    game.until(lambda: "model.scatterreduce(v, layer, group=None)" in game.text(".help code"))
    assert "reduce-scatter" in game.text(".help p")
    assert game.complaints() == []


def test_an_endless_loop_is_stopped_by_the_button_and_by_the_limit(game: Game) -> None:
    game.open("grad_accum")
    game.type("async def grad_accum(model):\n    print('begun', model.rank)\n    while True:\n        pass\n")
    printed = lambda: game.text(".printed:not([hidden]) pre")  # noqa: E731
    game.until(lambda: game.is_running and "begun 0" in printed())
    game.find(".stop-run").click()
    game.until_status("stopped")
    assert "you stopped it" in game.text(".verdict")
    assert any(f"Line {line} was running" in game.text(".verdict") for line in (3, 4))
    assert printed() == "begun 0\n"
    game.until(lambda: game.find(".cm-lintRange-error"))
    game.find(".run").click()
    game.until(lambda: game.is_running)
    game.until_status("stopped")
    assert "longer than" in game.text(".verdict")
    assert "begun 0" in printed()
    game.type("async def grad_accum(model):\n    x = 1\n    y = sum(range(10**12))\n    return x + y\n")
    game.until(lambda: "Line 3 was running" in game.text(".verdict"))
    assert printed() == ""
    game.type(solution("grad_accum"))  # Python is there again
    game.until_status("passed")


def test_what_is_printed_is_cut(game: Game) -> None:
    game.open("grad_accum")
    game.type("async def grad_accum(model):\n    while True:\n        print('x' * 99)\n")
    game.until(lambda: game.text(".printed pre").endswith("is not shown"))
    game.find(".stop-run").click()
    game.until_status("stopped")
    assert 100_000 < len(game.text(".printed pre")) < 100_100


def test_a_link_to_code_opens_read_only_and_can_be_made_ones_own(game: Game) -> None:
    text = solution("fsdp")
    game.open(calls.fragment("fsdp", "code", text), "unrun")
    assert game.code() == text
    assert "Run" in game.text(".verdict .next")
    game.find(".run").click()
    game.until_status("passed")
    assert game.find(".cm-content").get_attribute("contenteditable") == "false"
    assert "fsdp" not in game.kept().get("codes", {})
    assert "fsdp" not in game.kept().get("best", {})
    game.find(".banner button").click()
    game.until(lambda: game.kept()["codes"].get("fsdp") == text)
    game.until(lambda: game.script("return document.querySelector('.cm-content')?.contentEditable") == "true")
    game.until_status("passed")
    game.menu_item("Copy a link to my code")
    made = game.until(lambda: game.script("return document.documentElement.dataset.link"))
    assert read_link(made) == ("fsdp", "code", text)


def test_a_link_to_a_run_is_verified_on_opening(game: Game) -> None:
    game.open("zb_h1", "passed")
    game.menu_item("Copy a link to the run only")
    made = game.until(lambda: game.script("return document.documentElement.dataset.link"))
    slug, kind, trace = read_link(made)
    assert (slug, kind) == ("zb_h1", "run")
    game.open(made.partition("#")[2], "passed")
    assert game.browser.find_elements("css selector", ".cm-content") == []
    forged = json.loads(trace)
    del forged["operations"][0][-1]
    game.open(calls.fragment("zb_h1", "run", json.dumps(forged)), "failed")
    game.open(calls.fragment("zb_h1", "run", "[1, 2]"), "failed")
    assert "cannot be judged" in game.text(".verdict")


def test_a_damaged_link_says_so_and_opens_the_puzzle(game: Game) -> None:
    game.open(f"{calls.fragment('ddp', 'code', solution('ddp'))[:-40]}")
    assert "damaged" in game.text("#toast")
    assert "while" not in game.code()


def test_the_timetable_becomes_code_and_code_the_timetable(game: Game) -> None:
    game.open("one_f_one_b")
    game.type(solution("one_f_one_b"))
    game.until_status("passed")
    figures = game.text(".verdict .meter")
    game.find("#byhand").click()
    game.until(lambda: game.script("return document.querySelector('.byhand').dataset.missing") == "64")
    game.find("#readcode").click()
    game.until(lambda: game.script("return document.querySelector('.byhand').dataset.missing") == "0")
    rows = game.script("return document.querySelector('.byhand textarea').value").splitlines()
    assert rows[3].split() == [f"3{op}{batch}" for batch in range(8) for op in "FB"]
    game.script("window.confirm = () => true")
    game.find("#write").click()
    game.until(lambda: "Plays the timetable above" in game.code())
    game.until(lambda: game.status == "passed" and not game.is_running)
    assert game.text(".verdict .meter") == figures
    assert "3F0 3B0 3F1 3B1" in game.code()


def test_cells_are_put_by_keyboard_and_by_pointer_and_illegal_places_say_why(game: Game) -> None:
    game.open("gpipe")
    game.find("#byhand").click()
    missing = lambda: game.script("return document.querySelector('.byhand').dataset.missing")  # noqa: E731
    game.until(lambda: missing() == "32")
    cell = game.find("[data-cell='0F0']")
    game.script("arguments[0].focus()", cell)
    cell.send_keys(Keys.ENTER)
    game.until(lambda: "on rank 0" in game.text(".byhand .told"))
    cell.send_keys(Keys.ENTER)
    game.until(lambda: missing() == "31")
    drag(game, "0B0", "[data-rank='0'] .slots", 55)
    game.until(lambda: missing() == "30")
    drag(game, "0F1", "[data-rank='0'] .slots", 1)
    game.until(lambda: missing() == "29")
    assert game.script("return document.querySelector('.byhand textarea').value").splitlines()[0] == "0F1 0F0 0B0"
    drag(game, "0B1", "[data-rank='1'] .slots", 5)
    game.until(lambda: "is on rank 0" in game.text(".byhand .told.wrong"))
    assert missing() == "29"
    game.find("#write").click()
    game.until(lambda: "not placed yet" in game.text(".byhand .told.wrong"))
    game.find("#undo").click()
    game.until(lambda: missing() == "30")


def test_a_timetable_shows_its_figures_while_it_is_made_and_travels_as_a_link(game: Game) -> None:
    game.open("interleaved")
    game.find("#byhand").click()
    game.until(lambda: game.script("return document.querySelector('.byhand').dataset.missing"))
    game.find("#clear").click()
    placed = lambda: game.text(".verdict .headline")  # noqa: E731
    press = "const ghost = document.querySelector(arguments[0]); ghost?.click(); return ghost !== null"
    for number, cell in enumerate(("0F0", "1F0", "2F0", "3F0", "4F0"), 1):
        game.until(lambda cell=cell: game.script(press, f"[data-ghost='{cell}']"))
        game.until(lambda number=number: placed().startswith(f"{number} of "))
    assert placed().startswith("5 of ")
    assert "Makespan 5" in game.text(".verdict .live")
    assert "lower bound" in game.text(".verdict .meter")
    assert game.find(".slots [data-cell='4F0']").get_attribute("data-chunk") == "1", "the second stage of rank 0"
    ready = game.find("[data-ghost='5F0']")
    assert (ready.text, ready.get_attribute("data-chunk")) == ("5F0", "1"), "a move that is ready has its stage too"
    ActionChains(game.browser, duration=20).move_to_element(ready).perform()
    game.until(lambda: "Makespan 5 → 6" in game.text(".byhand .told"))
    ActionChains(game.browser, duration=20).move_to_element(game.find("#undo")).perform()
    game.until(lambda: "to be placed" in game.text(".byhand .told"))
    game.find("[data-cell='0F1']").click()
    game.until(lambda: "0F1 on rank 0" in game.text(".byhand .told"))
    ActionChains(game.browser, duration=20).move_to_element_with_offset(
        game.find("[data-rank='1'] .rank"), 30, 0
    ).perform()
    ActionChains(game.browser, duration=20).move_to_element(game.find("[data-cell='1F0']")).perform()
    game.until(lambda: "is on rank 0" in game.text(".byhand .told"))
    game.find("[data-cell='0F1']").send_keys(Keys.ESCAPE)
    game.until(lambda: "to be placed" in game.text(".byhand .told"))
    game.until(lambda: game.script("return document.querySelector('canvas')?.dataset.drawn"))
    cell = game.find("[data-cell='0F1']")
    game.script("arguments[0].focus()", cell)
    cell.send_keys(Keys.ENTER)
    game.until(
        lambda: "Makespan 5 → " in game.text(".byhand .told") or "Makespan 5 as before" in game.text(".byhand .told")
    )
    cell.send_keys(Keys.ESCAPE)
    game.find("#undo").click()
    game.until(lambda: placed().startswith("4 of "))
    game.find("#redo").click()
    game.until(lambda: placed().startswith("5 of "))
    game.script("delete document.documentElement.dataset.link; window.prompt = () => null")
    game.find("#handlink").click()
    link = game.until(lambda: game.script("return document.documentElement.dataset.link"))
    assert read_link(link)[:2] == ("interleaved", "timetable")
    game.find("#clear").click()
    game.until(lambda: placed().startswith("0 of "))
    game.go(link.partition("#")[2])
    game.until(lambda: placed().startswith("5 of "))
    assert "somebody shared" in game.text(".byhand .told")
    game.find("#undo").click()
    game.until(lambda: placed().startswith("0 of "))
    assert game.complaints() == []


def drag(game: Game, cell: str, place: str, x: int) -> None:
    chip, target = game.find(f"[data-cell='{cell}']"), game.find(place)
    game.script("arguments[0].scrollIntoView({ block: 'center' })", target)
    to = x - target.size["width"] // 2
    ActionChains(game.browser, duration=50).click_and_hold(chip).move_to_element_with_offset(target, to, 0).perform()
    game.until(lambda: game.script("return document.querySelector('.aim') !== null"))
    ActionChains(game.browser, duration=50).move_by_offset(1, 0).release().perform()


CLUSTER = """
from lib import referee
from lib.planning import Job, Split, gpu, plan, transformer
from lib.pipelines.solver import solve

found = solve(3, 5, forward=1.1, backward_weight=0.7, send=0.1, memory=3, effort=0.05, proof_seconds=0)
print(found.span, found.makespan, referee(found.trace()).makespan)
for row in str(found.table).splitlines():
    print(row)
made = plan(Job(transformer("llama-3-8b"), gpu("h100"), 8, 16, sequence=2048), Split(dp=4, pp=2))
print(made.seconds, made.mfu, made.peak, len(made.trace.ranks))
"""


def test_the_solver_and_the_planner_say_the_same_in_the_browser(game: Game) -> None:
    told = StringIO()
    with redirect_stdout(told):
        exec(CLUSTER, {})
    wanted = told.getvalue().splitlines()
    assert len(wanted) == 1 + 3 + 1
    game.open("basic")
    game.type(CLUSTER + solution("basic"))
    game.until(lambda: game.text(".printed pre").count("\n") == len(wanted) and not game.is_running)
    assert game.status == "passed"
    assert game.text(".printed pre").splitlines() == wanted
    assert game.complaints() == []


def test_pictures_and_films_are_files_that_show_the_run(game: Game, tmp_path: Path) -> None:
    game.open("gpipe")
    game.type(solution("gpipe"))
    game.until_status("passed")
    game.until(lambda: game.script("return document.querySelector('.story').textContent"))
    game.browser.execute_cdp_cmd("Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(tmp_path)})
    files = {}
    for name, ending in (("Picture (PNG)", "png"), ("Picture (SVG)", "svg"), ("Film of the run (GIF)", "gif"),
                         ("Film of the run (WebP)", "webp")):  # fmt: skip
        game.menu_item(name)
        files[ending] = tmp_path / f"gpipe.{ending}"
        game.until(files[ending].is_file)
    width, height = is_svg_of_gpipe(files["svg"])
    assert files["png"].read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    with Image.open(files["png"]) as png:
        assert png.size == (2 * width, 2 * height)
        assert len(png.convert("RGB").getcolors(1 << 24)) > 50
        assert ImageStat.Stat(png.convert("L")).stddev[0] > 10
    assert files["gif"].read_bytes().startswith(b"GIF89a")
    with Image.open(files["gif"]) as gif:
        assert gif.size == tuple(game.script("const c = document.querySelector('canvas'); return [c.width, c.height]"))
        assert gif.n_frames == 60
        shown = []
        for number in (0, 29, 59):
            gif.seek(number)
            shown.append(gif.convert("RGB").resize((64, 64)).tobytes())
        assert len(set(shown)) == 3
        assert gif.info["duration"] == 2000, "the last frame stays"
    assert 5 * files["webp"].stat().st_size < files["gif"].stat().st_size
    with Image.open(files["webp"]) as film, Image.open(files["gif"]) as gif:
        assert (film.size, film.n_frames) == (gif.size, 60)
        for number in (0, 29, 59):
            film.seek(number)
            gif.seek(number)
            apart = ImageChops.difference(film.convert("L"), gif.convert("L"))
            assert ImageStat.Stat(apart).mean[0] < 2, "the same picture, without the loss of a palette"
        assert film.info["duration"] == 2000
    assert game.complaints() == []


def is_svg_of_gpipe(path: Path) -> tuple[int, int]:
    """The size of the picture in pixels."""
    picture = ElementTree.fromstring(path.read_text(encoding="utf-8"))
    assert picture.tag == "{http://www.w3.org/2000/svg}svg"
    tips = ["".join(title.itertext()) for title in picture.iter("{http://www.w3.org/2000/svg}title")]
    assert any(tip.startswith("rank 3: backward layer 7 b3") for tip in tips)
    return round(float(picture.get("width", "0"))), round(float(picture.get("height", "0")))


def phone(game: Game) -> AbstractContextManager[None]:
    return screen(game, 390, 844, True)


@contextmanager
def screen(game: Game, width: int, height: int, mobile: bool = False) -> Iterator[None]:
    metrics = {"width": width, "height": height, "deviceScaleFactor": 1 + mobile, "mobile": mobile}
    game.browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    try:
        yield
    finally:
        game.browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_the_page_keeps_to_a_phones_width(game: Game) -> None:
    game.open("gpipe")
    game.type(solution("gpipe"))
    game.until_status("passed")
    with phone(game):
        for fragment in ("zb_v", "gpipe", "ffn"):
            game.go(fragment)
            wide = game.script(
                "return [...document.querySelectorAll('body *')].filter((one) => !one.closest('.cm-scroller, .scrolls, "
                "pre, .skip, #tip, .toast, .menu') && one.getBoundingClientRect().right > 391)"
                ".map((one) => one.outerHTML.slice(0, 120))"
            )
            assert wide == []
        game.open("gpipe", "passed")
        game.find("[data-tab=Picture]").click()
        game.until(lambda: 300 < game.script("return document.querySelector('canvas').clientWidth") < 391)


def test_a_phone_shows_the_statement_the_code_or_the_picture(game: Game) -> None:
    with phone(game):
        game.open("gpipe", "passed")
        shown = {"Statement": [".sheet"], "Code": [".editor", ".verdict"], "Picture": [".verdict", "#timeline"]}
        for tab, parts in shown.items():
            game.find(f"[data-tab={tab}]").click()
            every = {".sheet", ".editor", ".verdict", "#timeline"}
            assert [one for one in every if game.find(one).is_displayed()] == [one for one in every if one in parts]
            assert game.find(f"button[data-tab={tab}]").get_attribute("aria-pressed") == "true"
            top = game.script("return document.querySelector(arguments[0]).getBoundingClientRect().top", parts[0])
            assert top < 300
        assert game.script("return document.querySelector('.calls').open") is False


@pytest.mark.parametrize("slug", ["gpipe", "zb_h1"])
def test_code_verdict_and_picture_are_above_the_fold_of_a_laptop(game: Game, slug: str) -> None:
    with screen(game, 1366, 768):
        game.open(slug, "passed")
        game.until(lambda: game.script("return document.querySelector('canvas')?.dataset.drawn"))
        assert game.script("return document.documentElement.scrollTop") == 0
        bottoms = {
            one: game.script("return document.querySelector(arguments[0]).getBoundingClientRect().bottom", one)
            for one in (".sheet", ".cm-editor", ".tools", ".verdict")
        }
        assert {one for one, bottom in bottoms.items() if bottom > 768} == set()
        canvas = game.find("#timeline").rect
        assert canvas["y"] < 380, "the rows of all ranks have 130 pixels"
        assert canvas["x"] > game.find(".cm-editor").rect["x"]


def test_what_a_button_opens_is_in_view(game: Game) -> None:
    with screen(game, 1366, 768):
        game.play("ddp", solution("ddp").replace("model.forward(layer,", "model.forward(layer + 1,"), "failed")
        game.script("[...document.querySelectorAll('.headline button')].at(-1).click()")
        inside = "const b = document.querySelector(arguments[0]).getBoundingClientRect();"
        inside += "return b.height > 0 && b.top >= 0 && b.bottom <= innerHeight"
        assert game.script(inside, ".hints .hint")
        game.find(".hints button:not([hidden])").click()
        assert game.script(inside, ".hints .hint:last-of-type")
        game.open("gpipe", "passed")
        game.find("#byhand").click()
        game.until(lambda: game.script("return document.querySelector('.byhand').dataset.missing"))
        assert game.script(inside, ".byhand .grid")
        assert not game.find(".cm-editor").is_displayed(), "the timetable takes the place of the code"
        game.find("#byhand").click()
        assert game.find(".cm-editor").is_displayed()
        game.go("interleaved")
        game.find("#byhand").click()
        game.until(lambda: game.script("return document.querySelector('.byhand').dataset.missing"))
        game.find("#clear").click()
        game.until(lambda: game.script("return document.querySelector('.byhand').dataset.missing") == "128")
        game.find(".byhand summary").click()
        game.until(lambda: game.script(inside, ".byhand textarea"))
        assert game.script(inside, "#taketext")


def test_the_first_screen_has_a_schedule_that_moves_and_a_puzzle_of_one_line(game: Game) -> None:
    game.go("")
    game.until(lambda: game.script("return document.querySelector('.moving canvas')?.dataset.drawn"))
    curtain = "return getComputedStyle(document.querySelector('.curtain'), '::after').transform"
    seen = {game.script(curtain)}
    game.until(lambda: game.script(curtain) not in seen)
    drawn = "return document.querySelector('.moving canvas').dataset.drawn"
    assert game.script(drawn) == game.script(drawn), "what moves is not drawn again"
    game.open("warm_up", "not_attempted")
    game.type(game.code().replace("# Send activations[2] to rank 1.", "await model.pass_to(1, activations[2])"))
    game.until_status("passed")
    assert game.stars == 3
    assert "Next: " in game.text(".verdict")
    assert game.complaints() == []


def test_everything_that_can_be_used_has_a_name(game: Game) -> None:
    for fragment in ("", "gpipe", "ffn"):
        game.go(fragment)
        nodes = game.browser.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
        used = [node for node in nodes if node.get("role", {}).get("value") in ("button", "link", "textbox", "slider")]
        assert len(used) > 5
        assert [node for node in used if not node.get("name", {}).get("value", "").strip()] == []


@pytest.mark.sampled(1)
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_text_has_enough_contrast(game: Game, theme: str) -> None:
    # What is moving or fading in is not measured.
    still = {"features": [{"name": "prefers-reduced-motion", "value": "reduce"}]}
    game.browser.execute_cdp_cmd("Emulation.setEmulatedMedia", still)
    if game.script("return document.documentElement.dataset.theme") != theme:
        game.find("#light").click()
    texts: dict[str, list[dict[str, Any]]] = {}

    def look(where: str) -> None:
        assert game.script("return document.documentElement.dataset.theme") == theme
        texts[where] = game.script(CONTRAST)

    game.go("")
    look("map")
    game.go("ffn")
    look("ffn")
    game.open("one_f_one_b")
    game.type(f"# A comment\ntext, number, yes = 'text', 12.5, True\n{solution('one_f_one_b')}")
    game.until_status("passed")
    game.until(lambda: game.text(".story"))
    game.find("#byhand").click()
    game.until(lambda: game.script("return document.querySelector('.byhand').dataset.missing"))
    game.find("#clear").click()
    game.until(lambda: game.script("return document.querySelector('.byhand').dataset.missing") == "64")
    game.find("#readcode").click()
    game.until(lambda: game.script("return document.querySelector('.byhand').dataset.missing") == "0")
    game.script("for (const one of document.querySelectorAll('details')) one.open = true")
    game.script("document.querySelector('.hints button').click()")
    look("by hand")
    game.find("#byhand").click()
    look("passed")
    for colour in ("microbatch", "operation"):
        game.script("const by = document.querySelector('#colour'); by.value = arguments[0]; by.onchange()", colour)
        look(colour)
    game.open("ddp")
    game.type(solution("ddp").replace("model.forward(layer,", "model.forward(layer + 1,"))
    game.until_status("failed")
    game.find(".cm-content").send_keys(Keys.CONTROL, "a")
    game.until(lambda: game.script("return document.querySelector('.cm-selectionBackground') !== null"))
    look("failed")
    game.type(solution("ddp").replace("del activations[layer], grad_activations[layer + 1]", "pass"))
    game.until_status("over_target")
    look("over target")
    game.script("location.hash = 'no_such_puzzle'")
    game.until(lambda: "no puzzle" in game.text("#toast.shown"))
    game.until(lambda: game.script("return getComputedStyle(document.querySelector('#toast')).opacity") == "1")
    look("toast")
    assert {where: len(found) > 20 for where, found in texts.items()} == dict.fromkeys(texts, True)
    assert any("forward" in one["words"] for one in texts["passed"] if one["path"].startswith("SPAN"))
    faint = {
        (one["path"], one["words"], round(one["ratio"], 2), where)
        for where, found in texts.items()
        for one in found
        if one["ratio"] < one["least"]
    }
    assert sorted(faint) == []
    game.browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def test_it_works_without_a_network_after_the_first_visit(game: Game) -> None:
    game.until(lambda: game.script("return navigator.serviceWorker.controller !== null"))
    game.server.down = True
    try:
        game.browser.get(f"{game.server.address}?again#ddp")
        game.until(lambda: game.status)
        game.type(solution("ddp"))
        game.until_status("passed")
    finally:
        game.server.down = False


def test_traces_of_an_own_run_stay_in_the_browser(game: Game) -> None:
    game.browser.get(f"{game.server.address}#profile")
    game.until(lambda: game.script("return document.documentElement.dataset.python") == "ready")
    before = sum(game.server.answered.values())
    paths = sorted((TRACES / "1f1b_slow").iterdir())
    game.find("#traces").send_keys("\n".join(map(str, paths)))
    game.until(lambda: "Schedule: 1F1B" in game.text("#profile pre"))
    assert "Rank 2 computes" in game.text("#profile li")
    game.find("#profile li button").click()
    game.until(lambda: "backward" in game.text("#profile #told") and "rank 2" in game.text("#profile #told"))
    assert sum(game.server.answered.values()) == before
    assert game.complaints() == []
    game.find("#traces").send_keys(str(TRACES / "1f1b" / "rank2.json.gz"))
    game.until(lambda: "second file of rank" in game.text("#profile-state"))
    assert game.complaints() == []
