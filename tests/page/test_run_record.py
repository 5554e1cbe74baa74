"""The record of a player's runs: judged elsewhere it gives the verdict of `play`, and what is no record is refused."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from puzzles.catalog.schedule import PUZZLES
from puzzles.failure import Failure
from puzzles.page.in_browser import player
from puzzles.page.in_browser.calls import MAX_RUNS, KeptRun, RunRecord, judged
from puzzles.player.local_run import judge_here
from puzzles.sandbox.worker.reading import Sketch
from tests.support.commands import solution

RECORD = RunRecord(sketch=Sketch("abc", ("forward",)), line=3, runs=(KeptRun("{}", Failure("rule", "no")),))


def recorded(slug: str, text: str) -> Any:
    return json.loads(json.dumps(asyncio.run(player.run(slug, text))))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("slug", ["basic", "fsdp", "gpipe", "zb_v"])
@pytest.mark.parametrize("change", [("", ""), ("model.BATCHES", "4"), ("del ", "0, ")])
def test_a_record_is_judged_as_the_definition_is(slug: str, change: tuple[str, str]) -> None:
    text = solution(slug).replace(*change) if change[0] else solution(slug)
    definition = player.loaded(slug, text, player.Progress(player.send))
    here = asyncio.run(judge_here(PUZZLES[slug], definition, 60.0))
    assert judged(PUZZLES[slug], recorded(slug, text)) == here


def test_a_record_goes_to_plain_data_and_back() -> None:
    assert RunRecord.read(json.loads(json.dumps(RECORD.data()))) == RECORD


@pytest.mark.parametrize(
    "damage",
    [
        {"runs": None}, {"runs": [["", None]] * (MAX_RUNS + 1)}, {"runs": [["", None, 1]]}, {"runs": [[1, None]]},
        {"problem": ["rule", "words", "3", ""]}, {"problem": "rule"}, {"sketch": ["abc", [1]]}, {"sketch": [1, None]},
        {"line": "3"},
    ],
)  # fmt: skip
def test_what_is_no_record_is_refused(damage: dict[str, Any]) -> None:
    damaged = {**RECORD.data(), **damage}
    with pytest.raises(ValueError, match="record"):
        RunRecord.read(damaged)
    others: list[Any] = [damaged, None, [], "{}", {}]
    for other in others:
        verdict = judged(PUZZLES["basic"], other)
        assert (verdict.status, verdict.stars) == ("failed", 0)
        assert "record" in verdict.message


def test_a_forged_record_has_no_stars() -> None:
    """Without runs, with a run that is no trace, and with a run of another puzzle."""
    good = recorded("ddp", solution("ddp"))
    assert judged(PUZZLES["ddp"], good).stars >= 2
    for runs in ([], [['{"stars": 3}', None]], recorded("basic", solution("basic"))["runs"]):
        verdict = judged(PUZZLES["ddp"], {**good, "runs": runs})
        assert (verdict.status, verdict.stars) == ("failed", 0)
        assert verdict.message


def test_runs_that_are_left_out_cost_what_they_would_show() -> None:
    good = recorded("ddp", solution("ddp"))
    verdict = judged(PUZZLES["ddp"], {**good, "runs": good["runs"][:1]})
    assert verdict.stars <= 2
