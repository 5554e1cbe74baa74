"""The page goes along the core path, as the game does, and leaves out what the site or the browser lacks."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from puzzles.catalog.path import CORE
from puzzles.page.listing import listing
from puzzles.tracks import ALL

PAGE = Path(__file__).parents[2] / "puzzles" / "page" / "web"
PLAYED = [slug for slug in CORE if not ALL[slug].page_needs]
"""Those of a site without numpy."""

STUBS = {
    "store.js": "let solved = []; export const stars = (slug) => (solved.includes(slug) ? 2 : 0); "
    "export const solve = (slugs) => { solved = slugs; };",
}
ASK = """
import { lacking } from "./needs.js";
import { firstOpen } from "./path.js";
import { solve } from "./store.js";
import { readFileSync } from "node:fs";
const { catalog, cases } = JSON.parse(readFileSync(0, "utf8"));
const all = Object.values(catalog.puzzles);
const lacks = (numpy, suspending) => {
  globalThis.WebAssembly = suspending ? { Suspending: class {} } : {};
  return Object.fromEntries(all.map((one) => [one.slug, lacking(one, numpy)]));
};
const said = { both: lacks({}, true), numpy: lacks({}, false), none: lacks(null, true) };
for (const one of all) one.played = !said.none[one.slug];
const next = cases.map(([solved, after]) => { solve(solved); return firstOpen(catalog, after).slug; });
console.log(JSON.stringify({ next, said }));
"""

CASES = [
    *[(PLAYED[:number], PLAYED[number - 1] if number else "", PLAYED[number]) for number in range(len(PLAYED))],
    (["gpipe"], "", "zero1"),  # what comes before gpipe is known
    (["zb_h2"], "zb_h2", "zb_v"),
    (PLAYED, "three_d", "wsdp"),
]


@pytest.mark.slow
def test_the_listing_has_the_path_and_each_puzzles_place() -> None:
    shown = listing()
    assert [slug for step in shown["path"] for slug in step["slugs"]] == list(CORE)
    assert shown["puzzles"]["fsdp"]["mark"] == "core"
    assert shown["puzzles"]["wsdp"]["place"] == "Optional; after: ddp"


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What the page's scripts say: the next puzzle of each case; why puzzles are not played, by what there is."""
    if not shutil.which("node"):
        pytest.skip("the page's scripts run in node here")
    tmp_path = tmp_path_factory.mktemp("page")
    for name, text in {**STUBS, "ask.mjs": ASK, "package.json": '{"type": "module"}'}.items():
        (tmp_path / name).write_text(text)
    for name in ("path.js", "needs.js"):
        shutil.copy(PAGE / name, tmp_path)
    given = json.dumps({"catalog": listing(), "cases": [case[:2] for case in CASES]})
    done = subprocess.run(["node", "ask.mjs"], cwd=tmp_path, input=given, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def test_the_page_names_the_next_puzzle(answers: Any) -> None:
    assert answers["next"] == [case[2] for case in CASES]


def test_what_is_lacking_is_said_of_each_puzzle_that_needs_it(answers: Any) -> None:
    tracks = {slug: track.name for slug, track in ALL.items()}
    assert not any(answers["said"]["both"].values())
    without_suspending, without_numpy = answers["said"]["numpy"], answers["said"]["none"]
    assert {tracks[slug] for slug, why in without_suspending.items() if why} == {"engine"}
    assert all(fact in without_suspending["FSDP"] for fact in ("wait for each other", "Chrome", "Edge", "137"))
    assert {tracks[slug] for slug, why in without_numpy.items() if why} == {"engine", "layout"}
    assert "site was built without" in without_numpy["matmul"]
