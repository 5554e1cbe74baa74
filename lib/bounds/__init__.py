"""Lower bounds: what no legal schedule of a size beats, in time and in memory, each with its reason."""

from .memory import memory_bound
from .pipelines import pipeline_time_bound
from .timesteps import Bound, time_bound

__all__ = ["Bound", "memory_bound", "pipeline_time_bound", "time_bound"]
