"""axe finds nothing in any state of the page, light and dark, wide and on a phone."""

from collections.abc import Iterator

import pytest

from puzzles.page.in_browser import calls
from tests.support.commands import ROOT, solution
from tests.support.site_game import NEEDS_SITE, Game, opened_game

pytest.importorskip("selenium.webdriver", reason="needs the extra: pip install -e '.[browser]' (make browser)")

pytestmark = NEEDS_SITE
AXE = ROOT / "build" / "npm" / "node_modules" / "axe-core" / "axe.min.js"
RUN = """
const done = arguments[0], words = (one, node) => `${one.id}: ${node.target} ${node.failureSummary}`;
const all = ({ violations }) => violations.flatMap((one) => one.nodes.map((node) => words(one, node)));
axe.run(document).then((found) => done(all(found)), (why) => done([String(why)]));
"""


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Game]:
    with opened_game(tmp_path_factory.mktemp("profile")) as game:
        yield game


@pytest.fixture(params=["light", pytest.param("dark", marks=pytest.mark.slow)])
def game(opened: Game, request: pytest.FixtureRequest) -> Iterator[Game]:
    """The page in one of its themes, with nothing that moves or fades."""
    features = [
        {"name": "prefers-color-scheme", "value": request.param},
        {"name": "prefers-reduced-motion", "value": "reduce"},
    ]
    opened.browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    opened.visit()
    opened.script("localStorage.clear()")
    opened.visit()
    assert opened.script("return document.documentElement.dataset.theme") == request.param
    opened.script(AXE.read_text(encoding="utf-8"))
    yield opened
    opened.browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def found(game: Game, state: str) -> dict[str, list[str]]:
    """The findings of a state; empty where there are none."""
    findings = list(game.browser.execute_async_script(RUN))
    return {state: findings} if findings else {}


def by_hand(game: Game) -> None:
    game.open("one_f_one_b")
    game.find("#byhand").click()
    game.until(lambda: game.script("return document.querySelector('.byhand').dataset.missing"))


def test_the_rules_find_what_is_wrong(game: Game) -> None:
    game.script("document.querySelector('main').append(document.createElement('button'))")
    assert any("button-name" in one for one in found(game, "a button without a name")["a button without a name"])


def test_nothing_is_found_in_what_there_is_to_read(game: Game) -> None:
    findings = found(game, "map")
    for fragment in ("ffn", "FSDP", "profile", "mixtral_64"):
        game.go(fragment)
        findings |= found(game, fragment)
    game.script("for (const one of document.querySelectorAll('details')) one.open = true")
    assert findings | found(game, "everything open") == {}


def test_nothing_is_found_in_any_verdict(game: Game) -> None:
    game.open("ddp")
    findings = found(game, "before the first line")
    game.play("ddp", solution("ddp").replace("model.forward(layer,", "model.forward(layer + 1,"), "failed")
    findings |= found(game, "failed")
    game.play(
        "ddp", solution("ddp").replace("del activations[layer], grad_activations[layer + 1]", "pass"), "over_target"
    )
    findings |= found(game, "over target")
    game.play("zb_h1", solution("zb_h1"), "passed")
    game.until(lambda: game.script("return document.querySelector('canvas')?.dataset.drawn"))
    findings |= found(game, "passed")
    game.open(calls.fragment("fsdp", "code", solution("fsdp")), "unrun")
    assert findings | found(game, "code of a link") == {}


def test_nothing_is_found_by_hand(game: Game) -> None:
    by_hand(game)
    findings = found(game, "by hand")
    game.find("#clear").click()
    game.until(lambda: game.script("return document.querySelector('.byhand').dataset.missing") == "64")
    assert findings | found(game, "by hand, empty") == {}


def test_nothing_is_found_on_a_phone(game: Game) -> None:
    metrics = {"width": 390, "height": 844, "deviceScaleFactor": 2, "mobile": True}
    game.browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    try:
        findings = found(game, "map")
        game.open("gpipe")
        for tab in ("Statement", "Code", "Picture"):
            game.find(f"button[data-tab={tab}]").click()
            findings |= found(game, tab)
    finally:
        game.browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    assert findings == {}
