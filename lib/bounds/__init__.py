"""Lower bounds, with reasons: no legal schedule of a size beats them in time, in memory or, within a time, in
traffic."""

from .memory import memory_bound, pipeline_memory_bound, traffic_bound
from .timesteps import Bound, pipeline_time_bound, time_bound

__all__ = ["Bound", "memory_bound", "pipeline_memory_bound", "pipeline_time_bound", "time_bound", "traffic_bound"]
