"""Pictures of many runs or plans, and of one plan: the Pareto plot of memory over time, with a puzzle's target, its
records and attempts; and where the time and memory of a plan go.

The plane of time and memory is the same for runs of a puzzle and for plans of a job; only their words, units and limits
differ. Records of the puzzle's own family form one front; records of any family, the open front, form another behind
it, since they solve another problem. Attempts that failed have no place in the plane, so the first three are named
under the title. The figures come from reports and plans; only the fronts are found here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, NamedTuple

from chalk.style import Style
from chalk.types import Diagram

from drawing.palette import ALARM, EDGE, GRID, INK, KINDS, PAPER, SOFT, STROKE, TARGET, TARGET_AREA
from drawing.pen import (
    Point,
    box,
    clip,
    diamond,
    hatch,
    label,
    lines,
    panel,
    polygon,
    short_text,
    stack,
    style,
    text_width,
    time_text,
    tooltip,
)
from drawing.picture import Picture
from drawing.scene import TimedRun
from drawing.timeline import Timeline, draw, draw_header
from lib import Goal, Record, Report

if TYPE_CHECKING:
    from lib.planning import Plan


WIDTH, HEIGHT = 720.0, 380.0
LEFT, BOTTOM, TOP, RIGHT = 66.0, 44.0, 12.0, 24.0
RADIUS = 6.0


NAMES = {"record": "record", "other": "record of another kind", "attempt": "attempt"}
"""Words of the key and of the tooltips, by the kind of a spot."""


class Attempt(NamedTuple):
    """A schedule that was judged, and its name."""

    name: str
    report: Report


class Spot(NamedTuple):
    """A point in the plane: steps, elements, its name, and its kind."""

    time: float
    memory: int
    name: str
    whose: str
    """'record', 'other' (a record of another family), 'attempt', or 'failed'."""
    traffic: int | None = None
    """Elements that the busiest rank sends, if known."""


def _name_and_kind(record: Record, goal: Goal) -> tuple[str, str]:
    """The name of a record and whose it is: of '.../gpipe_laps.py: three_batches' 'laps, three batches'; one of another
    family is named by its family."""
    if not record.is_of(goal.family):
        return record.family, "other"
    file, variant = record.file_and_variant
    stem = PurePosixPath(file).stem.removeprefix(f"{goal.slug}_")
    return ", ".join(filter(None, [stem, variant])).replace("_", " ") or "record", "record"


@dataclass(frozen=True)
class Plane:
    """Converts steps and elements to pixels, with a margin around everything."""

    times: tuple[float, float]
    memories: tuple[float, float]

    def x(self, time: float) -> float:
        low, high = self.times
        return LEFT + (WIDTH - LEFT - RIGHT) * (time - low) / (high - low)

    def y(self, memory: float) -> float:
        low, high = self.memories
        return HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * (memory - low) / (high - low)


def draw_pareto(goal: Goal, attempts: Sequence[Attempt] = (), title: str = "", dark: bool = False) -> Picture:
    """Peak memory over timesteps for a puzzle: the target box, the records, and the attempts.

    Records of other families are shown if no other record beats them.
    """
    shown = [r for r in goal.records if r.is_of(goal.family) or r in goal.open_front]
    spots = [Spot(r.timesteps, r.peak_memory, *_name_and_kind(r, goal), r.traffic) for r in shown]
    for name, report in attempts:
        whose = "attempt" if report.error is None else "failed"
        spots.append(Spot(report.timesteps, report.peak.memory, name, whose, report.traffic))
    plane = plane_of(goal, [spot for spot in spots if spot.whose != "failed"])
    name = clip(title or goal.slug, 80)
    asked = f"target: {goal.time_text} {goal.costs.time_words}, {goal.memory_text} elements"
    asked += f"; sent {goal.traffic_words}" if goal.traffic_text else ""
    words = [describe_spot(spot, goal) for spot in spots]
    time_words = goal.costs.time_words
    axes = draw_axes(plane, (time_words, "peak memory, elements"))
    plot = panel(WIDTH, HEIGHT, [*axes, *draw_box(goal, plane), *draw_spots(spots, plane, time_words)])
    failed = [describe_spot(spot, goal) for spot in spots if spot.whose == "failed"]
    parts: list[Diagram] = [draw_header(name, [asked], failed[:3], WIDTH), plot, draw_key(spots)]
    return Picture(stack(parts), f"{name}: peak memory against {time_words}", f"{asked}. {'; '.join(words)}", dark)


def describe_spot(spot: Spot, goal: Goal) -> str:
    """'record laps: 19.9 timesteps, 4,000,000 elements, meets the target'."""
    if spot.whose == "failed":
        return f"{clip(spot.name, 60)} is not correct"
    met = goal.meets_time(spot.time) and goal.meets_memory(spot.memory)
    if goal.decides == "pass":
        met = met and goal.meets_traffic(spot.traffic or 0)
    kind = {"record": "record ", "other": "record of another kind, "}.get(spot.whose, "")
    where = f"{time_text(spot.time)} {goal.costs.time_words}, {spot.memory:,} elements"
    where += f", {spot.traffic:,} elements sent" if spot.traffic else ""
    return f"{kind}{clip(spot.name, 60)}: {where}, {'meets the target' if met else 'misses the target'}"


def plane_of(goal: Goal, spots: Sequence[Spot]) -> Plane:
    """The plane in which the target and all spots fit."""
    times = [float(goal.time_limit), *(spot.time for spot in spots)]
    memories = [float(goal.memory_limit), *(float(spot.memory) for spot in spots)]
    return Plane(around(times, 0.5), around(memories, 0.5))


def around(values: Sequence[float], least: float = 0.0) -> tuple[float, float]:
    """The range of some values with room on both sides, at least `least` wide."""
    low, high = min(values), max(values)
    room = max((high - low) * 0.25, high * 0.08, least)
    return max(0.0, low - room), high + room


def draw_box(goal: Goal, plane: Plane) -> Iterator[Diagram]:
    """The box of everything that meets both targets."""
    x, y = plane.x(goal.time_limit), plane.y(goal.memory_limit)
    x, y = min(x, WIDTH - RIGHT), max(y, TOP)
    left, floor = LEFT, HEIGHT - BOTTOM
    words = f"meets both targets: {goal.time_text} {goal.costs.time_words} and {goal.memory_text} elements"
    yield tooltip(box(left, y, x, floor, style(TARGET_AREA, opacity=0.8)), words)
    yield lines([[(left, y), (x, y), (x, floor)]], style(None, STROKE, 1.2, dash=(5.0, 3.0)))
    yield label(left + 8, floor - 11, "target met", 11, STROKE, "start", halo=TARGET_AREA)


def draw_axes(
    plane: Plane,
    words: tuple[str, str],
    scales: tuple[float, float] = (1.0, 1.0),
    memory_text: Callable[[float], str] = lambda number: short_text(round(number)),
) -> Iterator[Diagram]:
    """Both axes with round numbers, each in units of which a step or an element has `scales`."""
    floor = HEIGHT - BOTTOM
    for time in round_numbers(*(end * scales[0] for end in plane.times)):
        x = plane.x(time / scales[0])
        yield lines([[(x, TOP), (x, floor)]], style(None, GRID))
        yield label(x, floor + 11, time_text(time), 10, SOFT)
    for memory in round_numbers(*(end * scales[1] for end in plane.memories)):
        y = plane.y(memory / scales[1])
        yield lines([[(LEFT, y), (WIDTH - RIGHT, y)]], style(None, GRID))
        yield label(LEFT - 7, y, memory_text(memory), 10, SOFT, "end")
    yield lines([[(LEFT, TOP), (LEFT, floor), (WIDTH - RIGHT, floor)]], style(None, EDGE, 1.2))
    yield label((LEFT + WIDTH - RIGHT) / 2, floor + 29, words[0], 11, SOFT)
    yield label(0, TOP - 14, words[1], 11, SOFT, "start")


def round_numbers(low: float, high: float) -> list[float]:
    """Four to nine round numbers within the range."""
    gap = next(g for g in (b * 10.0**e for e in range(-1, 12) for b in (1, 2, 5)) if (high - low) / g <= 8)
    first = int(low / gap) + (low > 0)
    return [round(i * gap, 1) for i in range(first, int(high / gap) + 1)]


def draw_spots(spots: Sequence[Spot], plane: Plane, time_words: str) -> Iterator[Diagram]:
    """Records as diamonds, attempts as discs with their names; failed attempts are not shown."""
    if any(spot.whose == "other" for spot in spots):
        yield from draw_front(spots, ("record", "other"), plane, style(None, SOFT, 1.2, dash=(2.0, 3.0)))
    yield from draw_front(spots, ("record",), plane, style(None, STROKE, 1.2))
    placed: list[Point] = []
    for spot in sorted(spots, key=lambda spot: spot.whose == "attempt"):
        if spot.whose == "failed":
            continue
        words = f"{NAMES[spot.whose]}: {spot.name}, {time_text(spot.time)} {time_words}, {spot.memory:,} elements"
        name = "" if spot.whose == "other" else clip(spot.name, 30)  # those are many, and alike: the key names them
        yield from draw_spot(spot, plane, words, name, placed, 190)


def draw_spot(spot: Spot, plane: Plane, words: str, name: str, placed: list[Point], near: float) -> Iterator[Diagram]:
    """A spot with its name, lower where it would cover one that is `placed` within so many pixels."""
    x, y = plane.x(spot.time), plane.y(spot.memory)
    yield tooltip(mark_of(spot.whose, x, y), words)
    if not name:
        return
    at = y - 13
    while any(abs(at - other) < 13 and abs(x - place) < near for place, other in placed):
        at += 13
    placed.append((x, at))
    right = x + 9 + text_width(name, 11) < WIDTH
    yield label(x + (9 if right else -9), at, name, 11, INK, "start" if right else "end", halo=PAPER)


def draw_front(spots: Sequence[Spot], whose: Sequence[str], plane: Plane, stroke: Style) -> Iterator[Diagram]:
    """Stairs through the spots that no other spot beats."""
    best: list[tuple[float, int]] = []
    for time, memory in sorted((spot.time, spot.memory) for spot in spots if spot.whose in whose):
        if not best or memory < best[-1][1]:
            best.append((time, memory))
    stairs = [p for i, (t, m) in enumerate(best) for p in ([(t, best[i - 1][1]), (t, m)] if i else [(t, m)])]
    if len(stairs) > 1:
        yield lines([[(plane.x(t), plane.y(m)) for t, m in stairs]], stroke)


def mark_of(whose: str, x: float, y: float) -> Diagram:
    if whose == "other":
        return diamond(x, y, RADIUS - 1.5, style(PAPER, SOFT, 1.4))
    if whose == "record":
        return diamond(x, y, RADIUS, style(PAPER, STROKE, 2.0))
    sines = (0.0, 0.5, 0.866, 1.0, 0.866, 0.5, 0.0, -0.5, -0.866, -1.0, -0.866, -0.5)
    # A disc with twelve corners: round enough at this size.
    disc = [(x + RADIUS * sines[(i + 3) % 12], y + RADIUS * sines[i]) for i in range(12)]
    return polygon(disc, style(ALARM, PAPER, 1.0))


def draw_key(spots: Sequence[Spot]) -> Diagram:
    parts: list[Diagram] = []
    x = LEFT
    for whose, words in NAMES.items():
        if any(spot.whose == whose for spot in spots):
            parts += [mark_of(whose, x + RADIUS, 12), label(x + 2 * RADIUS + 6, 12, words, 11, SOFT, "start")]
            x += 2 * RADIUS + 26 + text_width(words, 11)
    return panel(WIDTH, 24.0 if parts else 0.0, parts)


# --- Plans ---

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
    from lib.planning.plans import LEAST_PART, PARTS, time_parts  # here, since other pictures need no planner

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
