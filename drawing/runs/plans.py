"""Pareto plot of plans: gibibytes of the fullest GPU against seconds of a step, with the memory that a GPU has."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from chalk.types import Diagram

from drawing.number_text import time_text
from drawing.palette import EDGE, GRID, INK, PAPER, SOFT, STROKE
from drawing.pen import clip, label, lines, panel, stack, style, text_width, tooltip
from drawing.picture import Picture

from .pareto import BOTTOM, HEIGHT, LEFT, RIGHT, TOP, WIDTH, Plane, Spot, draw_front, mark_of, round_numbers
from .timeline import draw_header

if TYPE_CHECKING:
    from lib.planning import Plan  # graded schedules draw, and cannot load what it plans with

MIB, GIB = 2**20, 2**30
NAME = 46
"""Letters of a plan's name beside its mark."""


def draw_plans(plans: Sequence[Plan], title: str = "", dark: bool = False) -> Picture:
    """Memory against time of some plans of one job; stairs through those that no other beats."""
    job = plans[0].job
    spots = [Spot(plan.seconds, plan.peak // MIB, str(plan.split), "record") for plan in plans]
    limit = job.gpu.usable // MIB
    plane = Plane(_around([spot.time for spot in spots]), (0.0, 1.08 * max(limit, *(spot.memory for spot in spots))))
    name = title or f"{job.model.name} on {job.gpus} {job.gpu.name}, {job.tokens:,} tokens a step"
    facts = [f"{_described(plan)}" for plan in plans]
    limit_text = f"{limit / 1024:.1f} GiB of each GPU are for training"
    plot = panel(WIDTH, HEIGHT, [*_axes(plane, limit, limit_text), *_spots(spots, facts, plane)])
    return Picture(
        stack([draw_header(clip(name, 80), [limit_text], [], WIDTH), plot]),
        f"{name}: memory against time",
        f"{limit_text}. {'; '.join(facts)}",
        dark,
    )


def _described(plan: Plan) -> str:
    return (
        f"{plan.split}, recompute {plan.split.recompute}: {plan.seconds:.3g} s, {plan.peak / GIB:.1f} GiB, "
        f"MFU {plan.mfu:.1%}"
    )


def _around(values: Sequence[float]) -> tuple[float, float]:
    low, high = min(values), max(values)
    room = max((high - low) * 0.25, high * 0.08)
    return max(0.0, low - room), high + room


def _axes(plane: Plane, limit: int, limit_text: str) -> Iterator[Diagram]:
    floor, right = HEIGHT - BOTTOM, WIDTH - RIGHT
    low, high = plane.times
    scale = 1 if high - low >= 1 else 1000
    for time in round_numbers(low * scale, high * scale):
        x = plane.x(time / scale)
        yield lines([[(x, TOP), (x, floor)]], style(None, GRID))
        yield label(x, floor + 11, time_text(time), 10, SOFT)
    for memory in round_numbers(0, plane.memories[1] / 1024):
        y = plane.y(memory * 1024)
        yield lines([[(LEFT, y), (right, y)]], style(None, GRID))
        yield label(LEFT - 7, y, time_text(memory), 10, SOFT, "end")
    yield lines([[(LEFT, TOP), (LEFT, floor), (right, floor)]], style(None, EDGE, 1.2))
    y = plane.y(limit)
    yield tooltip(lines([[(LEFT, y), (right, y)]], style(None, STROKE, 1.2, dash=(5.0, 3.0))), limit_text)
    yield label((LEFT + right) / 2, floor + 29, "seconds a step" if scale == 1 else "milliseconds a step", 11, SOFT)
    yield label(0, TOP - 14, "GiB of the fullest GPU", 11, SOFT, "start")


def _spots(spots: Sequence[Spot], facts: Sequence[str], plane: Plane) -> Iterator[Diagram]:
    yield from draw_front(spots, ("record",), plane, style(None, STROKE, 1.2))
    taken: list[tuple[float, float]] = []
    for spot, words in sorted(zip(spots, facts)):
        x, y = plane.x(spot.time), plane.y(spot.memory)
        yield tooltip(mark_of(spot.whose, x, y), words)
        text, at = clip(spot.name, NAME), y - 13
        while any(abs(at - other) < 13 and abs(x - place) < 300 for place, other in taken):
            at += 13
        taken.append((x, at))
        right = x + 9 + text_width(text, 11) < WIDTH
        yield label(x + (9 if right else -9), at, text, 11, INK, "start" if right else "end", halo=PAPER)
