"""The timeline of a run, with title, lanes, memory and legend on one page; and two runs on one time axis."""

from collections.abc import Iterator, Sequence
from textwrap import wrap

from chalk.types import Diagram

from drawing.number_text import time_text
from drawing.palette import ALARM, INK
from drawing.pen import EM, clip, label, panel, stack
from drawing.picture import Picture
from lib import Goal, Report

from .axis import Scale
from .captions import describe_run, error_clauses, error_text, name_of, summary, titled
from .legend import draw_legend
from .memory import draw_memory, draw_traffic, highest, highest_traffic
from .scene import RunLike, Scene, scene_from
from .text import text_of
from .timeline_rows import draw_lanes

GLUE = "\u00a0"
"""A blank at which lines are not broken."""


class Timeline(Picture):
    """The picture of a run. It keeps the `scene`, so that it can be written in every format of a run."""

    def __init__(self, content: Diagram, title: str, scene: Scene, dark: bool = False) -> None:
        super().__init__(content, title, describe_run(scene), dark)
        self.scene = scene

    def in_text(self) -> str:
        return text_of(self.scene, self.title)


def draw(
    models_or_trace: RunLike,
    title: str = "",
    critical: bool = False,
    goal: Goal | None = None,
    dark: bool = False,
    judged: bool = True,
    colour: str = "layer",
) -> Timeline:
    """The timeline of a run, finished or not; prints its timesteps and its peak memory.

    `critical` marks the critical path. With a `goal`, the run is judged by the rules of a puzzle, and the picture
    shows the targets. `dark` is for dark slides. `judged=False` leaves out the referee's errors.

    `colour` is what the colours of operations show: 'layer', 'microbatch' or 'operation'. By microbatch and by
    operation, the first text in a box is its microbatch, as in papers on pipelines.

    Raises:
        RuleError: the models do not belong to one run.
        PuzzleError: there is no such `colour`.
    """
    scene = scene_from(models_or_trace, goal, colour)
    report = scene.report
    print(f"Timesteps: {time_text(report.timesteps)}")
    if scene.shows_memory:
        print(f"Maximum Memory: {report.peak.memory} at GPU: {report.peak.rank} time: {time_text(report.peak.time)}")
    return draw_scene(scene, title, critical, dark, judged)


def draw_scene(
    scene: Scene, title: str = "", critical: bool = False, dark: bool = False, judged: bool = True
) -> Timeline:
    """The timeline of a scene: header, lanes, memory, traffic, legend."""
    scale = Scale.of(scene)
    name = titled(clip(title, 80) or name_of(scene), scene.report)
    # What schedule this is, if the title does not say it, and its figures.
    known = [] if scene.known in name else wrap(scene.known, int(min(scale.width, 976) / (13 * EM)))
    notes = [*known, *summary_lines(scene.report, scale.width)]
    sections = [
        draw_header(name, notes, error_clauses(scene.report) if judged else [], scale.width),
        draw_lanes(scene, scale, critical),
        draw_memory(scene, scale),
        draw_traffic(scene, scale),
        draw_legend([scene], scale.width, critical),
    ]
    return Timeline(stack(sections), name, scene, dark)


def summary_lines(report: Report, width: float) -> list[str]:
    """The figures, wrapped to the width of the picture between two figures."""
    whole = summary(report).replace(" ", GLUE).replace(f"{GLUE}·{GLUE}", f"{GLUE}· ")
    lines = wrap(whole, int(min(width, 976) / (13 * EM)))
    return [line.replace(GLUE, " ").removesuffix(" ·") for line in lines]


def draw_header(name: str, notes: Sequence[str], wrong: Sequence[str], width: float) -> Diagram:
    """Title, figures, and errors, if any."""
    rows = [
        (name, 16.0, INK, True),
        *((line, 13.0, INK, False) for line in notes),
        *((line, 12.0, ALARM, False) for text in wrong for line in error_lines(text, width)),
    ]
    parts = []
    y = 0.0
    for text, size, colour, bold in rows:
        parts.append(label(0, y + size * 0.7, text, size, colour, "start", bold))
        y += size * 1.55
    return panel(width, y + 6, parts)


def error_lines(text: str, width: float) -> Iterator[str]:
    """The first four lines of an error, wrapped to the picture."""
    lines = wrap(text, int(min(width, 976) / (12 * EM)))
    yield from lines[:4]
    if len(lines) > 4:
        yield "…"


def draw_compare(
    mine: RunLike,
    reference: RunLike,
    title: str = "",
    names: tuple[str, str] = ("yours", "reference"),
    critical: bool = False,
    goal: Goal | None = None,
    dark: bool = False,
    colour: str = "layer",
) -> Picture:
    """Two runs, one above the other, on the same scales of time, memory and traffic; the title states the difference.

    `critical`, `goal`, `dark` and `colour` are as in `draw`.

    Raises:
        RuleError: the models do not belong to one run.
        PuzzleError: there is no such `colour`.
    """
    scenes = [scene_from(run, goal, colour) for run in (mine, reference)]
    end = max(scene.end for scene in scenes)
    scales = [Scale.of(scene, end=end) for scene in scenes]
    most, most_sent = max(map(highest, scenes)), max(map(highest_traffic, scenes))
    name = clip(title, 80) or name_of(scenes[0])
    summed_up = difference(scenes[0].report, scenes[1].report, names)
    parts: list[Diagram] = [draw_header(name, [summed_up], [], scales[0].width)]
    for scene, scale, who in zip(scenes, scales, names, strict=True):
        notes = summary_lines(scene.report, scale.width)
        parts += [
            panel(scale.width, 12.0, []),
            draw_header(clip(who, 60), notes, [error_text(scene.report)], scale.width),
            draw_lanes(scene, scale, critical),
            draw_memory(scene, scale, most),
            draw_traffic(scene, scale, most_sent),
        ]
    parts.append(draw_legend(scenes, scales[0].width, critical))
    words = [f"{summed_up}.", *(f"{who}: {describe_run(scene)}" for scene, who in zip(scenes, names, strict=True))]
    return Picture(stack(parts), name, " ".join(words), dark)


def difference(mine: Report, other: Report, names: tuple[str, str]) -> str:
    """'yours, compared with reference: 1.2 steps more, 524,288 elements less, sends as many elements, ...'."""
    parts = [
        more_or_less(round(mine.timesteps - other.timesteps, 3), mine.costs.time_unit),
        more_or_less(mine.peak.memory - other.peak.memory, "elements"),
        *([f"sends {more_or_less(mine.traffic - other.traffic, 'elements')}"] if mine.traffic or other.traffic else []),
        more_or_less(round(100 * (mine.bubble - other.bubble), 1), "points of bubble"),
    ]
    return f"{names[0]}, compared with {names[1]}: {', '.join(parts)}"


def more_or_less(number: float, unit: str) -> str:
    """1.2 is '1.2 steps more', -5 is '5 steps less', 0 is 'as many steps'."""
    if not number:
        return f"as many {unit}"
    amount = f"{abs(number):,}" if isinstance(number, int) else time_text(abs(number))
    return f"{amount} {unit} {'more' if number > 0 else 'less'}"
