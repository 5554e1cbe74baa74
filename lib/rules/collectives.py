"""States what each collective demands and what it yields: pure functions from every member's value to every result.

The members are the ranks of a group, ascending; `None` is the world, all ranks. In a smaller group a value may be cut
again: a shard of a shard is a shard of a finer count, and what is gathered gets back the coarsest count that says the
same. So a weight can be cut for tensor parallelism and again for data parallelism (ZeRO inside Megatron).
"""

from collections.abc import Callable, Mapping, Sequence
from typing import cast

from lib.errors import MismatchError, RuleError
from lib.game.setting import Game
from lib.values import algebra
from lib.values.algebra import Who
from lib.values.base import (
    Batched,
    S,
    Sharded,
    Value,
    join_shards,
    object_text,
    require_alike,
    require_kind,
    with_fields,
)
from lib.values.kinds import Delta, KeyValueGrad, Weight, WeightGrad
from lib.values.label_text import shards_text
from lib.values.replicas import Copy, averaged
from lib.values.scalar import Scalar
from lib.values.sums import added, sum_grads

from . import activations, attention, rooted
from .words import SAYS

Group = tuple[int, ...]
"""Some of the ranks, ascending, but not all."""

Wanted = Sequence[frozenset[int]]
"""The batches that each member asks for, where the operation names any."""


def allreduce(values: Sequence[Value], group: Group | None, wanted: Wanted = ()) -> list[Value]:
    """Everyone gets the sum. Each rank contributes its own batches, or its part of an activation. Of weights that
    replicas have trained everyone gets the average."""
    if isinstance(values[0], Batched):
        return [activations.sum_parts(values, who_in(group))] * len(values)
    if isinstance(values[0], Delta | Scalar):
        return [added(values, who_in(group))] * len(values)
    if isinstance(values[0], Weight):
        return [_average(values, who_in(group))] * len(values)
    return [_reduced(values, group)] * len(values)


def allgather(values: Sequence[Value], group: Group | None, wanted: Wanted = ()) -> list[Value]:
    """Everyone gets the shards of all, joined; of activations, the tokens."""
    if isinstance(values[0], Batched):
        return [activations.gather_tokens(values, who_in(group))] * len(values)
    joined = join_shards(cast(Sequence[Sharded], values), who_in(group))  # it refuses what has no shards
    if group is not None:
        joined = _in_coarsest_shards(joined)
    return [joined] * len(values)


def scatterreduce(values: Sequence[Value], group: Group | None, wanted: Wanted = ()) -> list[Value]:
    """The sum, of which the i-th of n members keeps shard i of n (reduce-scatter); of a sum that is shard j of T, in a
    group smaller than the world, shard j n + i of T n. Activations are cut by tokens."""
    if isinstance(values[0], KeyValueGrad):
        return attention.scatter_keys(values, who_in(group))
    if isinstance(values[0], Batched):
        return activations.scatter_sum(values, who_in(group))
    total, members = _reduced(values, group), len(values)
    if total.total > 1:
        total = _in_coarsest_shards(total)
    shards, count = total.shards, total.total
    if group is None and count > 1:
        raise RuleError(SAYS("scatter of shards", shards=shards_text(total)))
    if len(shards) > 1:
        raise RuleError(SAYS("scatter of several shards", shards=shards_text(total)))
    (first,) = shards
    return [with_fields(total, shards=frozenset((first * members + i,)), total=count * members) for i in range(members)]


COLLECTIVE_RULES: Mapping[str, Callable[[Sequence[Value], Group | None, Wanted], list[Value]]] = {
    "allreduce": allreduce,
    "reduce": allreduce,
    "broadcast": lambda values, group, wanted: [*values],  # the root's, which is the only one
    "allgather": allgather,
    "scatterreduce": scatterreduce,
    "dispatch": lambda values, group, wanted: activations.dispatch(values, who_in(group)),
    "collect": lambda values, group, wanted: activations.collect(values, wanted, who_in(group)),
    "heads": lambda values, group, wanted: attention.to_heads(values, who_in(group)),
    "tokens": lambda values, group, wanted: attention.to_tokens(values, who_in(group)),
}
"""Each collective operation by name: from every member's value to every member's result, both in rank order.
`dispatch` and `collect` take tokens to their experts and back, `heads` and `tokens` exchange shares of the tokens for
parts of the heads and back."""

REQUESTING = frozenset(("collect",))
"""Collectives whose members ask for batches."""

SUMMING = frozenset(("allreduce", "reduce"))
"""Collectives whose result is the whole sum of what ranks contribute."""

REDUCING = SUMMING | {"scatterreduce"}
"""Collectives that add up what ranks contribute."""

ALL_TO_ALL = frozenset(("dispatch", "collect"))
"""Collectives that are priced by the batch: each rank's own are on the way, whole."""

HEADS = frozenset(("heads", "tokens"))
"""The all-to-alls of attention, between shares of the tokens and parts of the heads."""

COLLECTIVES = frozenset(COLLECTIVE_RULES)
"""The names of the operations in which the ranks of a group meet."""


def require_contribution(game: Game, name: str, value: Value) -> None:
    """Refuses a value that a rank may not contribute to a collective, as far as it alone can tell."""
    if name in HEADS:
        attention.require_attention(game, name)
        return attention.exchangeable(value, name)
    if name == "broadcast":
        return rooted.require_own(value)
    if isinstance(value, WeightGrad if name in REDUCING else Sharded) and name not in ALL_TO_ALL:
        return
    if name in ALL_TO_ALL:
        if game.layer != "experts":
            raise RuleError(SAYS("other kind of layers", call=name, kind="experts", layers=game.layer))
        if not isinstance(value, Batched):
            raise RuleError(SAYS("not to an expert", name=name, value=object_text(value)))
    elif _more_than_classic(game, name, value):
        return
    elif name in REDUCING:
        require_kind(value, WeightGrad, "the value to reduce")
    else:
        raise RuleError(SAYS("no shards to gather", value=object_text(value)))


def _more_than_classic(game: Game, name: str, value: Value) -> bool:
    """True for what only some games let a rank contribute: parts or tokens of an activation, and replicas to
    average."""
    if isinstance(value, Scalar):
        return name in SUMMING
    if isinstance(value, Weight | Delta):
        return name in SUMMING and game.task == ("local" if isinstance(value, Weight) else "outer")
    return isinstance(value, Batched) and (game.layer != "dense" or (value.vocabulary and name in SUMMING))


def requested_batches(game: Game, name: str, batches: object) -> frozenset[int]:
    """The batches that a member asks for, checked; none where the operation names none."""
    if name not in REQUESTING:
        return frozenset()
    return algebra.numbers(batches, game.batches, "batch")


def require_same_call(calls: Sequence[tuple[object, ...]], described: Callable[[int], str], otherwise: str) -> None:
    """The k-th collective of every member is the same: operation, layers of the values, and root. `described` names the
    i-th call in a message, which ends with `otherwise`."""
    for i, call in enumerate(calls):
        if call != calls[0]:
            raise MismatchError(SAYS("other calls", first=described(0), other=described(i), otherwise=otherwise))


def _average(values: Sequence[Value], who: Who) -> Weight:
    """The average of a weight over replicas that started from the same weight, and together use every batch."""
    copies: list[Copy] = []
    first = require_kind(values[0], Weight, who(0))
    for i, value in enumerate(values):
        weight = require_kind(value, Weight, who(i))
        require_alike(first, weight, ("layer", "layers", "total", "shards", "step"), who, i, "average")
        if weight.copy is None or not weight.copy.batches:
            raise RuleError(SAYS("no replica", who=who(i), weight=weight))
        copies.append(weight.copy)
        if (weight.copy.since, weight.copy.averages) != (copies[0].since, copies[0].averages):
            raise RuleError(SAYS("replicas of different weights", who=who(0), first=first, other=who(i), weight=weight))
    union = algebra.disjoint_union([copy.batches for copy in copies], "batch", who, "train each batch on one replica")
    if len(union) < copies[0].of:
        missing = algebra.missing_text("batch", union, copies[0].of)
        raise RuleError(SAYS("replicas missing", missing=missing))
    return with_fields(first, copy=averaged(copies, first.step))


def _reduced(values: Sequence[Value], group: Group | None) -> WeightGrad:
    try:
        return sum_grads(values, who_in(group))
    except RuleError as why:
        whole = [i for i, v in enumerate(values) if isinstance(v, WeightGrad) and v.batches and v.is_complete()]
        if len(whole) < 2:
            raise
        ranks = [i if group is None else group[i] for i in whole]
        raise RuleError(SAYS("every batch contributed", ranks=algebra.named("rank", ranks))) from why


def _in_coarsest_shards(value: S) -> S:
    """The same value with the smallest shard count that can say so."""
    shards, total = algebra.coarsest(value.shards, value.total)
    return with_fields(value, shards=shards, total=total)


def group_text(group: Group) -> str:
    """'of ranks 0, 2'."""
    return f"of {algebra.named('rank', group)}"


def who_in(group: Group | None) -> Who:
    """Names the i-th member in a message."""
    return _rank if group is None else lambda i: _rank(group[i])


def _rank(rank: int) -> str:
    return f"rank {rank}"
