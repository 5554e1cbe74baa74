"""Lower bounds: what no legal schedule of a size beats, in time, memory and, within a time, traffic, with reasons."""

from .memory import memory_bound, pipeline_memory_bound, traffic_bound
from .timesteps import Bound, pipeline_time_bound, time_bound

__all__ = ["Bound", "memory_bound", "pipeline_memory_bound", "pipeline_time_bound", "time_bound", "traffic_bound"]
