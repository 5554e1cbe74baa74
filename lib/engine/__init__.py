"""The engine: distributed models on several devices, with real arrays. Needs numpy and greenlet; an MPI is optional.

from lib.engine import ShardedEngine, launch
"""

from lib.engine.metering.meter import Reading, unmetered

from .engine import Future, ShardedEngine
from .launcher import Run, launch
from .reader_writer import Reader, Writer

__all__ = ["Future", "Reader", "Reading", "Run", "ShardedEngine", "Writer", "launch", "unmetered"]
