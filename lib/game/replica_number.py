"""Numbers that differ between the replicas of a folded run, such as a rank: replica 0's, and the stride to the next.

A folded run plays replica 0 for all of them. Where a program would go one way on one replica and another way on the
next, it cannot, and says so. What is the same on every replica can be computed: of 8 ranks in 4 replicas `rank % 2`.
"""

import operator
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any, NoReturn

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
