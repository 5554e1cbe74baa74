"""Names the schedule of a run, from its trace alone: 1F1B, ZeRO-3, or the nearest and what differs."""

from .orders import recomputed
from .recognition import Recognition, recognize, recognize_table

__all__ = ["Recognition", "recognize", "recognize_table", "recomputed"]
