"""The engine's catalog: classes to write, by their names, in the order in which they are best played."""

from collections.abc import Mapping
from types import MappingProxyType

from . import (
    data_parallel,
    fsdp,
    fsdp_lean,
    one_bucket,
    pipeline_inference,
    ring_all_reduce,
    sequence_parallel,
    tensor_parallel,
    zero1,
)
from .puzzle import EnginePuzzle

_MODULES = (
    data_parallel,
    one_bucket,
    ring_all_reduce,
    zero1,
    fsdp,
    fsdp_lean,
    tensor_parallel,
    sequence_parallel,
    pipeline_inference,
)

ENGINE_PUZZLES: Mapping[str, EnginePuzzle] = MappingProxyType({m.PUZZLE.slug: m.PUZZLE for m in _MODULES})

__all__ = ["ENGINE_PUZZLES", "EnginePuzzle"]
