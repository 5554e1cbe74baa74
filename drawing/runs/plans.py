"""Pictures of plans: memory over time, and where the time and memory of a plan go."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from chalk.types import Diagram

from drawing.number_text import time_text
from drawing.palette import ALARM, EDGE, GRID, INK, KINDS, PAPER, SOFT, STROKE, TARGET
from drawing.pen import Point, box, clip, hatch, label, lines, panel, stack, style, tooltip
from drawing.picture import Picture

from .pareto import HEIGHT, LEFT, RIGHT, WIDTH, Plane, Spot, around, draw_axes, draw_front, draw_spot, round_numbers
from .scene import TimedRun
from .timeline import Timeline, draw, draw_header

if TYPE_CHECKING:
    from lib.planning import Plan  # graded schedules draw, and cannot load what it plans with

MIB, GIB = 2**20, 2**30
NAME = 46
"""Letters of a plan's name next to its mark."""


def draw_plans(plans: Sequence[Plan], title: str = "", dark: bool = False) -> Picture:
    """Memory over time of some plans of one job; stairs through those that no other beats."""
    job = plans[0].job
    spots = [Spot(plan.seconds, plan.peak // MIB, str(plan.split), "record") for plan in plans]
    limit = job.gpu.usable // MIB
    plane = Plane(around([spot.time for spot in spots]), (0.0, 1.08 * max(limit, *(spot.memory for spot in spots))))
    name = title or f"{job.model.name} on {job.gpus} {job.gpu.name}, {job.tokens:,} tokens a step"
    facts = [
        f"{plan.split}, recompute {plan.split.recompute}: {plan.seconds:.3g} s, {plan.peak / GIB:.1f} GiB, "
        f"MFU {plan.mfu:.1%}"
        for plan in plans
    ]
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


# --- Where the time and the memory of one plan go ---

CHART_WIDTH, FIRST, LAST, ROW, BAR = 760.0, 262.0, 700.0, 22.0, 14.0
COLOURS = (*KINDS.values(), STROKE, EDGE)
"""Of the kinds of memory, in their order."""


def draw_steps(plan: Plan, title: str = "", colour: str = "layer") -> Timeline:
    """The timeline of a plan: one replica, without its memory, of which the waterfall has the bytes."""
    return draw(TimedRun(plan.trace), title, colour=colour)


def draw_waterfall(plan: Plan, title: str, target: float = 0.0, dark: bool = False) -> Picture:
    """Where the time and memory of a plan go. `target`: the seconds that a step may take, if any."""
    from lib.planning.plans import LEAST_PART, PARTS, time_parts

    parts = {PARTS[name]: s for name, s in time_parts(plan).items() if s >= LEAST_PART * plan.seconds}
    facts = [f"{what} {seconds:.3g} s" for what, seconds in parts.items()]
    fits = f"{plan.peak / GIB:.1f} to {plan.high / GIB:.1f} GiB of {plan.job.gpu.usable / GIB:.1f}"
    notes = [f"{plan.split}", f"{plan.seconds:,.3f} s a step, MFU {plan.mfu:.1%}, {fits}: {plan.verdict}"]
    return Picture(
        stack([draw_header(clip(title, 80), notes, [], CHART_WIDTH), _times(plan, parts, target), _memory(plan)]),
        f"{title}: where time and memory go",
        f"{'. '.join(notes)}. {'; '.join(facts)}",
        dark,
    )


def _times(plan: Plan, parts: Mapping[str, float], target: float) -> Diagram:
    top, most = 20.0, 1.02 * max(plan.seconds, target)
    floor = top + ROW * len(parts) + 6
    drawn: list[Diagram] = [label(0, 8, "seconds of a step", 11, SOFT, "start")]
    drawn += _scale(most, top, floor, time_text)
    start = 0.0
    for number, (what, seconds) in enumerate(parts.items()):
        y, x0, x1 = top + number * ROW + ROW / 2, _x(start, most), _x(start + seconds, most)
        fill = style(KINDS["weights"] if not number else KINDS["gradients"])
        drawn += [
            label(FIRST - 8, y, what, 11, INK, "end"),
            tooltip(box(x0, y - BAR / 2, max(x1, x0 + 1), y + BAR / 2, fill), f"{what}: {seconds:.3g} s"),
            label(x1 + 5, y, f"{seconds:,.3g} s", 10, SOFT, "start", halo=PAPER),
        ]
        start += seconds
    if target:
        drawn += _limit(target, most, top, floor, f"target {target:,} s")
    return panel(CHART_WIDTH, floor + 30, drawn)


def _memory(plan: Plan) -> Diagram:
    top, usable = 22.0, plan.job.gpu.usable / GIB
    most, floor, y, start = 1.02 * max(plan.high / GIB, usable), top + 2 * ROW, top + ROW, 0.0
    rank = f"rank {plan.fullest.rank}" if len(plan.ranks) > 1 else "each GPU"
    drawn: list[Diagram] = [label(0, 8, f"GiB of the fullest GPU ({rank})", 11, SOFT, "start")]
    drawn += _scale(most, top, floor, lambda value: f"{value:g}")
    kinds = [(kind, size / GIB, colour) for (kind, size), colour in zip(plan.memory.items(), COLOURS) if size > 0]
    for number, (kind, size, colour) in enumerate(kinds):
        x0, x1 = _x(start, most), _x(start + size, most)
        drawn.append(tooltip(box(x0, y - BAR, x1, y + BAR, style(colour)), f"{kind}: {size:.1f} GiB"))
        key = floor + 34 + 16 * (number // 3)
        x = (number % 3) * 240.0
        drawn += [
            box(x, key - 5, x + 10, key + 5, style(colour)),
            label(x + 16, key, f"{kind} {size:.1f}", 11, INK, "start"),
        ]
        start += size
    x0, x1 = _x(start, most), _x(plan.high / GIB, most)
    drawn.append(tooltip(lines(hatch(x0, y - BAR, x1, y + BAR), style(None, SOFT)), "up to this in eager code"))
    drawn += _limit(usable, most, top, floor, f"{usable:.1f} GiB for training")
    return panel(CHART_WIDTH, floor + 40 + 16 * ((len(kinds) + 2) // 3), drawn)


def _x(value: float, most: float) -> float:
    return FIRST + (LAST - FIRST) * value / most


def _scale(most: float, top: float, floor: float, text: Callable[[float], str]) -> Iterator[Diagram]:
    for value in round_numbers(0, most):
        x = _x(value, most)
        yield lines([[(x, top), (x, floor)]], style(None, GRID))
        yield label(x, floor + 10, text(value), 10, SOFT)
    yield lines([[(FIRST, top), (FIRST, floor), (LAST, floor)]], style(None, EDGE, 1.2))


def _limit(value: float, most: float, top: float, floor: float, text: str) -> Iterator[Diagram]:
    x = _x(value, most)
    yield tooltip(lines([[(x, top - 4), (x, floor)]], style(None, TARGET, 1.4, dash=(5.0, 3.0))), text)
    yield label(x - 4, top - 9, text, 10, ALARM, "end")
