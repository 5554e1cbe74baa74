"""Marks what a replica has trained alone, between two averages (local SGD, Stich 2019, section 2).

Replicas diverge at a step where they are equal: each continues with its own batches, the same in every step.
Averaging the weights makes them equal again. Values with equal marks hold the numbers of one replica.
"""

from collections.abc import Sequence
from typing import NamedTuple

from lib.errors import RuleError

from . import algebra
from .algebra import named
from .words import SAYS

Average = tuple[int, int, tuple[tuple[int, ...], ...]]
"""An average of replicas: the step at which they diverged, the step of the average, and the batches of each."""


class Copy(NamedTuple):
    """The mark of a replica: the step since which it trains alone, which batches of how many it uses in each step
    (none: all replicas are equal since that step), and the earlier averages."""

    since: int
    batches: frozenset[int]
    of: int
    averages: tuple[Average, ...] = ()

    def __str__(self) -> str:
        if not self.batches:
            return f"averaged at step {self.since}"
        return f"of the replica trained since step {self.since} with {named('batch', sorted(self.batches))}"


def shared(copy: Copy | None) -> bool:
    """True if all replicas have the same."""
    return copy is None or not copy.batches


def averages_of(copy: Copy | None) -> tuple[Average, ...]:
    return () if copy is None else copy.averages


def averaged(copies: Sequence[Copy], step: int) -> Copy:
    """The mark of the average, at a step, of replicas that were equal when they diverged."""
    partition = tuple(sorted(tuple(sorted(copy.batches)) for copy in copies))
    return Copy(step, frozenset(), copies[0].of, (*copies[0].averages, (copies[0].since, step, partition)))


def checked_copy(given: object) -> Copy | None:
    """`given` as a mark; None is a model that was never trained in replicas."""
    if given is None:
        return None
    if not isinstance(given, (tuple, list)) or len(given) != len(Copy._fields):
        raise RuleError(SAYS("no copy", fields=", ".join(Copy._fields), got=given))
    since, batches, of, averages = given
    of = algebra.whole_number(of, "of", "copy", least=1)
    if not isinstance(averages, (tuple, list)):
        raise RuleError(SAYS("no averages", got=averages))
    return Copy(
        algebra.whole_number(since, "since", "copy", least=0),
        algebra.numbers(batches, of, "batch", "copy"),
        of,
        tuple(_average(average, of) for average in averages),
    )


def _average(given: object, of: int) -> Average:
    if not isinstance(given, (tuple, list)) or len(given) != 3 or not isinstance(given[2], (tuple, list)):
        raise RuleError(SAYS("no average", got=given))
    since, step = (algebra.whole_number(number, "step", "average", least=0) for number in given[:2])
    return since, step, tuple(tuple(sorted(algebra.numbers(batches, of, "batch", "copy"))) for batches in given[2])
