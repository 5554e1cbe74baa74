"""Models on real arrays: several devices, in one process, in processes of their own, on MPI or PyTorch.

Needs numpy and greenlet; an MPI is optional.

from lib.engine import ShardedEngine, launch
"""

from lib.engine.engine import Reader, Writer
from lib.engine.metering import Reading, unmetered

from .engine import Future, ShardedEngine
from .launcher import Run, launch

__all__ = ["Future", "Reader", "Reading", "Run", "ShardedEngine", "Writer", "launch", "unmetered"]
