"""Shards that each replica of a folded run has of its own: their mark, and what covers what on all replicas."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from lib.errors import RuleError
from lib.game.folding import ReplicaNumber

from . import algebra
from .label_text import Labelled

Shards = tuple[frozenset[int], int]


class ReplicaShards(NamedTuple):
    """Marks shards that each replica has of its own: on replica d those of replica 0, `stride * d` further on."""

    stride: int
    replicas: int

    def __str__(self) -> str:
        return f"its own on each of {self.replicas} replicas"

    @property
    def block(self) -> int:
        """Shards in a row that the replicas share out among them, `stride` in a row to each."""
        return self.stride * self.replicas

    def cut(self, n: int) -> ReplicaShards:
        """The mark of the i-th of n equal parts of such a shard, the same i on each replica."""
        return self._replace(stride=self.stride * n)

    def everywhere(self, shards: Collection[int]) -> set[int]:
        """The shards of all replicas."""
        return {shard + self.stride * d for shard in shards for d in range(self.replicas)}

    def around(self, shards: Collection[int], total: int) -> Shards:
        """The blocks in which the shards of all replicas lie."""
        return frozenset(shard // self.block for shard in shards), total // self.block

    def joined(self, shards: Collection[int], total: int) -> Shards | None:
        """The shards of all replicas together, as blocks; None if they leave gaps."""
        blocks = self.around(shards, total)
        return blocks if len(blocks[0]) * self.stride == len(shards) else None


def replica_shards_of(part: object, total: object) -> ReplicaShards | None:
    """The mark of shard `part` of `total`, if that is a number which differs between replicas."""
    if type(part) is not ReplicaNumber:
        return None
    own = ReplicaShards(part.stride, part.replicas)
    if own.stride < 0 or (type(total) is int and (total % own.block or int(part) // own.stride % own.replicas)):
        part.refuse(f"shard {int(part)} of {total} and those of the other replicas leave gaps: which shards there are")
    return own


def checked_replica_shards(given: object) -> ReplicaShards | None:
    """`given` as a mark."""
    if given is None:
        return None
    if not isinstance(given, (tuple, list)) or len(given) != 2 or not all(type(n) is int and n > 0 for n in given):
        raise RuleError(f"own must be the stride and the number of replicas, such as (1, 4); got {given!r:.60}")
    return ReplicaShards(*given)


def covers(value: Labelled, wanted: Collection[int], parts: int, own: ReplicaShards | None = None) -> bool:
    """True if a value contains every element of shards `wanted` of `parts`; on every replica, if each wants its own."""
    mine = getattr(value, "own", None)
    if mine is not None and (own is None or mine.stride * parts != own.stride * value.total):
        return False
    if own is not None and mine is None:
        wanted, parts = own.around(wanted, parts)
    return algebra.covers(value.shards, value.total, wanted, parts)
