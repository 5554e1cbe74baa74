"""The web page in a real browser, driven by keyboard and pointer; and every picture opens without a complaint."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from docs.generate import gallery
from drawing import Timeline, draw, save
from drawing.files import size_of
from lib import Setting, run
from puzzles.catalog.schedule import PUZZLES
from tests.catalog.lessons.families.grid import grid
from tests.support.chromium import IS_HERE, complaints, open_browser

pytest.importorskip("selenium.webdriver", reason="needs the extra: pip install -e '.[browser]' (make browser)")

from selenium.webdriver import ActionChains, Keys
from selenium.webdriver.common.actions import interaction
from selenium.webdriver.common.actions.action_builder import ActionBuilder
from selenium.webdriver.common.actions.pointer_input import PointerInput
from selenium.webdriver.support.select import Select
from selenium.webdriver.support.wait import WebDriverWait

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not IS_HERE, reason="needs chromium and chromedriver on the PATH"),
]

PATIENCE = 20
"""Seconds until a test gives up; it goes on as soon as what it waits for has come."""


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    driver = open_browser(tmp_path_factory.mktemp("profile"), 1200)
    yield driver
    driver.quit()


class Page:
    """The page of a run, as somebody uses it."""

    def __init__(self, browser: Any, folder: Path, picture: Timeline) -> None:
        self.browser = browser
        save(picture, folder / "run.html")
        browser.get((folder / "run.html").as_uri())
        self.canvas = browser.find_element("id", "timeline")
        self.until(lambda: self.data("drawn") is not None)

    def data(self, name: str) -> str | None:
        return self.canvas.get_attribute(f"data-{name}")

    def numbers(self, name: str) -> list[int]:
        return [int(word) for word in (self.data(name) or "").split(",") if word]

    def span(self) -> float:
        return float(self.data("to") or 0) - float(self.data("from") or 0)

    def told(self) -> str:
        return self.browser.find_element("id", "told").text

    def press(self, *keys: str) -> None:
        self.canvas.send_keys(*keys)

    def click(self, name: str) -> None:
        self.browser.find_element("id", name).click()

    def until(self, condition: Callable[[], Any]) -> None:
        WebDriverWait(self.browser, PATIENCE, 0.02).until(lambda _: condition())

    def named(self, name: str) -> list[str]:
        """The highlighted operations in words, without their times."""
        script = "return JSON.parse(document.getElementById('run').textContent).words"
        words = self.browser.execute_script(script)
        return [words[number].split(",")[0] for number in self.numbers(name)]


@pytest.fixture
def gpipe(browser: Any, tmp_path: Path) -> Page:
    return Page(browser, tmp_path, draw(gallery.solved("gpipe"), "GPipe", goal=PUZZLES["gpipe"].goal))


def test_the_keyboard_alone_shows_what_an_operation_needs(gpipe: Page) -> None:
    for _ in range(20):  # Tab goes through the bar to the timeline
        gpipe.browser.switch_to.active_element.send_keys(Keys.TAB)
        if gpipe.browser.switch_to.active_element == gpipe.canvas:
            break
    assert gpipe.browser.switch_to.active_element == gpipe.canvas
    gpipe.press(Keys.ARROW_DOWN)
    gpipe.until(lambda: gpipe.told().startswith("rank 0: forward layer 0 b0, t=0 to 1"))
    gpipe.press(Keys.ARROW_RIGHT)
    gpipe.until(lambda: gpipe.told().startswith("rank 0: forward layer 1 b0, t=1 to 2"))
    assert "forward layer 0 b0." in gpipe.told()
    gpipe.press(Keys.ARROW_RIGHT)
    gpipe.until(lambda: gpipe.told().startswith("rank 0: send to rank 1"))
    gpipe.press("u")
    gpipe.until(lambda: gpipe.told().startswith("rank 1: receive from rank 0"))
    gpipe.until(lambda: gpipe.named("needs") == ["rank 0: send to rank 1"])
    assert gpipe.named("users") == ["rank 1: forward layer 2 b0", "rank 1: backward layer 2 b0"]
    gpipe.press("n")
    gpipe.until(lambda: gpipe.told().startswith("rank 0: send to rank 1"))
    gpipe.press(Keys.END)
    gpipe.until(lambda: gpipe.told().startswith("rank 0: update layer 1"))
    gpipe.press(Keys.ARROW_DOWN)
    gpipe.until(lambda: gpipe.told().startswith("rank 1:"))
    gpipe.press(Keys.ESCAPE)
    gpipe.until(lambda: gpipe.data("chosen") == "-1")
    assert complaints(gpipe.browser) == []


def test_ranks_that_share_a_row_are_one_place_to_go(browser: Any, tmp_path: Path) -> None:
    """Ten pipelines of two stages are two rows, with the messages of the first."""
    setting = Setting(mesh={"dp": 10, "pp": 2})
    trace = run(grid(2, 1, 10), 2, 20, 20, setting=setting).trace
    page = Page(browser, tmp_path, draw(trace, critical=True))
    page.press(Keys.ARROW_RIGHT)
    page.until(lambda: page.told().startswith("rank 0 (like ranks 2, 4, 6, 8, 10, 12, 14, 16, 18): forward layer 0 b0"))
    page.press(Keys.ARROW_RIGHT, "u")
    page.until(lambda: page.told().startswith("rank 1 (like ranks 3, 5, 7,"))
    page.until(lambda: [name.partition(" (")[0] for name in page.named("needs")] == ["rank 0"])
    page.press(Keys.ARROW_DOWN)  # there is no third row
    page.until(lambda: page.told().startswith("rank 1 (like"))
    page.press("c")
    page.until(lambda: browser.find_element("id", "critical").get_attribute("aria-pressed") == "true")
    assert "10" in browser.find_element("css selector", "pre").get_attribute("textContent")
    assert complaints(browser) == []


def test_zoom_and_pan_keep_to_the_run(gpipe: Page) -> None:
    whole = gpipe.span()
    assert whole == pytest.approx(33.8)
    gpipe.press("+", "+")
    gpipe.until(lambda: gpipe.span() < whole / 2)
    close = gpipe.span()
    gpipe.press(Keys.SHIFT, Keys.ARROW_LEFT, Keys.ARROW_LEFT, Keys.ARROW_LEFT, Keys.ARROW_LEFT)
    gpipe.until(lambda: float(gpipe.data("from") or 1) == 0)
    assert gpipe.span() == pytest.approx(close)
    gpipe.press("-", "-", "-")
    gpipe.until(lambda: gpipe.span() == pytest.approx(whole))
    gpipe.click("closer")
    gpipe.until(lambda: gpipe.span() < whole)
    gpipe.click("whole")
    gpipe.until(lambda: gpipe.span() == pytest.approx(whole))


def test_pointing_describes_a_mark_and_a_gap_gives_its_reason(gpipe: Page) -> None:
    width, height = gpipe.canvas.size["width"], gpipe.canvas.size["height"]
    lane = 26 + 46 / 2 - height / 2  # the middle of the first lane, from that of the canvas
    point = ActionChains(gpipe.browser, duration=0)
    point.move_to_element_with_offset(gpipe.canvas, 75 - width // 2, round(lane)).perform()
    gpipe.until(lambda: gpipe.told().startswith("rank 0: forward layer 0 b0"))
    gpipe.until(lambda: "rank 0: forward layer 1 b0" in gpipe.named("users"))
    point.move_to_element_with_offset(gpipe.canvas, 0, round(lane)).perform()
    gpipe.until(lambda: "waits for rank 1" in gpipe.told())
    assert gpipe.browser.find_element("id", "tip").text.startswith("rank 0 idle, t=8.8 to 23.4: waits for rank 1")


def test_the_keyboard_and_a_tap_give_the_reason_of_a_gap(gpipe: Page) -> None:
    gpipe.press(Keys.ARROW_RIGHT, Keys.ARROW_DOWN)  # rank 1 begins idle
    gpipe.press(Keys.ARROW_LEFT)
    gpipe.until(lambda: gpipe.told().startswith("rank 1 idle, t=0 to 2.2: waits for rank 0 to send"))
    gpipe.press(Keys.ARROW_RIGHT)
    gpipe.until(lambda: gpipe.told().startswith("rank 1: receive from rank 0"))
    height = gpipe.canvas.size["height"]
    touch = ActionBuilder(gpipe.browser, mouse=PointerInput(interaction.POINTER_TOUCH, "finger"), duration=0)
    touch.pointer_action.move_to(gpipe.canvas, 0, round(26 + 46 / 2 - height / 2)).click()
    touch.perform()
    gpipe.until(lambda: gpipe.told().startswith("rank 0 idle, t=8.8 to 23.4: waits for rank 1"))
    assert complaints(gpipe.browser) == []


def test_the_colours_can_be_changed_on_the_page(gpipe: Page) -> None:
    select = Select(gpipe.browser.find_element("id", "colour"))
    batches = gpipe.browser.find_element("css selector", "[data-colour=microbatch]")
    assert (gpipe.data("colour"), batches.is_displayed()) == ("layer", False)
    select.select_by_visible_text("microbatch")
    gpipe.until(lambda: gpipe.data("colour") == "microbatch")
    assert batches.is_displayed()
    assert complaints(gpipe.browser) == []


def test_play_moves_a_cursor_and_stops(gpipe: Page) -> None:
    play = gpipe.browser.find_element("id", "play")
    gpipe.click("play")
    gpipe.until(lambda: 0 < float(gpipe.data("cursor") or 0) < 33)
    assert "Pause" in play.text
    gpipe.click("play")
    assert "Play" in play.text
    assert gpipe.browser.find_element("id", "clock").text.startswith("t=")
    gpipe.browser.find_element("id", "time").send_keys(Keys.HOME)
    gpipe.until(lambda: float(gpipe.data("cursor") or 1) == 0)


def test_light_and_dark_and_the_critical_path(gpipe: Page) -> None:
    def paper() -> str:
        return gpipe.browser.execute_script("return getComputedStyle(document.body).backgroundColor")

    before = paper()
    gpipe.click("theme")
    gpipe.until(lambda: paper() != before)
    gpipe.click("critical")
    assert gpipe.browser.find_element("id", "critical").get_attribute("aria-pressed") == "true"
    assert complaints(gpipe.browser) == []


@pytest.mark.parametrize("name", gallery.ODD)
def test_odd_runs_open_as_pages(browser: Any, tmp_path: Path, name: str) -> None:
    schedule, size, title = gallery.ODD[name]
    page = Page(browser, tmp_path, draw(run(schedule, *size), title))
    assert browser.find_element("tag name", "h1").text == title
    page.press(Keys.ARROW_RIGHT, Keys.ARROW_DOWN, "+", "c")
    page.until(lambda: page.data("chosen") != "-1")
    assert complaints(browser) == []


def test_a_run_without_events_opens(browser: Any, tmp_path: Path) -> None:
    page = Page(browser, tmp_path, draw(run(lambda model: None, 2, 2, 2)))
    page.press(Keys.ARROW_RIGHT, "n", "+")
    assert (page.data("chosen"), complaints(browser)) == ("-1", [])


def test_ten_thousand_events_open_and_stay_smooth(browser: Any, tmp_path: Path) -> None:
    page = Page(browser, tmp_path, draw(run(gallery.forward_often, 1, 1, 4)))
    page.press(Keys.END)
    page.until(lambda: page.data("chosen") == "2499")
    # A frame takes some milliseconds; a tenth of a second would be felt.
    script = """
        const done = arguments[0], times = [], canvas = document.getElementById("timeline");
        function next(before) {
          document.getElementById("critical").click();
          requestAnimationFrame(() => setTimeout(() => {
            times.push(performance.now() - before);
            times.length < 9 ? next(performance.now()) : done(times.sort((a, b) => a - b)[4]);
          }));
        }
        next(performance.now());
    """
    frame = browser.execute_async_script(script)
    print(f"a frame of 10,000 events: {frame:.1f} ms")
    assert frame < 250
    assert complaints(browser) == []


@pytest.mark.parametrize("path", sorted(gallery.FOLDER.glob("*.svg")), ids=lambda path: path.stem)
def test_every_picture_opens_without_a_complaint(browser: Any, path: Path) -> None:
    browser.get(path.as_uri())
    assert browser.execute_script("return document.documentElement.tagName") == "svg"
    assert browser.execute_script("return document.getElementsByTagName('script').length") == 0
    assert complaints(browser) == []


@pytest.mark.parametrize("tag", ["inline", "img"])
@pytest.mark.parametrize("name", ["gpipe", "many_ranks", "one_layer", "values"])
def test_a_picture_becomes_as_wide_as_its_page_in_its_shape(browser: Any, tmp_path: Path, name: str, tag: str) -> None:
    """Inline as in Jupyter, or as an image as in a README."""
    path = gallery.FOLDER / f"{name}.svg"
    source = path.read_text(encoding="utf-8")
    shown = source if tag == "inline" else f'<img src="{path.as_uri()}" style="max-width:100%">'
    (tmp_path / "page.html").write_text(f'<!doctype html><div style="width:600px">{shown}</div>', encoding="utf-8")
    browser.get((tmp_path / "page.html").as_uri())
    size = "const box = document.querySelector('svg, img').getBoundingClientRect(); return [box.width, box.height]"
    WebDriverWait(browser, PATIENCE, 0.02).until(lambda _: browser.execute_script(size)[0] > 100)
    width, height = browser.execute_script(size)
    across, down = size_of(source)
    assert width == pytest.approx(600, abs=0.1)
    assert height == pytest.approx(600 * down / across, abs=1)
