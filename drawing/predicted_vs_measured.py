"""Predicted above measured: the lanes of one run in steps and in real time, at the same width."""

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from chalk.types import Diagram

from drawing.palette import INK, PAPER, PARTS
from drawing.pen import box, clip, label, panel, stack, style, tenths_text, text_width, tooltip
from drawing.picture import Picture
from drawing.run_text import MAX_ROWS, letter_of, name_of, row_lines
from drawing.scene import LaneMarks, Link, Mark, Scene, Tie, awaited_before, idle_between, scene_of, without_traffic
from drawing.timeline import Scale, draw_header, draw_lanes, draw_legend
from lib import Trace

Times = Sequence[Sequence[Sequence[float | None]]]
"""For each rank, the start and the end of each event, in seconds; for an overlapped call also when it was made, and
when its rank received the result."""


def draw_replay(
    trace: Trace,
    times: Times,
    title: str = "",
    notes: Sequence[str] = (),
    dark: bool = False,
    colour: str = "layer",
    measured_first: bool = False,
) -> Picture:
    """The lanes of a trace in steps, and below them the lanes of the measured `times`, or above them with
    `measured_first`; `notes` are lines under the title; `colour` is as in `draw`."""
    (words, predicted), (seen_words, seen) = _both(trace, times, colour).items()
    above = Scale.of(predicted)
    below = Scale.of(seen, unit=_unit(times)[0], wide=above.time_width)
    halves = [(predicted, above, words), (seen, below, seen_words)]
    name = clip(title, 80) or name_of(predicted)
    return _one_above_another(name, notes, halves[::-1] if measured_first else halves, dark)


def replay_text(trace: Trace, times: Times, width: int) -> str:
    """The lanes of a trace in steps and of the measured `times` as text, each `width` columns wide; each operation's
    share of the work; and a legend."""
    both = _both(trace, times, "layer")
    head = max(map(len, (*(row.label for scene in both.values() for row in scene.rows.every), "network"))) + 1
    lines, shares = [], []
    for words, scene in both.items():
        step = (width - head) / (scene.end or 1.0)
        lines += [words, *(line for row in scene.rows.every[:MAX_ROWS] for line in row_lines(row, scene, head, step))]
        marks = [mark for lane in scene.lanes for mark in lane.marks]
        work = sum(mark.end - mark.start for mark in marks) or 1
        shares.append({mark.op.name: 0.0 for mark in marks})
        for mark in marks:
            shares[-1][mark.op.name] += (mark.end - mark.start) / work
    told = ", ".join(f"{name} {share:.0%} {shares[1][name]:.0%}" for name, share in shares[0].items())
    legend = "  ".join(f"{letter_of(name)} {name}" for name in shares[0])
    below = (textwrap.fill(words, width) for words in (f"share of the work, predicted and measured: {told}", legend))
    return "\n".join([*lines, *below])


def _both(trace: Trace, times: Times, colour: str) -> dict[str, Scene]:
    """The scenes of the predictions and of the measurements, by their headings."""
    predicted = plain_scene(trace, colour)
    unit, factor = _unit(times)
    seen = measured(predicted, [[[t and t * factor for t in event] for event in rank] for rank in times])
    timesteps = trace.costs.took(round(predicted.report.timesteps, 1))  # the game's figure, the start of the last event
    return {
        f"Predicted: {timesteps}, {length(predicted, predicted.time_unit)}": predicted,
        f"Measured: {length(seen, unit)}": seen,
    }


def _unit(times: Times) -> tuple[str, float]:
    """The unit of displayed times, and its number in a second."""
    return ("ms", 1e3) if last_end(times) >= 0.01 else ("µs", 1e6)


def plain_scene(trace: Trace, colour: str = "layer") -> Scene:
    """The lanes of a trace without memory and traffic. In measured times no two ranks are equal, so each has a row."""
    whole = scene_of(trace, colour=colour)
    lanes = tuple(lane._replace(memory=()) for lane in whole.lanes)
    return replace(whole, lanes=lanes, shares_rows=False, report=without_traffic(whole.report))


def draw_runs(
    scenes: Mapping[str, Scene],
    title: str,
    notes: Sequence[str] = (),
    bar: Mapping[str, float] = MappingProxyType({}),
    dark: bool = False,
) -> Picture:
    """Measured scenes of one trace one above another, on one scale of time, each with its heading. `bar` has parts of a
    whole, in percent, which are drawn as a bar under the title."""
    end = max(scene.end for scene in scenes.values())
    halves = [(scene, Scale.of(scene, end=end), words) for words, scene in scenes.items()]
    return _one_above_another(title, notes, halves, dark, bar)


def _one_above_another(
    name: str,
    notes: Sequence[str],
    halves: Sequence[tuple[Scene, Scale, str]],
    dark: bool,
    bar: Mapping[str, float] = MappingProxyType({}),
) -> Picture:
    width = halves[0][1].width
    parts = [draw_header(name, notes, [], width), *([draw_parts(bar, width)] if bar else [])]
    for scene, scale, words in halves:
        heading = label(0, 18, words, 13.0, INK, "start", bold=True)
        parts += [panel(scale.width, 30.0, [heading]), draw_lanes(scene, scale)]
    parts.append(draw_legend([scene for scene, _, _ in halves], width))
    told = [*notes]
    for scene, _, words in halves:
        busy = (f"rank {rank} {100 * report.busy:.0f}%" for rank, report in enumerate(scene.report.ranks))
        told.append(f"{words}; busy: {', '.join(busy)}.")
    return Picture(stack(parts), name, " ".join(told), dark)


def draw_parts(bar: Mapping[str, float], width: float) -> Diagram:
    """Parts of a whole as a bar, with their names and percentages below; negative parts have no width."""
    scale, at, parts, row = min(width, 976.0) / max(sum(max(part, 0.0) for part in bar.values()), 1e-9), 0.0, [], 0.0
    for (name, part), fill in zip(bar.items(), PARTS * len(bar)):
        wide = max(part, 0.0) * scale
        if wide:
            look = style(fill, PAPER, 1.0)
            parts.append(tooltip(box(at, 0, at + wide, 22, look), f"{name}: {part:.1f}%"))
        words = f"{name} {part:.1f}%"
        parts += [box(row, 31, row + 10, 41, style(fill)), label(row + 14, 36, words, 12.0, INK, "start")]
        at, row = at + wide, row + 26 + text_width(words, 12.0)
    return panel(width, 54.0, parts)


def length(scene: Scene, unit: str) -> str:
    """'20.2 steps, 4.1% idle'."""
    return f"{tenths_text(scene.end)} {unit}, {tenths_text(100 * scene.report.bubble)}% idle"


def measured(scene: Scene, times: Times) -> Scene:
    """The same scene with measured times, from which it derives the waits."""
    end = last_end(times) or 1.0
    lanes = []
    for lane, rank in zip(scene.lanes, times, strict=True):
        marks = []
        for mark, (begun, ended, *call) in zip(lane.marks, rank, strict=True):
            called, awaited = call or (None, None)
            timed = mark._replace(start=begun or 0.0, end=ended or 0.0, called=called, awaited=awaited)
            marks.append(timed._replace(memory=None))
        gaps = idle_between(marks, end, awaited_before(scene.trace.ranks[lane.rank], marks))
        lanes.append(LaneMarks(lane.rank, tuple(marks), tuple(gaps), ()))
    moved = {(mark.rank, mark.place): mark for lane in lanes for mark in lane.marks}

    def now(mark: Mark) -> Mark:
        return moved[mark.rank, mark.place]

    links = tuple(Link(now(link.send), link.target, link.receive and now(link.receive)) for link in scene.links)
    met = [(tie.name, tuple(map(now, tie.members))) for tie in scene.ties]
    ties = tuple(
        Tie(name, min(mark.start for mark in some), max(mark.end for mark in some), some) for name, some in met
    )
    busy = [sum(mark.end - mark.start for mark in lane.on(0)) / end for lane in lanes]
    report = replace(
        scene.report,
        ranks=tuple(rank._replace(busy=share) for rank, share in zip(scene.report.ranks, busy, strict=True)),
        bubble=1 - sum(busy) / len(busy),
        waits=tuple(waits_of(lanes, links, ties)),
    )
    return replace(scene, report=report, lanes=tuple(lanes), links=links, ties=ties, end=end, known="")


def last_end(times: Times) -> float:
    return max((event[1] or 0.0 for rank in times for event in rank), default=0.0)


def waits_of(
    lanes: Sequence[LaneMarks], links: Sequence[Link], ties: Sequence[Tie]
) -> list[dict[int, tuple[int, int]]]:
    """By rank and event, the event for which it may have waited: a message's send, or the last rank to arrive."""
    waits: list[dict[int, tuple[int, int]]] = [{} for _ in lanes]
    free = {
        (mark.rank, mark.place): before.end if before else 0.0
        for lane in lanes
        for before, mark in zip((None, *lane.on(0)), lane.on(0))
    }
    for link in links:
        if link.receive is not None:
            waits[link.target][link.receive.place] = (link.source, link.send.place)
    for tie in ties:
        if tie.members[0].stream:
            continue  # nobody waits for it before it is awaited
        last = max(tie.members, key=lambda mark: free[mark.rank, mark.place])
        for mark in tie.members:
            waits[mark.rank][mark.place] = (last.rank, last.place)
    return waits
