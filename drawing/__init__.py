"""Pictures of training: made with chalk, runs as timelines, values in their network; also runs as text and web pages.

from drawing import draw, draw_group
"""

from drawing.files import ENDINGS, is_picture, require_ending, save
from drawing.plans import Attempt, draw_pareto, draw_plans, draw_steps, draw_waterfall
from drawing.predicted_vs_measured import draw_replay, draw_runs
from drawing.run_text import TEXT_WIDTH, text
from drawing.scene import EndedRun, TimedRun
from drawing.timeline import Timeline, draw, draw_compare
from drawing.values import draw_group, draw_network, draw_value

from .picture import Picture, svg

__all__ = [
    "ENDINGS",
    "TEXT_WIDTH",
    "Attempt",
    "EndedRun",
    "Picture",
    "TimedRun",
    "Timeline",
    "draw",
    "draw_compare",
    "draw_group",
    "draw_network",
    "draw_pareto",
    "draw_plans",
    "draw_replay",
    "draw_runs",
    "draw_steps",
    "draw_value",
    "draw_waterfall",
    "is_picture",
    "require_ending",
    "save",
    "svg",
    "text",
]
