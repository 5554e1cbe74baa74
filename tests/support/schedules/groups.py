"""Data parallel training in groups of ranks: the reference of `hybrid_shard`, and one of its records."""

from solutions.hybrid_shard import hybrid_shard
from solutions.records.hybrid_shard_last_layer_stays_whole import hybrid_shard as hybrid_shard_keeping_the_last

__all__ = ["hybrid_shard", "hybrid_shard_keeping_the_last"]
