"""Two runs on one time axis, with the difference in words."""

from chalk.types import Diagram

from drawing.number_text import time_text
from drawing.pen import clip, panel, stack
from drawing.picture import Picture
from lib import Goal, Report

from .axis import Scale
from .captions import describe_run, error_text, name_of
from .legend import draw_legend
from .memory import draw_memory, highest
from .scene import RunLike, scene_from
from .timeline import draw_header, summary_lines
from .timeline_rows import draw_lanes
from .traffic import draw_traffic, highest_traffic


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
    """One run above another, both on the same scales of time, memory and traffic; the title states the difference.

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
        parts += [
            panel(scale.width, 12.0, []),
            draw_header(
                clip(who, 60), summary_lines(scene.report, scale.width), [error_text(scene.report)], scale.width
            ),
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
