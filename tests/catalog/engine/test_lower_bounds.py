"""The least figures: every target has one, and nothing that is known to be right is below it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from puzzles.catalog.engine import ENGINE_PUZZLES, EnginePuzzle, lower_bounds, lower_bounds_of, models, trials_of
from puzzles.catalog.engine.lower_bounds import FigureBound
from puzzles.catalog.engine.models import ROUNDING, numbers
from puzzles.catalog.engine.puzzle import FIGURES
from puzzles.catalog.engine.trial import Performed, Trial, WrongResultError
from puzzles.content.engine.data import trials as data_trials
from puzzles.content.engine.shards import trials as shard_trials
from puzzles.content.engine.tensors import trials as tensor_trials
from puzzles.tracks.engine.judge import require_right, score_figures
from tests.support.engine_trials import perform, reference

every_puzzle = pytest.mark.parametrize("puzzle", [pytest.param(p, id=slug) for slug, p in ENGINE_PUZZLES.items()])


def targets_of(puzzle: EnginePuzzle, trial: Trial) -> dict[str, int]:
    return {**puzzle.targets, **(trial.targets or {})}


@pytest.mark.sampled(12)
@pytest.mark.parametrize("slug", [slug for slug, puzzle in ENGINE_PUZZLES.items() if puzzle.trials == "trials.py"])
def test_every_target_has_a_least_with_a_reason_and_no_record_is_below(slug: str) -> None:
    """One whose trials are a file of its own may have none, as a teacher's."""
    puzzle = ENGINE_PUZZLES[slug]
    for i, make in enumerate(trials_of(puzzle)):
        trial = make()
        bounds, targets = lower_bounds_of(puzzle, trial), targets_of(puzzle, trial)
        assert bounds.keys() >= targets.keys()
        for name in targets:
            assert bounds[name].reason
            assert isinstance(bounds[name].value, int)
            assert set(bounds[name].given) <= targets.keys() or not bounds[name].value
        if i == 0:
            for record in puzzle.records:
                assert not list(lower_bounds.below(bounds, record, targets))


@pytest.mark.sampled(3)
@every_puzzle
def test_an_honest_class_has_room_in_the_tolerance(puzzle: EnginePuzzle) -> None:
    """A third of it would do, so another order of the sums passes too; and no figure is below its least."""
    for make in trials_of(puzzle):
        trial = make()
        performed = perform(trial, reference(puzzle.slug))
        require_right(replace(trial, tolerance=trial.tolerance / 3), performed)
        measured = {name: FIGURES[name].of(performed) for name in targets_of(puzzle, trial)}
        assert not list(lower_bounds.below(lower_bounds_of(puzzle, trial), measured, targets_of(puzzle, trial)))


@pytest.mark.sampled(8)
@every_puzzle
def test_a_figure_below_its_least_is_refused_by_name(puzzle: EnginePuzzle) -> None:
    """The reference's results, with one figure a little too low."""
    trial = trials_of(puzzle)[0]()
    performed = perform(trial, reference(puzzle.slug))
    for name, one in lower_bounds_of(puzzle, trial).items():
        if one.value and name in LOWERED and name in puzzle.targets:
            low = LOWERED[name](performed, one.value - 1)
            with pytest.raises(WrongResultError, match=r"fewer than the .*: something") as refusal:
                score_figures(puzzle, trial, low, low)
            assert FIGURES[name].words in str(refusal.value)
            assert one.reason in str(refusal.value)


def lowered(performed: Performed, step: int, **figures: Any) -> Performed:
    """The outcome with other figures in one reading of every device."""
    readings = [list(row) for row in performed.readings]
    readings[step] = [replace(reading, **figures) for reading in readings[step]]
    return replace(performed, readings=readings)


LOWERED = {
    "sent": lambda performed, n: lowered(performed, -1, sent=n),
    "uplink": lambda performed, n: lowered(performed, -1, sent=0),
    "flops": lambda performed, n: lowered(performed, -1, flops=n),
    "peak": lambda performed, n: lowered(performed, -1, peak=n),
    "kept": lambda performed, n: lowered(performed, -1, live=n),
    "weights": lambda performed, n: lowered(performed, 0, live=n),
    "clock": lambda performed, n: lowered(performed, -1, clock=n),
}
"""By figure: the outcome with so little of it."""


def test_products_counts_what_a_loop_counts() -> None:
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-1, 2, shape) for shape in ((3, 5), (5, 4)))
    needed = rng.integers(0, 2, (3, 4))
    loop = [(i, j) for i in range(3) for j in range(4) for k in range(5) if a[i, k] * b[k, j] and needed[i, j]]
    assert lower_bounds.products(a, b, needed) == len(loop)
    assert lower_bounds.flops(10, 4) == FigureBound(5, lower_bounds.flops(10, 4).reason)


def test_information_is_that_of_the_range_or_of_the_tolerance() -> None:
    assert lower_bounds.information(np.arange(8).repeat(8)) == 64 * 3 / 8
    assert lower_bounds.information({"x": [numbers(1, 16)]}) == 16 * 11 / 8


def test_the_narrowest_type_is_the_smallest_that_is_near_enough() -> None:
    assert lower_bounds.narrowest([np.arange(5.0), None, {"x": np.arange(300)}], 0) == 5 + 600
    assert lower_bounds.narrowest(numbers(1, 100), ROUNDING) == 400
    assert lower_bounds.narrowest(np.array([0.5, 1.5]), 0) == 4


def test_a_least_that_is_given_targets_holds_only_below_them() -> None:
    bounds = {"sent": FigureBound(1, "why", given=("weights",))}
    assert [name for name, _ in lower_bounds.below(bounds, {"sent": 0, "weights": 5}, {"weights": 5})] == ["sent"]
    assert not list(lower_bounds.below(bounds, {"sent": 0, "weights": 6}, {"weights": 5}))
    assert not list(lower_bounds.below(bounds, {"sent": 0, "weights": 6}, {}))


def test_float16_is_further_off_than_the_tolerance_and_float32_is_not() -> None:
    given = numbers(3, 1000)
    assert np.abs(given.astype(np.float16) - given).max() > 10 * ROUNDING
    terms = [np.float32(x) * np.float32(y) for x, y in zip(numbers(4, 64), numbers(5, 64))]
    exact = np.dot(numbers(4, 64).astype(np.float64), numbers(5, 64))
    for order in (terms, terms[::-1], sorted(terms)):
        assert abs(float(np.cumsum(order, dtype=np.float32)[-1]) - exact) < ROUNDING


def test_no_relu_of_the_two_layer_model_is_near_its_kink(monkeypatch: pytest.MonkeyPatch) -> None:
    """So rounding, at most 4e-6, cannot change which numbers it passes, in any step of any trial."""
    margins = []

    def recorded(params: Any, x: Any, g: Any) -> Any:
        z = np.asarray(x, np.float64) @ params[models.W0] + params.get(models.B0, 0)
        margins.append(np.abs(z).min() / np.abs(z).max())
        return original(params, x, g)

    original = models.mlp_forward_backward
    for module in (data_trials, shard_trials, tensor_trials):
        monkeypatch.setattr(module, "mlp_forward_backward", recorded)
    for slug in ("DataParallel", "ZeRO1", "ZeRO2", "FSDP", "UnevenFSDP", "TensorParallel", "SequenceParallel"):
        for make in trials_of(ENGINE_PUZZLES[slug]):
            make()
    assert len(margins) > 20
    assert min(margins) > 2e-5
