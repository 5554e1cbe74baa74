"""The engine: models on several devices, with real arrays. Needs numpy, and greenlet or an MPI.

from lib.engine import ShardedEngine, launch
"""

from .engine import Future, ShardedEngine
from .launch import Run, launch
from .meter import Reading, unmetered

__all__ = ["Future", "Reading", "Run", "ShardedEngine", "launch", "unmetered"]
