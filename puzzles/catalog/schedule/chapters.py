"""The chapters of the schedule track, in the order of play: each is a folder with a file for each of its puzzles."""

from __future__ import annotations

from puzzles.catalog.chapter import Chapter


def _chapter(name: str, title: str, idea: str, *slugs: str) -> Chapter:
    package = __name__.rpartition(".")[0]
    return Chapter(f"{package}.{name}", title, idea, {slug: slug for slug in slugs})


CLASSICS = _chapter(
    "classics",
    "The classics",
    "how do ranks divide one training step: by batches, by shards of the weights, by layers?",
    "basic", "grad_accum", "ddp", "wsdp", "fsdp", "pipeline", "gpipe", "pipeline_fsdp",
)  # fmt: skip

MEMORY = _chapter(
    "memory",
    "Memory",
    "what does a rank keep that others also keep, that it could recompute, or that it could store elsewhere?",
    "zero1", "zero2", "checkpoint", "offload",
)  # fmt: skip

PIPELINES = _chapter(
    "pipelines",
    "Pipelines",
    "while a rank waits, what does it keep, and what could it do?",
    "one_f_one_b", "interleaved", "breadth_first", "zb_h1", "zb_h2", "zb_v",
)  # fmt: skip

OVERLAP = _chapter(
    "overlap",
    "Overlap",
    "communication overlaps with computation; when should it start, and in which order?",
    "ddp_overlap", "fsdp_prefetch", "stream_inference",
)  # fmt: skip

SPLITTING = _chapter(
    "splitting",
    "Splitting a layer",
    "how can ranks work on one layer at the same time?",
    "tensor_parallel", "sequence_parallel", "expert_parallel",
)  # fmt: skip

CLUSTERS = _chapter(
    "clusters",
    "Clusters",
    "which kind of parallelism goes over which links?",
    "three_d", "hybrid_shard", "local_sgd",
)  # fmt: skip

MICROSECONDS = _chapter(
    "microseconds",
    "In microseconds",
    "on real hardware, which schedule is right, and at which size does that change?",
    "fsdp_bound", "axis_inside", "tp_limit", "hierarchy", "bucket_size", "park_or_recompute",
)  # fmt: skip

FRONTIER = _chapter(
    "frontier",
    "The frontier",
    "what do the schedules of recent years change: stages, speeds, versions, directions?",
    "straggler", "uneven_stages", "vocab_parallel", "v_half", "two_ways", "weight_versions", "host_update",
    "streaming_diloco",
)  # fmt: skip

LONG_CONTEXT = _chapter(
    "long_context",
    "Long context",
    "one sequence is too long for a rank; how do several share its tokens?",
    "seq_pipeline", "ring_context", "ulysses",
)  # fmt: skip

CHAPTERS = (CLASSICS, MEMORY, PIPELINES, OVERLAP, SPLITTING, CLUSTERS, MICROSECONDS, FRONTIER, LONG_CONTEXT)

ORDER = tuple(slug for chapter in CHAPTERS for slug in chapter.files)
"""Every slug in the order of play; its place is the puzzle's number."""
