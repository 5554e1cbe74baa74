"""docs/extended.md: its commands work, and every list of puzzles is there."""

from __future__ import annotations

import re
from fractions import Fraction
from pathlib import Path

import pytest

from docs.generate import extended
from lib import COSTS
from lib.game.named_costs import MEANINGS
from tests.support.commands import puzzles
from tests.test_imports import ROOT

PAGE = (ROOT / "docs" / "extended.md").read_text(encoding="utf-8")
CODE = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)

COMMANDS = re.findall(r"^```\n(puzzles run.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


def test_every_known_cost_record_has_a_meaning() -> None:
    assert list(MEANINGS) == list(COSTS)


def test_every_list_of_puzzles_is_on_the_page_once() -> None:
    assert {name: PAGE.count(f"<!-- puzzles {name} -->") for name in extended.USES} == dict.fromkeys(extended.USES, 1)


@pytest.mark.parametrize(
    ("name", "figures"),
    [
        (name, re.findall(r"\d+\.\d+(?= step)|(?<=takes )\d+\.\d+|(?<=collective )\d+\.\d+", meaning))
        for name, meaning in MEANINGS.items()
    ],
)
def test_a_meaning_states_prices_of_its_record(name: str, figures: list[str]) -> None:
    costs = COSTS[name]
    ring = [costs.by_size("allreduce", 6, sent) for sent in (0, 393_216)]  # a gradient over 4 ranks
    prices = {*costs.ticks.values(), *costs.alpha.values(), ring[0], ring[1] - ring[0]}
    assert set(figures) <= {costs.text(ticks) for ticks in prices}


@pytest.mark.parametrize(("name", "meaning"), MEANINGS.items())
def test_a_meaning_states_how_much_is_sent_in_a_step(name: str, meaning: str) -> None:
    costs = COSTS[name]
    betas = {*costs.beta_between.values()} or {*costs.beta.values()}
    stated = {Fraction(found.replace(",", "")) for found in re.findall(r"for each ([\d,]+) elements", meaning)}
    assert stated <= {costs.unit / beta for beta in betas}
    assert bool(stated) == (
        bool(betas) and not re.match(r"\w+, in \w+ieths|overlap, with the all|hopper|microsec", meaning)
    )


def test_the_commands_of_the_page_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the pipeline of the page as the schedule."""
    monkeypatch.chdir(tmp_path)
    (pipeline,) = (code for code in CODE if "def pipeline" in code)
    code = f"from lib import Model\n{pipeline.partition('for halves')[0]}\nmy_schedule = pipeline(True)\n"
    Path("mine.py").write_text(code)
    shown = []
    for line in COMMANDS[0].replace("4,8,4", "4,4,4").splitlines():
        result = puzzles(*line.split()[1:])
        assert result.exit_code == 0, result.output
        shown.append(result.output)
    assert "Correct: GPipe " in shown[0]
    assert "over at 18" in shown[0]
    assert "my_schedule: 4 layers, 4" in shown[1]
    assert "4 ranks, costs parts" in shown[1]
