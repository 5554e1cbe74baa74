"""Best known figures of puzzles whose targets leave room: of the class in `solutions/engine/records`, or else of the
reference in `solutions/engine`."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

RECORDS: Mapping[str, tuple[Mapping[str, int], ...]] = MappingProxyType(
    {
        "RingAllReduce": ({"sent": 12_288, "messages": 6, "collectives": 0, "peak": 10_240},),
        "ZeRO2": ({"sent": 12_288, "flops": 20_480, "collectives": 4, "peak": 16_512, "kept": 10_240},),
        "FSDP": ({"sent": 18_432, "flops": 24_576, "collectives": 6, "weights": 2_048, "peak": 8_576},),
        "UnevenFSDP": ({"sent": 42_852, "flops": 46_080, "collectives": 12, "weights": 2_388, "peak": 14_788},),
        "SequenceParallel": ({"sent": 1_536, "flops": 24_576, "collectives": 4, "weights": 2_048, "peak": 5_248},),
        "VocabParallelLoss": ({"sent": 96, "collectives": 2, "peak": 768},),
        "RingAttention": ({"sent": 3_120, "messages": 3, "collectives": 0, "flops": 17_664, "peak": 2_208},),
        "LayerSplit": (
            {"sent": 1_040, "messages": 2, "collectives": 0, "flops": 12_288, "weights": 1_024, "clock": 36_864},
        ),
        "GPipeRemat": (
            {
                "sent": 1_088,
                "messages": 8,
                "collectives": 0,
                "flops": 58_368,
                "weights": 8_192,
                "stored": 896,
                "clock": 81_920,
            },
        ),
        "SwitchDispatch": ({"sent": 768, "flops": 34_080, "weights": 8_448},),
        "GShardTop2": ({"sent": 1_536, "flops": 67_112, "weights": 8_448},),
        "BalanceLoss": ({"sent": 24, "collectives": 1},),
        "Stream": ({"host_read": 2_048, "disk_read": 0, "sent": 6_144, "collectives": 8, "weights": 0, "peak": 1_408},),
        "Prefetch": ({"elapsed": 18_432, "sent": 6_144, "collectives": 8, "weights": 0, "peak": 1_792},),
        "HostCache": (
            {
                "disk_read": 4_096,
                "host_peak": 1_024,
                "host_loaded": 0,
                "sent": 18_432,
                "collectives": 24,
                "weights": 0,
                "peak": 1_536,
            },
        ),
        "FedSGD": ({"uplink": 544},),
        "FedAvg": ({"uplink": 9_360},),
        "Quantize": ({"sent": 520},),
        "Rotate": ({"sent": 528, "collectives": 0, "peak": 131_072},),
    }
)
"""Records by slug: the best classes that are known. A class that no record dominates gets three stars."""
