"""Pareto plot of plans: gibibytes of the fullest GPU against seconds of a step, with the memory that a GPU has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from drawing.number_text import time_text
from drawing.palette import STROKE
from drawing.pen import Point, clip, lines, panel, stack, style, tooltip
from drawing.picture import Picture

from .pareto import HEIGHT, LEFT, RIGHT, WIDTH, Plane, Spot, around, draw_axes, draw_front, draw_spot
from .timeline import draw_header

if TYPE_CHECKING:
    from lib.planning import Plan  # graded schedules draw, and cannot load what it plans with

MIB, GIB = 2**20, 2**30
NAME = 46
"""Letters of a plan's name next to its mark."""


def draw_plans(plans: Sequence[Plan], title: str = "", dark: bool = False) -> Picture:
    """Memory against time of some plans of one job; stairs through those that no other beats."""
    job = plans[0].job
    spots = [Spot(plan.seconds, plan.peak // MIB, str(plan.split), "record") for plan in plans]
    limit = job.gpu.usable // MIB
    plane = Plane(around([spot.time for spot in spots]), (0.0, 1.08 * max(limit, *(spot.memory for spot in spots))))
    name = title or f"{job.model.name} on {job.gpus} {job.gpu.name}, {job.tokens:,} tokens a step"
    facts = [f"{_described(plan)}" for plan in plans]
    limit_text = f"{limit / 1024:.1f} GiB of each GPU are for training"
    unit, scale = ("seconds", 1) if plane.times[1] - plane.times[0] >= 1 else ("milliseconds", 1000)
    at, placed = plane.y(limit), list[Point]()
    limit_line = lines([[(LEFT, at), (WIDTH - RIGHT, at)]], style(None, STROKE, 1.2, dash=(5.0, 3.0)))
    drawn = [
        *draw_axes(plane, (f"{unit} a step", "GiB of the fullest GPU"), (scale, 1 / 1024), time_text),
        tooltip(limit_line, limit_text),
        *draw_front(spots, ("record",), plane, style(None, STROKE, 1.2)),
        *(
            part
            for spot, words in sorted(zip(spots, facts))
            for part in draw_spot(spot, plane, words, clip(spot.name, NAME), placed, 300)
        ),
    ]
    plot = panel(WIDTH, HEIGHT, drawn)
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
