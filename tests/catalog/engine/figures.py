"""Figures of the references of classes, by chapter. Of a puzzle that no chapter has, they are the targets, as
`puzzles check --write` writes them."""

from puzzles.catalog.engine import ENGINE_PUZZLES

FIGURES: dict[str, dict[str, int]] = {
    **{slug: {**puzzle.targets} for slug, puzzle in ENGINE_PUZZLES.items()},
    # annotated
    "AnnotatedMLP": {"sent": 4_096, "flops": 65_536, "weights": 2_048},
    "AnnotatedMoE": {"sent": 768, "flops": 20_480, "weights": 4_096},
    # data
    "DataParallel": {"sent": 12_288, "flops": 20_480},
    "OneBucket": {"sent": 12_288, "flops": 20_480, "collectives": 1},
    "RingAllReduce": {"sent": 12_288, "messages": 6, "collectives": 0, "peak": 10_240},
    "ParameterServer": {"sent": 3_328, "messages": 26, "collectives": 0, "elapsed": 36_864},
    "ZeRO1": {"sent": 2 * 12_288, "weights": 10_240, "kept": 10_240},
    "ZeRO2": {"sent": 12_288, "flops": 20_480, "collectives": 4, "peak": 17_792, "kept": 10_240},
    "FSDP": {"sent": 18_432, "flops": 24_576, "collectives": 6, "weights": 2_048, "peak": 9_088},
    "UnevenFSDP": {"sent": 42_852, "flops": 46_080, "collectives": 12, "weights": 2_388, "peak": 14_788},
    "ShardedAdam": {"sent": 43_032, "collectives": 18, "weights": 10_240, "kept": 10_240, "peak": 15_360},
    "ZeROMemory": {"collectives": 0, "peak": 384_000},
    # experts
    "SwitchDispatch": {"sent": 768, "flops": 34_080, "weights": 8_448},
    "BalanceLoss": {"sent": 48, "collectives": 1},
    "GShardTop2": {"sent": 1_536, "flops": 67_112, "weights": 8_448},
    "ExactDispatch": {
        "sent": 1_056,
        "messages": 4,
        "receives": 0,
        "collectives": 1,
        "barriers": 2,
        "flops": 42_304,
        "weights": 11_008,
    },
    "FindTheRace": {
        "sent": 1_080,
        "messages": 4,
        "receives": 0,
        "collectives": 2,
        "barriers": 2,
        "flops": 42_312,
        "weights": 11_008,
    },
    # federated
    "FedSGD": {"uplink": 544},
    "FedAvg": {"uplink": 9_360},
    "LowRank": {"sent": 1_040},
    # federated_sketches
    "Subsample": {"sent": 1_032},
    "Quantize": {"sent": 520},
    "Rotate": {"sent": 528, "collectives": 0, "peak": 131_072},
    # inference
    "PrefillDecode": {"sent": 4_032, "messages": 3, "collectives": 21, "elapsed": 52_504, "weights": 2_048},
    "Stream": {"host_read": 2_048, "disk_read": 0, "sent": 6_144, "collectives": 8, "weights": 0, "peak": 1_408},
    "Prefetch": {"elapsed": 18_432, "sent": 6_144, "collectives": 8, "weights": 0, "peak": 2_048},
    "HostCache": {
        "disk_read": 4_096,
        "host_peak": 1_024,
        "host_loaded": 0,
        "sent": 18_432,
        "collectives": 24,
        "weights": 0,
        "peak": 1_536,
    },
    # layers
    "LayerSplit": {
        "sent": 1_040,
        "messages": 2,
        "collectives": 0,
        "flops": 12_288,
        "weights": 1_024,
        "clock": 49_152,
    },
    "PipelineInference": {"sent": 1_632, "messages": 12, "collectives": 0, "weights": 1_024, "clock": 15_360},
    "GPipeRemat": {
        "sent": 1_088,
        "messages": 8,
        "collectives": 0,
        "flops": 65_536,
        "weights": 8_192,
        "stored": 896,
        "clock": 102_400,
    },
    # sequence
    "RingAttention": {"sent": 3_120, "messages": 3, "collectives": 0, "flops": 17_728, "peak": 4_224},
    # tensors
    "TensorParallel": {"sent": 1_536, "flops": 24_576, "weights": 2_048},
    "SequenceParallel": {"sent": 1_536, "flops": 24_576, "collectives": 4, "weights": 2_048, "peak": 6_912},
    "Matmul2D": {"sent": 1_536, "flops": 6_144, "weights": 1_024},
    "MegatronLayer": {"sent": 3_072, "collectives": 4, "flops": 40_320, "weights": 3_072},
    "MegatronMesh": {"sent": 6_336, "collectives": 10, "weights": 4_224},
    "VocabParallelLoss": {"sent": 144, "collectives": 3, "peak": 2_528},
}
