"""Some changed inputs of every kind, always the same ones; `make fuzz` tries others for as long as it is given."""

from __future__ import annotations

import json
import sys

import pytest

from puzzles.sandbox.worker.reading import SubmissionCode
from tests.fuzz import __main__ as fuzz
from tests.fuzz import targets
from tests.fuzz.changes import changed_bytes, changed_tree
from tests.fuzz.targets import TARGETS

TRIED = {"trace": 40, "submission": 40, "ipynb": 40, "annotations": 60, "reply": 25, "message": 100, "profile": 60}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # what a changed source makes Python warn of
@pytest.mark.parametrize("name", TARGETS)
def test_nothing_is_found_among_the_first_inputs(name: str) -> None:
    for seed in range(TRIED[name]):
        assert fuzz.finding(name, seed) == ""


def test_the_same_seed_makes_the_same_input() -> None:
    text = json.dumps(targets.notebook())
    for seed in range(20):
        made = [changed_tree(fuzz.Random(seed), json.loads(text)) for _ in range(2)]
        assert repr(made[0]) == repr(made[1]) != repr(json.loads(text))
        data = [changed_bytes(fuzz.Random(seed), text.encode(), (b"word",)) for _ in range(2)]
        assert data[0] == data[1]


def test_a_planted_mistake_is_found_and_shown_with_its_seed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(SubmissionCode, "survey", lambda self: {"lines": self.problem.sentence})
    monkeypatch.setattr(sys, "argv", ["fuzz", "--only", "submission", "--seed", "7", "--seconds", "30"])
    assert fuzz.main() == 1
    told = capsys.readouterr().out
    assert "AttributeError" in told
    assert "--only submission --seed" in told


def test_time_is_up(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["fuzz", "--only", "message", "--seed", "1", "--seconds", "0"])
    assert fuzz.main() == 0
    assert "seed 1 on: 1" in capsys.readouterr().out
