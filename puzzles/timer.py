"""A limit on wall time: see `inside/timer.py`, which runs beside the player's code."""

from .inside.timer import TIME_LIMIT, Timer, TimeUp

__all__ = ["TIME_LIMIT", "TimeUp", "Timer"]
