"""Ranks on the named axes of a mesh, and the groups of ranks that may meet in a collective.

The last axis changes fastest, as in a torch DeviceMesh: on {"dp": 2, "pp": 2, "tp": 2} rank 5 is dp 1, pp 0, tp 1.
"""

from collections.abc import Collection, Iterable, Mapping
from math import prod
from typing import Any

from lib.errors import RuleError
from lib.rules.collectives import Group, group_text
from lib.values import algebra
from lib.values.algebra import counted

from .words import SAYS

Axes = tuple[tuple[str, int], ...]
"""The name and the length of each axis."""


def axes_of(mesh: Mapping[str, int] | Iterable[tuple[str, int]], ranks: int) -> Axes:
    """A mesh as a setting holds it."""
    given = mesh.items() if isinstance(mesh, Mapping) else mesh
    try:
        axes = tuple((name, algebra.whole_number(length, f"axis {name!r}", "mesh", least=1)) for name, length in given)
    except (TypeError, ValueError):
        raise RuleError(SAYS("no mesh lengths", got=mesh)) from None
    names = [name for name, _ in axes]
    if not all(isinstance(name, str) and name for name in names) or len(set(names)) < len(names):
        raise RuleError(SAYS("axes share a name", names=names))
    if axes and prod(length for _, length in axes) != ranks:
        product = prod(length for _, length in axes)
        lengths = " x ".join(str(length) for _, length in axes)
        raise RuleError(
            SAYS(
                "other number of ranks",
                lengths=f"{lengths} = " if len(axes) > 1 else "",
                product=counted(product, "rank"),
                are="is" if ranks == 1 else "are",
                ranks=ranks,
            )
        )
    return axes


class Mesh:
    """The axes of a Dist of `ranks` ranks; none where the game has no groups."""

    def __init__(self, axes: Axes, ranks: int) -> None:
        self.axes = axes_of(axes, ranks)
        self.ranks = ranks
        self._stride: dict[str, int] = {}
        stride = 1
        for name, length in reversed(self.axes):
            self._stride[name], stride = stride, stride * length

    def index(self, rank: int, axis: object) -> int:
        """A rank's place on an axis."""
        name = self._known(axis)
        return rank // self._stride[name] % dict(self.axes)[name]

    def along(self, rank: int, names: Collection[object]) -> Group:
        """The ranks that are like `rank` on all other axes, itself among them, ascending."""
        group = [rank]
        for name in map(self._known, names):
            here, stride = self.index(rank, name), self._stride[name]
            group = [other + (i - here) * stride for other in group for i in range(dict(self.axes)[name])]
        return tuple(sorted(group))

    def group(self, rank: int, given: object) -> Group | None:
        """The group that a rank names: an axis, several axes, or ranks; None if those are all."""
        self.require()
        if isinstance(given, str):
            given = (given,)
        if not isinstance(given, Collection) or not given:
            raise RuleError(SAYS("no group", got=given))
        group = self._members(rank, tuple(given))
        self.require_member(rank, group)
        return None if len(group) == self.ranks else group

    def _members(self, rank: int, given: tuple[Any, ...]) -> Group:
        if all(isinstance(part, str) for part in given):
            if len(set(given)) < len(given):
                raise RuleError(SAYS("axis twice", axes=list(given)))
            return self.along(rank, given)
        ranks = [algebra.number(part, self.ranks, "rank") for part in given]
        if len(set(ranks)) < len(ranks):
            raise RuleError(SAYS("rank twice", ranks=sorted(ranks)))
        return tuple(sorted(ranks))

    def recorded(self, group: object) -> bool:
        """True if a trace may hold this as a group: some ranks, ascending, but not all."""
        return type(group) is tuple and list(group) == sorted({*group}) and {*group} < {*range(self.ranks)}

    def require(self) -> None:
        """Refuses groups where there is no mesh."""
        if not self.axes:
            raise RuleError(SAYS("no mesh"))

    @staticmethod
    def require_member(rank: int, group: Group) -> None:
        """Refuses a group without the rank that calls in it."""
        if rank not in group:
            raise RuleError(SAYS("not in this group", group=group_text(group)))

    def _known(self, name: object) -> str:
        if name not in self._stride:
            self.require()
            raise RuleError(SAYS("no such axis", axis=name, axes=", ".join((name for name, _ in self.axes))))
        assert isinstance(name, str)
        return name
