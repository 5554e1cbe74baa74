"""The mesh of a folded run: a rank of replica 0 names ranks and groups, and all replicas do likewise."""

from operator import index
from typing import Any

from lib.errors import RuleError
from lib.game.folding import Fold
from lib.game.replica_number import stride_of
from lib.game.setting import Game
from lib.rules.collectives import Group
from lib.values.algebra import set_text

from .mesh import Axes, Mesh


class FoldedMesh(Mesh):
    """Ranks are those of replica 0. A group that has members in all replicas begins with the name of the axis:
    ("dp", 0, 2) is ranks 0 and 2 of every replica, and (0, 2) those of one's own."""

    def __init__(self, axes: Axes, ranks: int, fold: Fold) -> None:
        super().__init__(axes, ranks)
        self.fold = fold
        self._shown: dict[tuple[int, object], tuple[int, ...]] = {}

    def shown(self, rank: int) -> int:
        return self.fold.number(rank, self.fold.ranks_per_replica)

    def index(self, rank: int, axis: object) -> int:
        place = super().index(rank, axis)
        return self.fold.number(place, 1) if axis == self.fold.axis else place

    def axis(self, rank: int, axis: object) -> tuple[int, ...]:
        shown = self._shown.get((rank, axis))
        if shown is None:
            group = super().axis(rank, axis)
            shown = group if axis == self.fold.axis else tuple(map(self.shown, group))
            self._shown[rank, axis] = shown
        return shown

    def partner(self, given: object) -> object:
        """A rank of the own replica.

        Raises:
            RuleError: it is of another replica, or the same rank for all replicas.
        """
        if not hasattr(given, "__index__"):
            return given  # no rank at all: the rule says so
        if stride_of(given) == self.fold.ranks_per_replica and 0 <= index(given) < self.fold.ranks_per_replica:
            return index(given)
        whose = f"rank {index(given)} of replica 0 would be that of another replica on the others"
        if not stride_of(given):
            whose = f"rank {given} is the same rank for all replicas"
        raise RuleError(
            f"{whose}; in a folded run messages stay within a replica: name a rank by model.rank, as model.rank + 1, "
            "or by model.axis(...)"
        )

    def _members(self, rank: int, given: tuple[Any, ...]) -> Group:
        if all(isinstance(part, str) for part in given):
            group = super()._members(rank, tuple(part for part in given if part != self.fold.axis))
            return (self.fold.axis, *group) if self.fold.axis in given else group
        if all(stride_of(part) == self.fold.ranks_per_replica for part in given):
            return super()._members(rank, tuple(map(int, given)))
        ranks = super()._members(rank, given)
        kept = sorted({each % self.fold.ranks_per_replica for each in ranks})
        if len(ranks) < len(kept) * self.fold.replicas:
            raise RuleError(
                f"the group {set_text(ranks)} is only in some of the {self.fold.replicas} replicas; in a folded run "
                "name axes, as group='tp', or ranks by model.axis(...)"
            )
        return (self.fold.axis, *kept)

    def _is_world(self, group: Group) -> bool:
        return group[0] == self.fold.axis and len(group) == 1 + self.fold.ranks_per_replica

    def recorded(self, group: object) -> bool:
        if type(group) is not tuple or not group or self._is_world(group):
            return False
        ranks = group[1:] if group[0] == self.fold.axis else group
        return {*ranks} <= {*range(self.fold.ranks_per_replica)} and list(ranks) == sorted({*ranks})


def mesh_of(game: Game) -> Mesh:
    """The mesh of a game, folded or not."""
    axes = game.setting.mesh
    return Mesh(axes, game.ranks) if game.fold is None else FoldedMesh(axes, game.ranks, game.fold)
