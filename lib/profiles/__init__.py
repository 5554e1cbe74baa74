"""Traces of real runs: reads what a profiler wrote, names the schedule, and says where the step went.

PyTorch is not needed.

from lib.profiles import sources_of, study

`study(sources_of([folder]))` is a `Study` of a pipeline: the schedule's name, the shares of the step, why there is a
bubble, findings, a lower bound and a shorter order; of DDP, FSDP and tensor parallelism it is the `Shares` of ranks.
"""

from .reading import Source, read_rules, sources_of
from .studying import Shares, Study, study

__all__ = ["Shares", "Source", "Study", "read_rules", "sources_of", "study"]
