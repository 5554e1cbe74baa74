"""Data parallel training in groups of ranks: the reference of `hybrid_shard`, and one of its records."""

from solutions.hybrid_shard import hybrid_shard
from tests.support.variants import module_of

hybrid_shard_keeping_the_last = module_of(
    "solutions/records/hybrid_shard_one_full_weight.py", "within_a_machine"
).hybrid_shard

__all__ = ["hybrid_shard", "hybrid_shard_keeping_the_last"]
