"""A whole run on one page: title, lanes, memory, legend."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from textwrap import wrap

from chalk.types import Diagram

from lib import Incomplete, Model, Outcome, Report, Trace

from .axis import Scale
from .lanes import draw_lanes
from .legend import draw_legend
from .memory import draw_memory
from .palette import ALARM, INK
from .pen import EM, clip, label, panel, stack
from .picture import Picture
from .reading import Scene, plain, read, trace_from


def draw(models_or_trace: Trace | Outcome | Model | Sequence[Model], title: str = "") -> Picture:
    """The timeline of a run, finished or not; prints its timesteps and its peak memory.

    Raises:
        RuleError: the models are not those of one run.
    """
    scene = read(trace_from(models_or_trace))
    report = scene.report
    print(f"Timesteps: {plain(report.timesteps)}")
    print(f"Maximum Memory: {report.peak.memory} at GPU: {report.peak.rank} time: {plain(report.peak.time)}")
    return draw_scene(scene, title)


def draw_scene(scene: Scene, title: str = "") -> Picture:
    scale = Scale(scene.end, len(scene.lanes))
    name = clip(title, 80) or name_of(scene)
    numbers = summary(scene.report)
    sections = [
        draw_header(name, numbers, scene.report, scale.width),
        draw_lanes(scene, scale),
        draw_memory(scene, scale),
        draw_legend(scene, scale.width),
    ]
    return Picture(stack(sections), name, f"{numbers}. {verdict(scene.report)}".strip())


def name_of(scene: Scene) -> str:
    def count(number: int, noun: str, plural: str) -> str:
        return f"{number} {noun if number == 1 else plural}"

    return ", ".join(
        [
            count(len(scene.lanes), "rank", "ranks"),
            count(scene.layers, "layer", "layers"),
            count(scene.batches, "microbatch", "microbatches"),
        ]
    )


def summary(report: Report) -> str:
    """The four numbers that people compare."""
    return (
        f"timesteps {plain(report.timesteps)} · makespan {plain(report.makespan)} · "
        f"bubble {plain(100 * report.bubble)}% · "
        f"peak memory {report.peak.memory:,} (rank {report.peak.rank}, t={plain(report.peak.time)})"
    )


def verdict(report: Report) -> str:
    if report.error is None:
        return ""
    return f"{'Not finished' if isinstance(report.error, Incomplete) else 'Not correct'}: {report.error}"


def draw_header(name: str, numbers: str, report: Report, width: float) -> Diagram:
    """Title, numbers, and what is wrong if something is."""
    rows = [
        (name, 16.0, INK, True),
        (numbers, 13.0, INK, False),
        *((line, 12.0, ALARM, False) for line in error_lines(verdict(report), width)),
    ]
    parts = []
    y = 0.0
    for text, size, colour, bold in rows:
        parts.append(label(0, y + size * 0.7, text, size, colour, "start", bold))
        y += size * 1.55
    return panel(width, y + 6, parts)


def error_lines(text: str, width: float) -> Iterator[str]:
    lines = wrap(text, int(min(width, 976) / (12 * EM)))
    yield from lines[:4]
    if len(lines) > 4:
        yield "…"
