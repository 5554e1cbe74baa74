"""Folds data-parallel replicas that do the same at the same time: one of them is played and stands for all.

The first axis of the mesh is folded. Replica d of D has the ranks of replica 0, C d further on, where C is the number
of classes; its microbatches, B/D d further on; and its shards, some stride further on for each replica. So the labels
of replica 0 stand for all:

- Batches S of B are replica 0's own. A sum over the replicas has them of all: S of B/D, in each replica.
- Shards S of T are the same on every replica, or each replica's own where the value says so (`ReplicaShards` in
  `lib.values.replica_shards`).

That replicas are alike is a claim about the program. What could not be so is refused: a message to another replica, a
batch that is another's, a decision by a number that differs between replicas (`replica_number`).
"""

from functools import lru_cache
from typing import NamedTuple

from lib.errors import RuleError

from .replica_number import replica_number


class Fold(NamedTuple):
    """`replicas` along an axis, each of n = `ranks_per_replica` ranks; rank c of replica 0 stands for c, c + n, ..."""

    axis: str
    replicas: int
    ranks_per_replica: int

    def number(self, first: int, stride: int) -> int:
        """`first + stride * d` on replica d."""
        return replica_number(first, stride, self.replicas)

    def ranks(self, ranks_per_replica: tuple[int, ...]) -> tuple[int, ...]:
        """The ranks of some classes in all replicas, ascending."""
        return _ranks(self, ranks_per_replica)


@lru_cache(maxsize=1024)
def _ranks(fold: Fold, ranks_per_replica: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(d * fold.ranks_per_replica + c for d in range(fold.replicas) for c in ranks_per_replica)


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
