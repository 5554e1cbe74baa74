"""What communication takes: ticks of a call, and of each element that a rank sends."""

from collections.abc import Mapping
from fractions import Fraction
from functools import cache
from math import ceil
from typing import NamedTuple

from lib.game.ring import elements_sent


class Moves(NamedTuple):
    """Of each communication the ticks of a call, and of each element that a rank sends, as in a cost record."""

    calls: Mapping[str, int]
    beta: Mapping[str, Fraction]

    def ticks(self, operation: str, elements: int, ranks: int) -> int:
        """As Costs.transfer."""
        return self.by_size(operation, elements_sent(operation, elements, ranks))

    def by_size(self, operation: str, sent: int) -> int:
        return self.calls[operation] + ceil(self.beta[operation] * sent)


@cache
def exact(number: float) -> Fraction:
    """A fraction near a number, as costs have them."""
    return Fraction(number).limit_denominator(10**12)
