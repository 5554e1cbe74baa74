"""Pictures of training: runs as timelines, values in their network, all made with chalk.

from drawing import draw, draw_group
"""

from .files import save
from .group import draw_group, draw_network, draw_value
from .picture import Picture, svg
from .timeline import draw

__all__ = ["Picture", "draw", "draw_group", "draw_network", "draw_value", "save", "svg"]
