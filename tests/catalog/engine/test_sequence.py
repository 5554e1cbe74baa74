"""Chapter `sequence`: blocks in any order give one softmax, memory does not grow, and no device waits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib.engine import ShardedEngine
from puzzles.catalog.engine import ENGINE_PUZZLES, trials_of
from puzzles.catalog.engine.models import attention
from puzzles.catalog.engine.puzzle import FIGURES
from puzzles.content.engine.layers.trials import causal_ring_attention, ring_attention
from puzzles.tracks.engine.judge import require_right
from solutions.engine.ring_attention import Queries, RingAttention
from tests.screens.texts import approved
from tests.support.engine_trials import SOLUTIONS, perform, verdict_on
from tests.support.examples import examples

pytestmark = pytest.mark.usefixtures("in_this_process")


@pytest.mark.parametrize("part", [slice(3), slice(3, 6)], ids=["all tokens", "causal"])
def test_the_formulas_are_met_exactly_and_the_peak_does_not_grow(part: slice) -> None:
    peaks = set()
    for make in trials_of(ENGINE_PUZZLES["RingAttention"])[part]:
        trial = make()
        assert trial.arguments["causal"] == bool(part.start)
        performed = perform(trial, RingAttention)
        limits = dict(trial.targets or {})
        flops = FIGURES["flops"].of(performed)
        assert flops < limits.pop("flops") < 1.05 * flops, "room for a factor of numpy"
        exact = {name: limit for name, limit in limits.items() if name != "peak"}
        assert {name: FIGURES[name].of(performed) for name in exact} == exact
        peaks.add(FIGURES["peak"].of(performed))
    assert len(peaks) == 1


def test_the_first_trial_has_the_targets_shown() -> None:
    assert ring_attention(1, 4).targets == ENGINE_PUZZLES["RingAttention"].targets
    causal = causal_ring_attention(1, 4).targets
    assert causal == {**ENGINE_PUZZLES["RingAttention"].targets, "flops": 10_984}
    approved(
        "sequence",
        "the first trial has the targets shown",
        ENGINE_PUZZLES["RingAttention"].statement,
        "The flops target of",
    )


@pytest.mark.slow
@pytest.mark.parametrize("factor", ["/ 4", "/ np.float32(4)", "* np.float32(0.25)"])
def test_the_target_of_flops_leaves_room_for_any_way_to_write_the_factor(factor: str, tmp_path: Path) -> None:
    text = (SOLUTIONS / "ring_attention.py").read_text(encoding="utf-8")
    written = "* self.q.shape[1] ** -0.5"
    assert written in text
    path = tmp_path / "mine.py"
    path.write_text(text.replace(written, factor), encoding="utf-8")
    verdict = verdict_on("RingAttention", path)
    assert verdict.status == "passed", verdict.message


@pytest.mark.slow
def test_too_many_flops_are_shown_by_line(tmp_path: Path) -> None:
    text = (SOLUTIONS / "ring_attention.py").read_text(encoding="utf-8")
    path = tmp_path / "mine.py"
    changed = text.replace("powers @ v", "powers @ v + 0 * (powers @ v)")
    path.write_text(changed, encoding="utf-8")
    verdict = verdict_on("RingAttention", path)
    line = next(n for n, row in enumerate(changed.splitlines(), 1) if "0 * (powers" in row)
    assert (verdict.status, verdict.why_matters) == ("over_target", True)
    first = next(row for row in verdict.why if "%" in row)
    assert first.endswith(f"line {line}")


class Gathered(ShardedEngine):
    """All keys and values at once: the same bytes, products of matrices and results."""

    def __init__(self, causal: bool) -> None: ...

    def load_checkpoint(self, params: Any) -> None: ...
    def backward(self, grads: Any) -> Any: ...

    def forward(self, x: Any) -> Any:
        k, v = self.all_gather(x.pop("kv"), axis=1)
        scores = x["q"] @ k.T / 4
        powers = np.exp(scores - scores.max(axis=1, keepdims=True))
        return powers / powers.sum(axis=1, keepdims=True) @ v


@pytest.mark.parametrize(("devices", "peak"), [(2, 4_608), (4, 8_192), (8, 15_360)])
def test_gathering_sends_as_many_numbers_but_its_peak_grows(devices: int, peak: int) -> None:
    trial = ring_attention(1, devices)
    assert trial.targets is not None
    performed = perform(trial, Gathered)
    require_right(trial, performed)
    found = {name: FIGURES[name].of(performed) for name in trial.targets}
    sent, flops = (devices - 1) * 1_024, devices * (8 * PAIR // 2 + 2 * 8 * 8)  # the softmax divides the scores
    assert found == {**trial.targets, "flops": flops, "sent": sent, "messages": 0, "collectives": 1, "peak": peak}
    assert (peak > trial.targets["peak"]) == (devices > 2)


@examples(50)
@given(st.permutations(range(6)), st.integers(0, 2**32 - 1))
def test_blocks_in_any_order_make_the_same_softmax(order: list[int], seed: int) -> None:
    rng = np.random.default_rng(seed)
    q, k, v = rng.normal(size=(3, 12, 4)) * 5
    chunk = Queries(q, place=0)
    for i in order:
        chunk.see(k[2 * i : 2 * i + 2], v[2 * i : 2 * i + 2])
    assert np.allclose(chunk.mixed / chunk.total, attention(q, k, v), rtol=1e-5, atol=1e-6)


class InOrder(RingAttention):
    """Device i has chunks 2 i and 2 i + 1."""

    def places(self, device: int) -> tuple[int, int]:
        return 2 * device, 2 * device + 1


PAIR = 1_024
"""Flops of the products for a chunk of queries and one of keys and values."""

CORRECTION, DIVISION = 2 * 4 * 17, 2 * 8 * 16
"""Flops of a chunk's correction, and of the division by the sums at the end."""


@pytest.mark.parametrize("devices", [2, 4, 8])
def test_early_and_late_chunks_make_all_equally_busy(devices: int) -> None:
    trial = causal_ring_attention(1, devices)
    zigzag, in_order = (perform(trial, cls).readings[-1] for cls in (RingAttention, InOrder))
    assert {meter.flops for meter in zigzag} == {(PAIR + CORRECTION) * (2 * devices + 1) + DIVISION}
    assert [meter.flops for meter in in_order] == [(PAIR + CORRECTION) * (4 * i + 3) + DIVISION for i in range(devices)]
    # Nobody waits: when the last device is done, each has worked all the time.
    assert all(meter.clock == meter.flops for meter in zigzag)


def test_what_is_not_masked_is_half_and_a_little() -> None:
    """The pairs of chunks of which any token sees any, counted in the mask."""
    for devices in (2, 4, 8):
        chunks = 2 * devices
        mask = np.tri(4 * chunks, dtype=bool).reshape(chunks, 4, chunks, 4).any(axis=(1, 3))
        rows = mask.sum(axis=1)
        assert [rows[i] + rows[chunks - 1 - i] for i in range(devices)] == [2 * devices + 1] * devices


def test_hops_are_one_less_than_devices() -> None:
    for devices in (2, 4, 8):
        meters = perform(ring_attention(3, devices), RingAttention).readings[-1]
        assert {(meter.messages, meter.sent) for meter in meters} == {(devices - 1, (devices - 1) * 1_040)}
