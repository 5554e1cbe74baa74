"""The core path: ten steps from one device to a cluster, across the tracks, and what comes before each puzzle."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple


class PathStep(NamedTuple):
    """A step of the path: the puzzles that one idea needs, in the order of play."""

    title: str
    slugs: tuple[str, ...]


PATH = (
    PathStep("One device", ("basic", "grad_accum")),
    PathStep("Split the batch", ("ddp", "DataParallel", "RingAllReduce")),
    PathStep("Shard the model's state", ("zero1", "fsdp", "FSDP")),
    PathStep("Recompute activations", ("checkpoint",)),
    PathStep("Split the layers", ("pipeline", "gpipe", "one_f_one_b", "zb_h1")),
    PathStep("Overlap communication", ("ddp_overlap", "fsdp_prefetch")),
    PathStep("Split each layer", ("matmul", "tensor_parallel", "megatron_mlp", "sequence_parallel")),
    PathStep("Split the sequence", ("RingAttention",)),
    PathStep("Split the experts", ("SwitchDispatch", "expert_parallel")),
    PathStep("Combine them on a cluster", ("three_d", "llama_8b_16", "llama_70b_64")),
)

CORE = tuple(slug for step in PATH for slug in step.slugs)
"""Every core puzzle in the order of play. All other puzzles of the game are extra."""

AFTER: Mapping[str, tuple[str, ...]] = {
    "grad_accum": ("basic",),
    "ddp": ("grad_accum",),
    "wsdp": ("ddp",),
    "zero1": ("ddp",),
    "zero2": ("zero1",),
    "fsdp": ("zero1",),
    "checkpoint": ("basic",),
    "offload": ("checkpoint",),
    "pipeline": ("ddp",),
    "gpipe": ("pipeline",),
    "pipeline_fsdp": ("gpipe", "fsdp"),
    "one_f_one_b": ("gpipe",),
    "interleaved": ("one_f_one_b",),
    "breadth_first": ("interleaved", "fsdp"),
    "zb_h1": ("one_f_one_b",),
    "zb_h2": ("zb_h1",),
    "zb_v": ("zb_h2", "interleaved"),
    "ddp_overlap": ("ddp",),
    "fsdp_prefetch": ("fsdp", "ddp_overlap"),
    "stream_inference": ("fsdp_prefetch",),
    "tensor_parallel": ("ddp", "matmul"),
    "sequence_parallel": ("tensor_parallel",),
    "expert_parallel": ("ddp_overlap", "SwitchDispatch"),
    "three_d": ("one_f_one_b", "tensor_parallel"),
    "hybrid_shard": ("fsdp",),
    "local_sgd": ("ddp",),
    "straggler": ("ddp", "grad_accum"),
    "uneven_stages": ("one_f_one_b",),
    "vocab_parallel": ("uneven_stages", "zb_h1"),
    "v_half": ("zb_v",),
    "two_ways": ("zb_h1",),
    "weight_versions": ("one_f_one_b",),
    "host_update": ("offload", "weight_versions"),
    "streaming_diloco": ("local_sgd", "ddp_overlap"),
    "seq_pipeline": ("one_f_one_b",),
    "ring_context": ("ddp_overlap", "seq_pipeline"),
    "ulysses": ("ring_context",),
    "DataParallel": ("ddp",),
    "OneBucket": ("DataParallel",),
    "RingAllReduce": ("DataParallel",),
    "ParameterServer": ("DataParallel", "straggler"),
    "ZeRO1": ("zero1", "DataParallel"),
    "ZeRO2": ("ZeRO1",),
    "FSDP": ("fsdp", "DataParallel"),
    "UnevenFSDP": ("FSDP",),
    "ShardedAdam": ("ZeRO2",),
    "ZeROMemory": ("FSDP",),
    "TensorParallel": ("tensor_parallel",),
    "SequenceParallel": ("sequence_parallel", "TensorParallel"),
    "Matmul2D": ("TensorParallel",),
    "MegatronLayer": ("TensorParallel",),
    "MegatronMesh": ("MegatronLayer", "SequenceParallel", "Matmul2D"),
    "VocabParallelLoss": ("TensorParallel",),
    "RingAttention": ("RingAllReduce",),
    "LayerSplit": ("pipeline",),
    "PipelineInference": ("LayerSplit",),
    "GPipeRemat": ("gpipe", "checkpoint"),
    "SwitchDispatch": ("DataParallel",),
    "BalanceLoss": ("SwitchDispatch",),
    "GShardTop2": ("SwitchDispatch",),
    "ExactDispatch": ("SwitchDispatch",),
    "FindTheRace": ("SwitchDispatch",),
    "Stream": ("stream_inference",),
    "Prefetch": ("Stream",),
    "HostCache": ("Prefetch",),
    "PrefillDecode": ("MegatronLayer", "PipelineInference"),
    "FedSGD": ("DataParallel",),
    "FedAvg": ("FedSGD", "local_sgd"),
    "matmul": ("DataParallel",),
    "ffn": ("matmul",),
    "megatron_mlp": ("matmul", "tensor_parallel"),
    "mesh_2x3": ("megatron_mlp",),
    "boundary": ("megatron_mlp",),
    "attention": ("megatron_mlp",),
    "embedding_head": ("megatron_mlp",),
    "gathers_everything": ("megatron_mlp",),
    "train_ffn": ("ffn",),
    "train_layer": ("train_ffn", "megatron_mlp"),
    "zero_or_tensor": ("train_ffn", "zero1"),
    "rematerialization": ("train_ffn", "checkpoint"),
    "fsdp_mlp": ("ffn", "fsdp"),
    "sequence_ends": ("attention", "sequence_parallel"),
    "vocabulary_ends": ("embedding_head",),
    "llama_8b_16": ("fsdp", "three_d"),
    "gpt3_384": ("llama_8b_16",),
    "mixtral_64": ("llama_8b_16", "expert_parallel"),
    "llama_70b_256": ("gpt3_384",),
    "llama_405b_16384": ("gpt3_384", "interleaved"),
    "llama_8b_long": ("llama_8b_16", "RingAttention"),
    "llama_70b_40gb": ("gpt3_384", "checkpoint"),
    "llama_405b_1024": ("llama_70b_40gb", "zb_v"),
    "llama_70b_64": ("llama_8b_16",),
    "deepseek_2048": ("mixtral_64", "llama_405b_1024"),
    "AnnotatedMLP": ("megatron_mlp",),
    "AnnotatedMoE": ("AnnotatedMLP", "SwitchDispatch"),
    **dict.fromkeys(("LowRank", "Subsample", "Quantize", "Rotate"), ("FedAvg",)),
}  # fmt: skip
"""The puzzles that a puzzle builds on; those before them follow from it."""

ON_TENSORS: Mapping[str, str] = {
    "ddp": "DataParallel",
    "zero1": "ZeRO1",
    "zero2": "ZeRO2",
    "fsdp": "FSDP",
    "pipeline": "LayerSplit",
    "gpipe": "GPipeRemat",
    "tensor_parallel": "TensorParallel",
    "sequence_parallel": "SequenceParallel",
    "expert_parallel": "SwitchDispatch",
    "stream_inference": "Stream",
    "local_sgd": "FedAvg",
}
"""By schedule puzzle: the class that does the same on real tensors."""


def known(solved: Iterable[str]) -> set[str]:
    """The solved puzzles and everything that comes before them: who has solved `fsdp` needs no `basic`."""
    found: set[str] = set()
    waiting = list(solved)
    while waiting:
        slug = waiting.pop()
        if slug not in found:
            found.add(slug)
            waiting += AFTER.get(slug, ())
    return found


def next_on_path(solved: Iterable[str], after: str = "") -> str | None:
    """The next core puzzle; None if the path is done.

    It is the first from `after` on that is not known and builds on known puzzles only; else the first of the path that
    is not known. A core puzzle `after` that is not solved is itself the next.
    """
    solved = set(solved)
    if after in CORE and after not in solved:
        return after
    done = known(solved)
    later = CORE[CORE.index(after) :] if after in CORE else ()
    ready = (slug for slug in later if slug not in done and done.issuperset(AFTER.get(slug, ())))
    return next(ready, None) or next((slug for slug in CORE if slug not in done), None)
