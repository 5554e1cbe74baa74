"""The engine: distributed models on several devices, with real arrays. Needs numpy and greenlet; an MPI is optional.

from lib.engine import ShardedEngine, launch
"""

from lib.engine.engine import Reader, Writer
from lib.engine.metering import Reading, unmetered

from .engine import Future, ShardedEngine
from .launcher import Run, launch

__all__ = ["Future", "Reader", "Reading", "Run", "ShardedEngine", "Writer", "launch", "unmetered"]
