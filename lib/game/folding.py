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

import operator
import sys
from collections.abc import Callable
from functools import lru_cache
from types import FrameType
from typing import Any, NamedTuple, NoReturn

from lib.errors import RuleError


class ReplicaNumber(int):
    """`first + stride * d` on replica d of `replicas`; as a plain int it is `first`."""

    stride: int
    replicas: int

    @property
    def last(self) -> int:
        """The number of the last replica."""
        return int(self) + self.stride * (self.replicas - 1)

    def _with(self, first: int, stride: int) -> int:
        return replica_number(first, stride, self.replicas)

    def refuse(self, use: str) -> NoReturn:
        """Refuses a use whose outcome would differ between replicas."""
        stride = f"{self.stride} d" if self.stride != 1 else "d"
        shown = f"{int(self)} + {stride}" if int(self) else stride
        raise RuleError(
            f"this number is {shown} on replica d of {self.replicas}, and {use} would differ between them; a folded "
            "run plays one replica for all, so use it to choose the own batches, shards and ranks only, or do not fold",
            line=_players_line(),
        )

    def __add__(self, other: int) -> int:
        return self._with(int(self) + int(other), self.stride + stride_of(other))

    def __sub__(self, other: int) -> int:
        return self._with(int(self) - int(other), self.stride - stride_of(other))

    def __mul__(self, other: int) -> int:
        if type(other) is ReplicaNumber:
            self.refuse("a product of two such numbers")
        return self._with(int(self) * int(other), self.stride * int(other))

    def __neg__(self) -> int:
        return self * -1

    def __floordiv__(self, other: int) -> int:
        n = self._divisor(other)
        if self.stride % n == 0:
            return self._with(int(self) // n, self.stride // n)
        if int(self) // n != self.last // n:
            self.refuse(f"'// {n}'")
        return int(self) // n

    def __mod__(self, other: int) -> int:
        return self - self // other * self._divisor(other)

    def _divisor(self, other: int) -> int:
        if type(other) is ReplicaNumber:
            self.refuse("a division by such a number")
        return int(other)

    def __radd__(self, other: int) -> int:
        return self + other

    def __rsub__(self, other: int) -> int:
        return -self + other

    def __rmul__(self, other: int) -> int:
        return self * other

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, int):
            return NotImplemented
        apart = self - other
        if type(apart) is not ReplicaNumber:
            return apart == 0
        if int(apart) % apart.stride == 0 and min(int(apart), apart.last) <= 0 <= max(int(apart), apart.last):
            self.refuse(f"'== {int(other)}'")
        return False

    def __ne__(self, other: object) -> bool:
        equal = self.__eq__(other)
        return equal if equal is NotImplemented else not equal

    def __bool__(self) -> bool:
        return self != 0

    __hash__ = int.__hash__


def replica_number(first: int, stride: int, replicas: int) -> int:
    """`first + stride * d` on replica d; a plain number where that is the same on all."""
    if stride == 0 or replicas == 1:
        return first
    number = ReplicaNumber(first)
    number.stride, number.replicas = stride, replicas
    return number


def stride_of(number: object) -> int:
    """How much further a number is on the next replica: 0 if it is the same on all."""
    return number.stride if type(number) is ReplicaNumber else 0


def _ordering(name: str, symbol: str, compare: Callable[[int, int], bool]) -> Callable[[Any, Any], bool]:
    def ordered(self: ReplicaNumber, other: int) -> bool:
        if not isinstance(other, int):
            return NotImplemented
        apart = self - other
        first, last = int(apart), apart.last if type(apart) is ReplicaNumber else int(apart)
        if compare(first, 0) is not compare(last, 0):
            self.refuse(f"'{symbol} {int(other)}'")
        return compare(first, 0)

    return ordered


def _refusing(name: str) -> Callable[..., NoReturn]:
    def refused(self: ReplicaNumber, *others: object) -> NoReturn:
        self.refuse(f"what {name} makes of it")

    return refused


for _name, _symbol in (("lt", "<"), ("le", "<="), ("gt", ">"), ("ge", ">=")):
    setattr(ReplicaNumber, f"__{_name}__", _ordering(_name, _symbol, getattr(operator, _name)))
for _name in ("truediv", "pow", "divmod", "and", "or", "xor", "lshift", "rshift"):
    for _side in ("", "r"):
        setattr(ReplicaNumber, f"__{_side}{_name}__", _refusing(_name))
for _name in ("rfloordiv", "rmod", "abs", "invert", "float", "round"):
    setattr(ReplicaNumber, f"__{_name}__", _refusing(_name))


def _players_line() -> int:
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and (frame.f_globals.get("__package__") or "").partition(".")[0] == "lib":
        frame = frame.f_back
    return frame.f_lineno if frame is not None else 0


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
