"""Best known figures of puzzles whose targets leave room: those of the classes in `solutions/engine`."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

RECORDS: Mapping[str, tuple[Mapping[str, int], ...]] = MappingProxyType(
    {
        "RingAllReduce": ({"sent": 12_288, "messages": 6, "collectives": 0, "peak": 10_240},),
        "FSDPLean": ({"sent": 15_360, "flops": 20_480, "weights": 2_048, "peak": 8_960},),
        "UnevenFSDP": ({"sent": 42_852, "flops": 46_080, "collectives": 12, "weights": 2_388, "peak": 14_788},),
        "SequenceParallel": ({"sent": 1_536, "flops": 24_576, "weights": 2_048, "peak": 6_912},),
        "VocabParallelLoss": ({"sent": 144, "collectives": 3, "peak": 2_528},),
        "RingAttention": ({"sent": 3_072, "messages": 3, "collectives": 0, "flops": 16_384, "peak": 4_224},),
        "CausalRingAttention": ({"sent": 3_072, "messages": 3, "collectives": 0, "flops": 9_216, "peak": 3_136},),
        "Stream": ({"host_read": 2_048, "disk_read": 0, "sent": 6_144, "weights": 0, "peak": 1_408},),
        "Prefetch": ({"elapsed": 18_432, "sent": 6_144, "weights": 0, "peak": 2_048},),
        "HostCache": (
            {"disk_read": 4_096, "host_peak": 1_024, "host_loaded": 0, "sent": 18_432, "weights": 0, "peak": 1_536},
        ),
        "Rotate": ({"sent": 524, "peak": 131_072},),
        "Compose": ({"sent": 76, "peak": 135_680},),
    }
)
"""Records by slug. A class that no record dominates gets three stars; puzzles without records have optimal targets."""
