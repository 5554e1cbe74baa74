"""Figures in the text of the notebooks: each one is measured by a test."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from lib import (
    COSTS,
    HIDDEN,
    LENGTH,
    Activation,
    Report,
    Setting,
    Size,
    Weight,
    WeightGrad,
    inflight,
    referee,
    run,
)
from lib.bounds import pipeline_time_bound
from lib.game.costs import CLASSIC
from lib.game.ring import elements_sent
from lib.schedules import ddp, fsdp_prefetch, gpipe, interleaved, one_f_one_b, pipeline, zb_h1, zb_h2, zb_v, zero3
from lib.schedules.player import Order
from puzzles.catalog.schedule import CLASSICS as EIGHT
from puzzles.catalog.schedule import PUZZLES
from tests.support import CLASSICS
from tests.support.unmeasured_figures import unmeasured

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
CLASSIC_OF = {classic.slug: classic for classic in CLASSICS}


@cache
def words(name: str) -> str:
    """The markdown of a notebook's source, as one line."""
    text = (NOTEBOOKS / f"{name}.py").read_text(encoding="utf-8")
    cells = re.split(r"^# %%", text, flags=re.MULTILINE)
    shown = [cell.partition("\n")[2] for cell in cells if cell.startswith(" [markdown]")]
    return " ".join(" ".join(line.removeprefix("#").strip() for line in cell.splitlines()) for cell in shown)


@cache
def score(slug: str, layers: int = 0, batches: int = 0, ranks: int = 0) -> Report:
    """The referee's report on a reference solution, at its own size or at another."""
    classic = CLASSIC_OF[slug]
    size = (layers or classic.size.layers, batches or classic.size.batches, ranks or classic.size.ranks)
    return referee(run(classic.solution, *size).trace)


def peak(slug: str, *size: int) -> int:
    return score(slug, *size).peak.memory


def sent(slug: str, *size: int) -> int:
    """Bytes sent by the rank that sends the most."""
    return max(rank.bytes_sent for rank in score(slug, *size).ranks)


def idle(slug: str, *size: int) -> str:
    return f"{score(slug, *size).bubble:.0%}"


def at_the_turn(slug: str) -> float:
    """The share of activations and their gradients in the peak of a schedule on one rank, in fifths."""
    model_and_states = 2 * CLASSIC_OF[slug].size.layers * CLASSIC.weight
    return 5 * (peak(slug) - model_and_states) / peak(slug)


GRADIENT_BYTES = 2 * CLASSIC.weight * 4
"""Of the two layers of puzzle 2."""

TOUR = [
    ("two layers, and the step is made of four microbatches", True),
    ("the output of layer 0 is `activations[1]`", True),
    ("a square matrix of 512 x 512", HIDDEN == 512),
    (f"its weight has {Weight(0, 2, 0).memory():,} elements", True),
    ("for batches 2 and 3", True),
    ("Half of the slot is filled, because two of the four", True),
    (f"One batch of activations takes {Activation(0, 2, {0}, 4).memory():,} elements", LENGTH == 256),
    ("These two have seen batches 2 and 3", True),
    ("**F0** is the forward of layer 0", True),
    ("**B0** is its backward", True),
    ("**U0** is its update", True),
    ("del activations[0]", True),
    (f"| `forward`, `backward` | {CLASSIC.duration('forward') / 10:g} step for each batch |", True),
    (f"| `update` | {CLASSIC.duration('update') / 10:g} steps |", True),
    (f"| a collective | {CLASSIC.duration('allreduce') / 10:g} steps, from when the last rank has joined |", True),
    (f"| `pass_to`, `receive` | {CLASSIC.duration('pass_to') / 10:g} steps for each value |", True),
    (
        "with four ranks, the bytes of the two halves add up to those of the whole",
        elements_sent("allreduce", 1024, 4)
        == elements_sent("scatterreduce", 1024, 4) + elements_sent("allgather", 256, 4),
    ),
    ("which will matter in puzzle 4", PUZZLES["fsdp"].number == 4),
    ("a first try at puzzle 0", PUZZLES["basic"].number == 0),
    ("Open **01_puzzles**", (NOTEBOOKS / "01_puzzles.py").exists()),
]


def met(slug: str, *timesteps: float) -> list[bool]:
    """Which of these meet a puzzle's target for time."""
    return [PUZZLES[slug].goal.meets_time(steps) for steps in timesteps]


PUZZLE_BOOK = [
    ("Eight puzzles", len(EIGHT.files) == 8),
    (
        "`< 67` timesteps is met by 66.9, and not by 67",
        met("pipeline", score("pipeline").timesteps, 66.9, 67) == [1, 1, 0],
    ),
    ("**00_tour**", (NOTEBOOKS / "00_tour.py").exists()),
    ("three fifths of the memory are activations and their gradients", at_the_turn("basic") == 3),
    ("just two layers and four batches", CLASSIC_OF["basic"].size == (2, 4, 1)),
    (f"sixteen batches the same schedule needs {peak('basic', 2, 16) / peak('basic'):g} times the memory", True),
    ("The peak is a quarter lower than before", peak("grad_accum") == 3 / 4 * peak("basic")),
    (f"in the same {score('basic').timesteps:g} steps", score("grad_accum").timesteps == score("basic").timesteps),
    (f"with sixteen batches it is still {peak('grad_accum', 2, 16):,} elements", True),
    (
        f"Four devices finish in {score('ddp').timesteps:g} steps what took one device {score('basic').timesteps:g}",
        True,
    ),
    (f"so {score('basic').timesteps / score('ddp').timesteps:.1f} times as fast", True),
    (f"Each rank sends {sent('ddp'):,} bytes, {sent('ddp') / GRADIENT_BYTES:g} times the size of the gradient", True),
    ("hardly grows with the number of ranks", sent("ddp", 2, 64, 64) < 2 * GRADIENT_BYTES),
    ("four ranks keep four copies of every weight", score("ddp").copies == (4, 4)),
    ("this model of six layers", CLASSIC_OF["wsdp"].size.layers == 6),
    (f"would need {peak('ddp', 6):,} elements on every rank; this needs {peak('wsdp'):,}", True),
    ("each rank sends twice the bytes", sent("wsdp") == 2 * sent("ddp", 6)),
    ("the next puzzle costs nothing and saves more", score("fsdp").timesteps == score("wsdp").timesteps),
    ("saves more", sent("fsdp") < sent("wsdp") and peak("fsdp") < peak("wsdp")),
    (f"falls from {peak('ddp', 6):,} to {peak('fsdp'):,} elements", True),
    (f"each rank sends {sent('fsdp') / sent('ddp', 6):g} times the bytes", True),
    (f"{idle('pipeline')} of the time is idle", True),
    (f"A rank in the middle sends {sent('pipeline'):,} bytes", True),
    (f"`fsdp` on this model and these ranks would send {sent('fsdp', 8):,}", True),
    (f"With four microbatches {idle('gpipe')} of the time is idle", True),
    (f"with sixteen it is {idle('gpipe', 8, 16)}, and with thirty-two {idle('gpipe', 8, 32)}", True),
    ("Memory grows with the number of microbatches", peak("gpipe", 8, 16) > peak("gpipe")),
    ("one backward (1F1B)", True),
    (
        "less memory in less time? One is known",
        any(r.dominates(33.2, 4_194_303) for r in PUZZLES["gpipe"].goal.records),
    ),
    (f"{peak('pipeline_fsdp'):,} elements on a rank, less than half", 2 * peak("pipeline_fsdp") < peak("fsdp")),
    ("four layers and not six", CLASSIC_OF["pipeline_fsdp"].size.layers == 4),
    (f"But {idle('pipeline_fsdp')} of the time is idle", True),
    ("twelve to thirteen million bytes", all(12e6 < r.bytes_sent < 13e6 for r in score("pipeline_fsdp").ranks)),
]


# --- From GPipe to zero bubble ---


@cache
def played(
    order: Order, layers: int = 4, batches: int = 8, costs: str = "stages", steps: int = 1, v: int = 0
) -> tuple[float, tuple[float, ...]]:
    """Timesteps of an order on four ranks, and what is in flight on each."""
    setting = Setting(costs=costs, steps=steps)
    trace = run(pipeline(order, **({"v": v} if v else {})), layers, batches, 4, setting=setting).trace
    return referee(trace).timesteps, inflight(trace, chunk=1)


def steps_of(order: Order, *game: Any) -> float:
    return played(order, *game)[0]


def held(order: Order, *game: Any) -> float:
    """In flight on the rank that has most."""
    return max(played(order, *game)[1])


@cache
def shared(schedule: Any) -> Report:
    return referee(run(schedule, 4, 4, 4, setting=Setting(costs="overlap")).trace)


def idle_share(batches: int) -> bool:
    """Whether GPipe on four ranks is idle for (p - 1) / (m + p - 1)."""
    report = referee(run(pipeline(gpipe), 4, batches, 4, setting=Setting(costs="stages")).trace)
    return report.bubble == pytest.approx(3 / (batches + 3))


PARTS = (4, 8, "parts")
MODERN = [
    (
        "Four ranks hold one layer each. A forward takes 1 step, a backward 2",
        COSTS["stages"].duration("backward") == 20,
    ),
    ("as long as the work of p - 1 microbatches", steps_of(gpipe) == 3 * (8 + 3)),
    ("the idle share is (p - 1) / (m + p - 1). Try 32 microbatches", idle_share(8) and idle_share(32)),
    (f"all {held(gpipe)} microbatches are *in flight* at once", played(gpipe)[1] == (8, 8, 8, 8)),
    ("1F1B: one forward, one backward", True),
    ("The time is the same", steps_of(one_f_one_b) == steps_of(gpipe)),
    (f"But rank 0 holds {held(one_f_one_b)} microbatches, as many as there are ranks", held(one_f_one_b) == 4),
    ("Try 32 microbatches again: the memory stays", held(one_f_one_b, 4, 32) == held(one_f_one_b)),
    (
        "For GPipe and for 1F1B the second line says that no order of whole backwards is faster",
        pipeline_time_bound(Size(4, 8, 4), Setting(costs="stages"), [({r}, 1) for r in range(4)]).least
        == steps_of(gpipe),
    ),
    ("Take a model of 8 layers", True),
    (
        f"The run takes {steps_of(interleaved, 8):g} steps and not {steps_of(one_f_one_b, 8):g}",
        steps_of(one_f_one_b, 8) - 48 == 2 * (steps_of(interleaved, 8) - 48),
    ),
    (f"rank 0 keeps {held(interleaved, 8)} of them, where it kept {held(one_f_one_b, 8)}", True),
    ("Try `layers=16, v=4`", steps_of(interleaved, 16, 8, "stages", 1, 4) == 4 * 24 + 9),
    ("ZB-H1: cut backward in two", True),
    ("ZB-H2: no bubble between steps", True),
    ("ZB-H2 pays with memory", held(zb_h2, *PARTS) > held(zb_h1, *PARTS)),
    ("they are two operations of 1 step each", COSTS["parts"].duration("backward_input") == 10),
    (
        f"The run takes {steps_of(zb_h1, *PARTS):g} steps and not {steps_of(one_f_one_b, *PARTS):g}",
        played(zb_h1, *PARTS)[1] == (4, 4, 4, 4) and held(one_f_one_b) == 4,
    ),
    ("with as much in flight on rank 0 as 1F1B. (Others hold as much as rank 0 now", True),
    (f"It still takes {steps_of(zb_h2, *PARTS):g} steps", True),
    ("first with ZB-H1 and then with ZB-H2", True),
    (
        f"{steps_of(zb_h2, *PARTS, 2):g} steps and not {steps_of(zb_h1, *PARTS, 2):g}, for {held(zb_h2, *PARTS, 2)} "
        f"microbatches in flight instead of {held(zb_h1, *PARTS, 2)}",
        True,
    ),
    (
        "Every further step saves the same again. Try `steps=4`",
        steps_of(zb_h1, *PARTS, 4) - steps_of(zb_h2, *PARTS, 4) == 9 == 3 * (54 - 51),
    ),
    ("So let rank 0 have the first chunk", zb_v(4, 8).stages_of(0) == [0, 7]),
    (
        f"Compare with 1F1B on the same 8 layers: {steps_of(zb_v, 8, 8, 'parts'):g} steps and not "
        f"{steps_of(one_f_one_b, 8, 8, 'parts'):g}",
        True,
    ),
    (
        f"the most in flight on any rank is {held(zb_v, 8, 8, 'parts')} activations of a layer in both",
        held(zb_v, 8, 8, "parts") == held(one_f_one_b, 8),
    ),
    ("`1F0` is the forward of stage 1 for microbatch 0. This one is 1F1B for two ranks and four microbatches", True),
    ("FSDP (ZeRO-3) keeps a shard", True),
    ("leaves a third of the time idle", shared(zero3).bubble == pytest.approx(1 / 3)),
    ("Almost", 0 < shared(fsdp_prefetch).timesteps - shared(ddp).timesteps < 1),
    (
        "for the memory of one more layer",
        shared(fsdp_prefetch).peak.memory - shared(zero3).peak.memory == CLASSIC.weight,
    ),
    ("needs about half of DDP's memory", 0.45 < shared(fsdp_prefetch).peak.memory / shared(ddp).peak.memory < 0.55),
]

REFERENCES = r"\(https://arxiv\.org/abs/[\d.]+\)|^\d\. | \d\. |\*\*0\d_\w+\*\*|\{puzzle: \w+\}"
"""Digits that are not figures: addresses, numbered lists, names."""


@pytest.mark.parametrize(("name", "facts"), [("00_tour", TOUR), ("01_puzzles", PUZZLE_BOOK), ("02_modern", MODERN)])
def test_every_quoted_fact_holds(name: str, facts: list[tuple[str, bool]]) -> None:
    assert [quote for quote, holds in facts if not holds] == []
    assert [quote for quote, _ in facts if quote not in words(name)] == []


@pytest.mark.parametrize(("name", "facts"), [("00_tour", TOUR), ("01_puzzles", PUZZLE_BOOK), ("02_modern", MODERN)])
def test_every_figure_is_measured(name: str, facts: list[tuple[str, bool]]) -> None:
    assert unmeasured(words(name), [quote for quote, _ in facts], REFERENCES) == []


def test_the_sum_of_the_tour_is_complete() -> None:
    """As its cells show: half of the batches and the other half."""
    halves = WeightGrad(0, 2, {2, 3}, 4) + WeightGrad(0, 2, {0, 1}, 4)
    assert halves.is_complete()
