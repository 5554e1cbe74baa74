"""Pictures of training: runs as timelines, values in their network, all made with chalk; runs as text and pages.

from drawing import draw, draw_group
"""

from .compare import draw_compare
from .files import ENDINGS, require_ending, save
from .group import draw_group, draw_network, draw_value
from .pareto import Attempt, draw_pareto
from .picture import Picture, svg
from .replay import draw_replay
from .text import TEXT_WIDTH, text
from .timeline import Timeline, draw

__all__ = [
    "ENDINGS",
    "TEXT_WIDTH",
    "Attempt",
    "Picture",
    "Timeline",
    "draw",
    "draw_compare",
    "draw_group",
    "draw_network",
    "draw_pareto",
    "draw_replay",
    "draw_value",
    "require_ending",
    "save",
    "svg",
    "text",
]
