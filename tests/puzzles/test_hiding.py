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
from puzzles.tracks.engine.compare import require_right
from puzzles.tracks.engine.perform import perform
from puzzles.tracks.engine.score import score_trial
from tests.support import hostile_hiding as hiding

SOLUTION = (Path(__file__).parents[2] / "solutions/engine/data_parallel.py").read_text(encoding="utf-8")


def verdict(source: str, slug: str = "DataParallel") -> Verdict:
    with Session(Submission(Path("theirs.py"), source.encode())) as session:
        return grade_puzzle(ENGINE_PUZZLES[slug], session)


def require_refused(found: Verdict, *words: str) -> None:
    assert (found.status, found.stars) == ("failed", 0), found
    assert all(word in found.message for word in words), found.message


@pytest.mark.parametrize("name", hiding.FLOPS)
def test_products_that_no_meter_counts(name: str) -> None:
    found = verdict(hiding.without_flops(SOLUTION, hiding.FLOPS[name]))
    require_refused(found, "flops", "something was not counted", "12,416", "np.einsum")


@pytest.mark.parametrize("name", hiding.SHARED)
def test_devices_share_no_interpreter(name: str) -> None:
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
    found = verdict(source)
    assert (found.status, found.stars) == ("failed", 0), found
    assert "differs from what a single device computes" in found.message or "was changed" in found.message


@pytest.mark.parametrize("name", hiding.FILES)
def test_devices_can_write_no_files(name: str) -> None:
    found = verdict(hiding.with_file(SOLUTION, hiding.FILES[name]))
    require_refused(found, "PermissionError", "raised on device")


@pytest.mark.parametrize("name", hiding.NARROW)
def test_narrow_types_on_the_wire_give_another_result(name: str) -> None:
    found = verdict(hiding.with_narrow_wire(SOLUTION, hiding.NARROW[name]))
    require_refused(found, "differs from what a single device computes")


@pytest.mark.parametrize("name", hiding.MEMORY)
def test_memory_outside_of_arrays(name: str) -> None:
    found = verdict(hiding.with_hidden_memory(SOLUTION, hiding.MEMORY[name]))
    require_refused(found, "numbers in", "keep them in numpy arrays")


@pytest.mark.parametrize("name", hiding.TIERS)
def test_memories_that_no_target_names(name: str) -> None:
    found = verdict(hiding.with_hidden_memory(SOLUTION, hiding.TIERS[name]))
    require_refused(found, "4,096 B", name, "no target of DataParallel counts")
