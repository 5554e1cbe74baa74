"""Folds data-parallel replicas that do the same at the same time: one of them is played and stands for all.

The first axis of the mesh is folded. Replica d of D has the ranks of replica 0, C d further on, where C is the number
of classes; its microbatches, B/D d further on; and its shards, some stride further on for each replica. So the labels
of replica 0 stand for all:

- Batches S of B are replica 0's own. A sum over the replicas has them of all: S of B/D, in each replica.
- Shards S of T are the same on every replica, or each replica's own where the value says so (`Own`).

That replicas are alike is a claim about the program. What could not be so is refused: a message to another replica, a
batch that is another's, a decision by a number that differs between replicas (`replica_number`).
"""

from __future__ import annotations

from collections.abc import Collection
from functools import lru_cache
from typing import NamedTuple

from .errors import RuleError
from .replica_number import ReplicaNumber, replica_number

Shards = tuple[frozenset[int], int]


class Fold(NamedTuple):
    """`replicas` along an axis, each of `classes` ranks; rank c of replica 0 stands for ranks c, c + classes, ..."""

    axis: str
    replicas: int
    classes: int

    def number(self, first: int, stride: int) -> int:
        """`first + stride * d` on replica d."""
        return replica_number(first, stride, self.replicas)

    def ranks(self, classes: tuple[int, ...]) -> tuple[int, ...]:
        """The ranks of some classes in all replicas, ascending."""
        return _ranks(self, classes)


@lru_cache(maxsize=1024)
def _ranks(fold: Fold, classes: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(d * fold.classes + c for d in range(fold.replicas) for c in classes)


Axes = tuple[tuple[str, int], ...]


def require_first(axes: Axes, axis: str) -> None:
    """Refuses to fold another axis than the first, whose replicas have their ranks in a row."""
    if not axes or axis != axes[0][0]:
        first = f"which is {axes[0][0]!r} here" if axes else "and there is no mesh"
        raise RuleError(f"fold={axis!r}: only the first axis of a mesh can be folded, {first}; put {axis!r} first")


def fold_of(axes: Axes, axis: str, batches: int, ranks: int, islands: int = 0) -> Fold | None:
    """The fold along an axis of a mesh, on machines of `islands` ranks (0: one machine); None where there is nothing
    to fold.

    Raises:
        RuleError: the batches cannot be dealt out evenly, or the machines divide the replicas in different ways.
    """
    if not axis:
        return None
    replicas = axes[0][1]
    if batches % replicas or ranks % replicas:
        raise RuleError(
            f"{batches} batches cannot be dealt out evenly to the {replicas} replicas of axis {axis!r}; "
            "use a multiple of that"
        )
    each = ranks // replicas
    # Machines divide all replicas in the same way only if a machine has whole replicas, or a replica whole machines.
    if 1 < each < ranks and 0 < islands < ranks and each % islands and islands % each:
        raise RuleError(
            f"fold={axis!r}: machines of {islands} ranks divide replicas of {each} ranks in different ways, so the "
            f"replicas do not all take the same time; give each replica a number of ranks that divides {islands} or is "
            f"a multiple of {islands}, or do not fold"
        )
    return Fold(axis, replicas, each) if replicas > 1 else None


class Own(NamedTuple):
    """Marks shards that each replica has of its own: on replica d those of replica 0, `stride * d` further on."""

    stride: int
    replicas: int

    def __str__(self) -> str:
        return f"its own on each of {self.replicas} replicas"

    @property
    def block(self) -> int:
        """Shards in a row that the replicas share out among them, `stride` in a row to each."""
        return self.stride * self.replicas

    def cut(self, n: int) -> Own:
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


def own_of(part: object, total: object) -> Own | None:
    """The mark of shard `part` of `total`, if that is a number which differs between replicas.

    Raises:
        RuleError: the shards of all replicas do not fit together.
    """
    if type(part) is not ReplicaNumber:
        return None
    own = Own(part.stride, part.replicas)
    if own.stride < 0 or (type(total) is int and (total % own.block or int(part) // own.stride % own.replicas)):
        part.refuse(f"shard {int(part)} of {total} and those of the other replicas leave gaps: which shards there are")
    return own


def checked_own(given: object) -> Own | None:
    """`given` as a mark."""
    if given is None:
        return None
    if not isinstance(given, (tuple, list)) or len(given) != 2 or not all(type(n) is int and n > 0 for n in given):
        raise RuleError(f"own must be the stride and the number of replicas, such as (1, 4); got {given!r:.60}")
    return Own(*given)


def spans(group: tuple[int | str, ...] | None) -> bool:
    """True if a group of a folded run has members in all replicas: the world, or one that begins with the axis."""
    return group is None or type(group[0]) is str
