"""Sums of values: of weight gradients, and of the parts of activations, of their gradients, and of the gradients of
keys."""

from collections.abc import Sequence
from math import lcm
from operator import attrgetter
from typing import Any

from lib.errors import RuleError, Sentence

from . import algebra
from .algebra import Who, operand
from .base import Batched, Summed, Value, require_alike, require_kind, with_fields
from .kinds import Activation, Delta, KeyValue, KeyValueGrad, WeightGrad
from .label_text import shares_of_batches
from .scalar import Scalar
from .words import SAYS

ONE_LABEL = ("layer", "layers", "total_batches", "step", "copy", "version", "heads", "vocabulary")
"""What activations have in common that meet in a collective, besides batches, parts and tokens."""

ALIKE_PARTS = (*ONE_LABEL, "batches", "of", "shards", "total")


def added(values: Sequence[Value], who: Who = operand) -> Any:
    """The sum of some values of one kind: what `+` makes."""
    if isinstance(values[0], Batched):
        return add_parts(values, who)
    if isinstance(values[0], Scalar):
        return sum_squares(values, who)
    return sum_deltas(values, who) if isinstance(values[0], Delta) else sum_grads(values, who)


def add_parts(values: Sequence[Value], who: Who = operand) -> Batched:
    """The sum of some of its parts, each of which is there once; all of them are the whole."""
    first = values[0]
    assert isinstance(first, Batched)
    if isinstance(first, KeyValue):
        raise RuleError(SAYS("not part of sum", value=first))
    for i, value in enumerate(values):
        require_kind(value, type(first), "each value in this sum")
        require_alike(first, value, ALIKE_PARTS, who, i, "sum")
    if first.of == 1:
        raise RuleError(SAYS("complete sum", value=first))
    union: set[int] = set()
    for value in values:
        parts = value.parts  # type: ignore[attr-defined]  # all are of one kind by now
        if twice := union & parts:
            raise RuleError(_in_both(first, twice))
        union |= parts
    if len(union) == first.of:
        return with_fields(first, parts=algebra.WHOLE, of=1)
    return with_fields(first, parts=frozenset(union))


ALIKE_DELTAS = ("layer", "layers", "total", "shards", "step")


def sum_deltas(values: Sequence[Value], who: Who = operand) -> Delta:
    """The sum of the outer gradients of some copies, each there once, that left the same agreed weight."""
    first = require_kind(values[0], Delta, "each value in this sum")
    deltas = [require_kind(value, Delta, "each value in this sum") for value in values]
    marks = [delta.copy for delta in deltas if delta.copy is not None]
    for i, delta in enumerate(deltas):
        require_alike(first, delta, ALIKE_DELTAS, who, i, "sum")
        if marks[i][2:] != marks[0][2:] or marks[i].since != marks[0].since:
            raise RuleError(SAYS("copies of other rounds", who=who(0), first=first, other_who=who(i), other=delta))
    batches = algebra.disjoint_union([mark.batches for mark in marks], "batch", who, "sum each copy once")
    copies = tuple(sorted(copy for delta in deltas for copy in delta.copies))
    return with_fields(first, copy=marks[0]._replace(batches=batches), copies=copies)


def sum_squares(values: Sequence[Value], who: Who = operand) -> Scalar:
    """The sum of the squares of some layers or shards of one step, each there once."""
    first = require_kind(values[0], Scalar, "each value in this sum")
    norms = [require_kind(value, Scalar, "each value in this sum") for value in values]
    for i, norm in enumerate(norms):
        require_alike(first, norm, ("layers", "step", "version"), who, i, "sum")
    total = lcm(*[norm.total for norm in norms])
    finer = [total // norm.total for norm in norms]
    cut = [frozenset(i * n + j for i in norm.shards for j in range(n)) for norm, n in zip(norms, finer)]
    shards = algebra.disjoint_union(cut, "shard" if total > first.layers else "layer", who, "add each square once")
    return with_fields(first, shards=shards, total=total)


def _in_both(first: Batched, twice: set[int]) -> Sentence:
    if isinstance(first, KeyValueGrad):
        start = min(first.shards)
        return SAYS("shares in both", shares=f"queries of {algebra.set_text({start + part for part in twice})}")
    if first.total > 1:
        which = "keys" if isinstance(first, Activation) else "gradients through the keys"
        return SAYS("shares in both", shares=f"{which} of {algebra.set_text(twice)}")
    return SAYS("parts in both", parts=algebra.named("part", sorted(twice)))


ALIKE_IN_A_SUM = ("layer", "layers", "total_batches", "total", "shards", "step", "copy")
_summed = attrgetter(*ALIKE_IN_A_SUM, "version")


def sum_grads(grads: Sequence[Value], who: Who = operand) -> WeightGrad:
    """The sum of weight gradients: of one layer and the same shards, and no batch twice."""
    first = require_kind(grads[0], WeightGrad, "each value in this sum")
    label, version = _summed(first), first.version
    for i, grad in enumerate(grads):
        if type(grad) is not WeightGrad or _summed(grad) != label:
            grad = require_kind(grad, WeightGrad, "each value in this sum")
            require_alike(first, grad, ALIKE_IN_A_SUM, who, i, "sum")
            version = _one_version(first, grad, version)
    sets = [grad.batches for grad in grads]  # type: ignore[attr-defined]  # all are WeightGrads by now
    if first.shares > 1:
        every: set[int] = set()
        for batches in sets:
            if twice := every & batches:
                raise RuleError(SAYS("shares in both", shares=shares_of_batches(twice, first.shares)))
            every |= batches
    union = algebra.disjoint_union(sets, "batch", who, "sum each batch once")
    return with_fields(first, batches=union, version=version)


def _one_version(first: WeightGrad, grad: WeightGrad, version: int | None) -> int | None:
    """The version of the sum so far, which began with `first`, and of one more gradient; a zero has any."""
    if not grad.batches or grad.version == version:
        return version
    if first.batches or version is not None:
        sum_version, grad_version = (grad.step if number is None else number for number in (version, grad.version))
        raise RuleError(SAYS("versions differ", sum_version=sum_version, grad_version=grad_version))
    return grad.version


Summed._sum = staticmethod(added)
