"""The page goes along the core path, as the game does, and leaves out what needs an installation."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from puzzles.catalog.path import CORE
from puzzles.site.listing import listing
from puzzles.tracks import ALL

PAGE = Path(__file__).parents[2] / "puzzles" / "site" / "page"
PLAYED = [slug for slug in CORE if ALL[slug].in_browser]

STUBS = {
    "store.js": "let solved = []; export const stars = (slug) => (solved.includes(slug) ? 2 : 0); "
    "export const solve = (slugs) => { solved = slugs; };",
}
ASK = """
import { firstOpen } from "./path.js";
import { solve } from "./store.js";
import { readFileSync } from "node:fs";
const { catalog, cases } = JSON.parse(readFileSync(0, "utf8"));
console.log(JSON.stringify(cases.map(([solved, after]) => { solve(solved); return firstOpen(catalog, after).slug; })));
"""

CASES = [
    *[(PLAYED[:number], PLAYED[number - 1] if number else "", PLAYED[number]) for number in range(len(PLAYED))],
    (["gpipe"], "", "zero1"),  # what comes before gpipe is known
    (["zb_h2"], "zb_h2", "zb_v"),
    (PLAYED, "three_d", "wsdp"),
]


def test_the_listing_has_the_path_and_each_puzzles_place() -> None:
    shown = listing()
    assert [slug for step in shown["path"] for slug in step["slugs"]] == list(CORE)
    assert shown["puzzles"]["fsdp"]["mark"] == "core"
    assert shown["puzzles"]["wsdp"]["place"] == "Extra; after: ddp"


@pytest.mark.skipif(not shutil.which("node"), reason="the page's scripts run in node here")
def test_the_page_names_the_next_puzzle(tmp_path: Path) -> None:
    for name, text in {**STUBS, "ask.mjs": ASK, "package.json": '{"type": "module"}'}.items():
        (tmp_path / name).write_text(text)
    shutil.copy(PAGE / "path.js", tmp_path)
    given = json.dumps({"catalog": listing(), "cases": [case[:2] for case in CASES]})
    done = subprocess.run(["node", "ask.mjs"], cwd=tmp_path, input=given, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == [case[2] for case in CASES]
