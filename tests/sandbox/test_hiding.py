"""Figures cannot be hidden: each known way is refused, in the sandbox, with a message that names the figure."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from puzzles.catalog.engine import ENGINE_PUZZLES, trials_of
from puzzles.judge.verdict import Verdict
from puzzles.sandbox.limits import Limits
from puzzles.tracks import track_of
from puzzles.tracks.engine.words import better_record
from tests.support import hostile_hiding as hiding
from tests.support.engine_trials import perform
from tests.support.selection import some_of_each
from tests.support.verdicts import verdict_on

SOLUTION = (Path(__file__).parents[2] / "solutions/engine/data_parallel.py").read_text(encoding="utf-8")


def verdict(source: str, slug: str = "DataParallel") -> Verdict:
    limits = Limits(seconds=60)  # what counts is measured, and not how busy the machine is
    return verdict_on(slug, source, limits)


def require_refused(found: Verdict, *words: str) -> None:
    assert (found.status, found.stars) == ("failed", 0), found
    assert all(word in found.message for word in words), found.message


@pytest.mark.sampled(1)
@some_of_each(hiding.COUNTED)
def test_products_count_however_they_are_written(name: str) -> None:
    found = verdict(hiding.without_flops(SOLUTION, hiding.COUNTED[name]))
    assert (found.status, found.figures["flops"]) == ("passed", 20_480), found


@pytest.mark.slow
@some_of_each(hiding.UNCOUNTED)
def test_products_that_no_meter_counts(name: str) -> None:
    found = verdict(hiding.without_flops(SOLUTION, hiding.UNCOUNTED[name]))
    assert (found.status, found.stars, found.figures) == ("over_target", 1, {}), found


@pytest.mark.sampled(1)
@some_of_each(hiding.REFUSED)
def test_arrays_whose_products_no_meter_counts(name: str) -> None:
    found = verdict(hiding.without_flops(SOLUTION, hiding.REFUSED[name]))
    require_refused(found, "a device computes with plain arrays", "no meter counts products of", "use arrays, @ and *")


def test_a_fused_kernel_is_for_programs_of_layouts() -> None:
    kernel = "from lib.engine import metering\n        metering.run_kernel(lambda: self.w0 * 2)"
    require_refused(verdict(hiding.with_statement(SOLUTION, kernel)), "run_kernel() is for programs of layouts")


@pytest.mark.sampled(1)
@some_of_each(hiding.NARROW)
def test_narrow_types_on_the_wire_give_another_result(name: str) -> None:
    found = verdict(hiding.with_narrow_wire(SOLUTION, hiding.NARROW[name]))
    require_refused(found, "differs from what a single device computes")


@pytest.mark.sampled(1)
@some_of_each(hiding.MEMORY)
def test_memory_outside_of_arrays_makes_figures_unknown(name: str) -> None:
    found = verdict(hiding.with_weight_from(SOLUTION, *hiding.MEMORY[name]))
    assert (found.status, found.stars, found.figures) == ("over_target", 1, {}), found


@some_of_each(hiding.TIERS)
def test_memories_that_no_target_names(name: str) -> None:
    found = verdict(hiding.with_hidden_memory(SOLUTION, hiding.TIERS[name]))
    require_refused(found, "4,096 B", name, "no target of DataParallel counts")


@pytest.mark.slow
def test_what_a_device_reports_of_its_bytes_is_not_believed() -> None:
    found = verdict(hiding.with_statement(SOLUTION, hiding.LIE))
    assert (found.status, found.figures["sent"]) == ("passed", 12_288)


@pytest.mark.sampled(1)
@some_of_each(hiding.COSTS)
def test_what_a_message_tells_is_charged(name: str) -> None:
    """In the first run, and in the second."""
    statement, cost = hiding.COSTS[name]
    source = hiding.with_statement(SOLUTION, hiding.priced(statement))
    assert verdict(source).figures["sent"] == 12_288 + cost
    names: dict[str, Any] = {}
    exec(source, names)
    done = perform(trials_of(ENGINE_PUZZLES["DataParallel"])[0](), names["DataParallel"])
    assert done.readings[-1][0].sent == 12_288 + cost


@pytest.mark.sampled(1)
@some_of_each(hiding.TYPES)
def test_a_dtype_is_one_of_a_short_list(name: str) -> None:
    array = f"np.zeros(1, np.dtype('{hiding.TYPES[name]}'))"
    found = verdict(hiding.with_statement(SOLUTION, f"if self.device_id == 0:\n            self.send(1, {array})"))
    require_refused(found, "cannot be sent; convert it with astype")


def test_a_class_computes_with_numpy_only() -> None:
    found = verdict(f"import ctypes\nSIZE = ctypes.sizeof(ctypes.c_float)\n{SOLUTION}")
    require_refused(found, "a graded class cannot use ctypes, whose products no meter counts; compute with numpy")


@pytest.mark.parametrize(("claimed", "sent", "stars"), [(20_480, 12_288, 3), (20_000, 12_288, 3), (20_000, 12_292, 2)])
def test_flops_below_every_record_alone_make_no_third_star(claimed: int, sent: int, stars: int) -> None:
    """Fewer flops than any record count as the record's, so they do not make up for bytes."""
    puzzle = replace(ENGINE_PUZZLES["DataParallel"], records=({"sent": 12_288, "flops": 20_480},))
    assert (better_record(puzzle, {"sent": sent, "flops": claimed}) is None) == (stars == 3)


def test_a_verdict_says_what_it_cannot_vouch_for() -> None:
    comparison = track_of("Rotate").words.comparison
    of_products, of_digits = comparison(ENGINE_PUZZLES["DataParallel"], {}, "")
    assert of_products != of_digits
    assert [*comparison(ENGINE_PUZZLES["BalanceLoss"], {}, "")] == [of_digits]
    assert [*comparison(ENGINE_PUZZLES["Rotate"], {}, "")] == []
