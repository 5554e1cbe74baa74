"""Figures cannot be hidden: each known way is refused, in the sandbox, with a message that names the figure."""

from __future__ import annotations

import builtins
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lib.engine import ShardedEngine
from puzzles.catalog.engine import ENGINE_PUZZLES, trials_of
from puzzles.catalog.engine.trial import WrongResultError
from puzzles.grading.grader import grade_puzzle
from puzzles.grading.session import Session
from puzzles.grading.submission import Submission
from puzzles.grading.verdict import Verdict
from puzzles.sandbox.tiers import IsolationTier
from puzzles.tracks.engine.compare import require_right
from puzzles.tracks.engine.perform import perform
from puzzles.tracks.engine.score import score_trial
from tests.support import hostile_hiding as hiding
from tests.support.selection import TIERS, in_each_tier, in_every_tier
from tests.support.tiers import require_tier

SOLUTION = (Path(__file__).parents[2] / "solutions/engine/data_parallel.py").read_text(encoding="utf-8")


@pytest.fixture(params=TIERS)
def here(request: pytest.FixtureRequest) -> IsolationTier:
    return require_tier(request.param)


def verdict(source: str, where: IsolationTier, slug: str = "DataParallel") -> Verdict:
    with Session(Submission(Path("theirs.py"), source.encode()), tier=where) as session:
        return grade_puzzle(ENGINE_PUZZLES[slug], session)


def require_refused(found: Verdict, *words: str) -> None:
    assert (found.status, found.stars) == ("failed", 0), found
    assert all(word in found.message for word in words), found.message


@pytest.mark.sampled(2)
@in_every_tier(hiding.FLOPS)
def test_products_that_no_meter_counts(name: str, here: IsolationTier) -> None:
    found = verdict(hiding.without_flops(SOLUTION, hiding.FLOPS[name]), here)
    require_refused(found, "flops", "something was not counted", "12,416", "np.einsum")


@pytest.mark.sampled(1)
@in_every_tier(hiding.SHARED)
def test_devices_share_no_interpreter(name: str, here: IsolationTier) -> None:
    """In one interpreter it would be right, with no byte sent."""
    source = hiding.with_shared_list(SOLUTION, hiding.SHARED[name])
    names: dict[str, Any] = {"__name__": "theirs"}
    exec(source, names)
    trial = trials_of(ENGINE_PUZZLES["DataParallel"])[0]()
    try:
        performed = perform(trial, names["DataParallel"])
    finally:
        for owner in (builtins, np, ShardedEngine):
            if "secret" in vars(owner):
                delattr(owner, "secret")
        sys.modules.pop("secret", None)
    require_right(trial, performed)
    assert max(meter.sent for meter in performed.readings[-1]) == 0
    with pytest.raises(WrongResultError, match=r"bytes sent: 0, fewer than the 44 .* not counted"):
        score_trial(ENGINE_PUZZLES["DataParallel"], trial, performed)
    found = verdict(source, here)
    assert (found.status, found.stars) == ("failed", 0), found
    assert "differs from what a single device computes" in found.message or "was changed" in found.message


@in_every_tier(hiding.FILES)
def test_devices_can_write_no_files(name: str, here: IsolationTier) -> None:
    found = verdict(hiding.with_statement(SOLUTION, hiding.FILES[name]), here)
    require_refused(found, "PermissionError", "raised on device")


@pytest.mark.sampled(1)
@in_every_tier(hiding.NARROW)
def test_narrow_types_on_the_wire_give_another_result(name: str, here: IsolationTier) -> None:
    found = verdict(hiding.with_narrow_wire(SOLUTION, hiding.NARROW[name]), here)
    require_refused(found, "differs from what a single device computes")


@in_every_tier(hiding.MEMORY)
def test_memory_outside_of_arrays(name: str, here: IsolationTier) -> None:
    found = verdict(hiding.with_hidden_memory(SOLUTION, hiding.MEMORY[name]), here)
    require_refused(found, "numbers in", "keep them in numpy arrays")


@in_every_tier(hiding.TIERS)
def test_memories_that_no_target_names(name: str, here: IsolationTier) -> None:
    found = verdict(hiding.with_hidden_memory(SOLUTION, hiding.TIERS[name]), here)
    require_refused(found, "4,096 B", name, "no target of DataParallel counts")


@pytest.mark.sampled(1)
@in_every_tier(hiding.SEEN)
def test_what_a_device_sees_of_others(name: str, here: IsolationTier) -> None:
    """Each statement asserts that it finds nothing."""
    found = verdict(hiding.with_statement(SOLUTION, hiding.SEEN[name]), here)
    assert (found.status, found.stars) == ("passed", 3), found


@in_each_tier()
def test_what_a_device_reports_of_its_bytes_is_not_believed(here: IsolationTier) -> None:
    found = verdict(hiding.with_statement(SOLUTION, hiding.LIE), here)
    assert (found.status, found.figures["sent"]) == ("passed", 12_288)
    found = verdict(hiding.with_statement(SOLUTION, hiding.FORGERY), here)
    require_refused(found, "device 0 of 4", "made a call that does not exist")


@in_each_tier()
def test_a_device_may_start_a_few_processes_and_no_more(here: IsolationTier) -> None:
    """The limit is that of any run, and one more for each device."""
    assert verdict(hiding.with_statement(SOLUTION, hiding.ONE_CHILD), here).status == "passed"
    found = verdict(hiding.with_statement(SOLUTION, hiding.NINE_CHILDREN), here)
    require_refused(found, "BlockingIOError", "--limit processes=")
