"""Sums of values: of weight gradients, and of the parts of activations, of their gradients, and of the gradients of
keys."""

from collections.abc import Sequence
from operator import attrgetter
from typing import Any

from lib.errors import RuleError

from . import algebra
from .algebra import Who, operand
from .base import Batched, Summed, Value, require_alike, require_kind, with_fields
from .kinds import Activation, KeyValue, KeyValueGrad, WeightGrad
from .label_text import shares_of_batches

ONE_LABEL = ("layer", "layers", "total_batches", "step", "copy", "version", "heads", "vocabulary")
"""What activations have in common that meet in a collective, besides batches, parts and tokens."""

ALIKE_PARTS = (*ONE_LABEL, "batches", "of", "shards", "total")


def added(values: Sequence[Value], who: Who = operand) -> Any:
    """The sum of some values of one kind: what `+` makes."""
    return add_parts(values, who) if isinstance(values[0], Batched) else sum_grads(values, who)


def add_parts(values: Sequence[Value], who: Who = operand) -> Batched:
    """The sum of some of its parts, each of which is there once; all of them are the whole."""
    first = values[0]
    assert isinstance(first, Batched)
    if isinstance(first, KeyValue):
        raise RuleError(f"this is the {first}; keys and values are no parts of a sum")
    for i, value in enumerate(values):
        require_kind(value, type(first), "each value in this sum")
        require_alike(first, value, ALIKE_PARTS, who, i, "sum")
    if first.of == 1:
        raise RuleError(f"this is the {first}, which is complete already; only parts of a sum are added")
    union: set[int] = set()
    for value in values:
        parts = value.parts  # type: ignore[attr-defined]  # all are of one kind by now
        if twice := union & parts:
            raise RuleError(_both_text(first, twice))
        union |= parts
    if len(union) == first.of:
        return with_fields(first, parts=algebra.WHOLE, of=1)
    return with_fields(first, parts=frozenset(union))


def _both_text(first: Batched, twice: set[int]) -> str:
    if isinstance(first, KeyValueGrad):
        start = min(first.shards)
        return f"the queries of {algebra.set_text({start + part for part in twice})} are in both; add each once"
    if first.total > 1:
        which = "keys" if isinstance(first, Activation) else "gradients through the keys"
        return f"the {which} of {algebra.set_text(twice)} are in both; add each once"
    return f"{algebra.named('part', sorted(twice))} of the sum is in both values; add each once"


ALIKE_IN_A_SUM = ("layer", "layers", "total_batches", "total", "shards", "step", "copy", "own")
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
        for one in sets:
            if twice := every & one:
                raise RuleError(f"the {shares_of_batches(twice, first.shares)} are in both; add each once")
            every |= one
    union = algebra.disjoint_union(sets, "batch", who, "sum each batch once")
    return with_fields(first, batches=union, version=version)


def _one_version(first: WeightGrad, grad: WeightGrad, version: int | None) -> int | None:
    """The version of the sum so far, which began with `first`, and of one more gradient; a zero has any."""
    if not grad.batches or grad.version == version:
        return version
    if first.batches or version is not None:
        mine, other = (grad.step if made is None else made for made in (version, grad.version))
        raise RuleError(
            f"one gradient was made with version {mine}, the other with {other}; all of a step use one version"
        )
    return grad.version


Summed._sum = staticmethod(added)
