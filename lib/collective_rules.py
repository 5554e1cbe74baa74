"""States what each collective demands and what it yields: pure functions from every member's value to every result.

The members are those of a group, ascending; `None` is the world, all ranks. In a smaller group a value may be cut
again: a shard of a shard is a shard of a finer count, and what is gathered gets back the coarsest count that says the
same. So a weight can be cut for tensor parallelism and again for data parallelism (ZeRO inside Megatron).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import cast

from lib.values import algebra
from lib.values.algebra import Who, set_text
from lib.values.base import Sharded, Value, join_shards, object_text, require_kind, with_shards
from lib.values.kinds import WeightGrad, sum_grads
from lib.values.label_text import shards_text

from .errors import MismatchError, RuleError

Group = tuple[int, ...]
"""Some of the ranks, ascending, but not all."""


def allreduce(values: Sequence[Value], group: Group | None = None) -> list[Value]:
    """Everyone gets the sum. Each rank contributes its own batches."""
    return [_reduced(values, group)] * len(values)


def allgather(values: Sequence[Value], group: Group | None = None) -> list[Value]:
    """Everyone gets the shards of all, joined."""
    joined = join_shards(cast(Sequence[Sharded], values), _who(group))  # it refuses what has no shards
    if group is not None:
        joined = with_shards(joined, *algebra.coarsest(joined.shards, joined.total))
    return [joined] * len(values)


def scatterreduce(values: Sequence[Value], group: Group | None = None) -> list[Value]:
    """The sum, of which the i-th of n members keeps shard i of n (reduce-scatter); of a sum that is shard j of T, in a
    group smaller than the world, shard j n + i of T n."""
    total, members = _reduced(values, group), len(values)
    shards, count = algebra.coarsest(total.shards, total.total)
    if group is None and count > 1:
        raise RuleError(f"it splits a whole gradient, and this is {shards_text(total)}; use allreduce for shards")
    if len(shards) > 1:
        raise RuleError(f"it splits one shard, and these are {shards_text(total)}; scatter each by itself")
    (first,) = shards
    return [with_shards(total, frozenset((first * members + i,)), count * members) for i in range(members)]


COLLECTIVE_RULES: Mapping[str, Callable[[Sequence[Value], Group | None], list[Value]]] = {
    "allreduce": allreduce,
    "allgather": allgather,
    "scatterreduce": scatterreduce,
}
"""Each collective operation by name: from every member's value to every member's result, both in rank order."""

COLLECTIVES = frozenset(COLLECTIVE_RULES)
"""The names of the operations in which the ranks of a group meet."""


def contribute(name: str, value: Value) -> None:
    """Refuses a value that a rank may not bring to a collective, as far as it alone can tell."""
    if name != "allgather":
        require_kind(value, WeightGrad, "what is reduced")
    elif not isinstance(value, Sharded):
        raise RuleError(
            f"only weights, optimizer states and weight gradients have shards to gather; got {object_text(value)}"
        )


def agree(calls: Sequence[tuple[str, tuple[int, ...]]], described: Callable[[int], str]) -> None:
    """The k-th collective of every member is the same: operation, and layers of the values. `described` names the
    i-th call in a message."""
    for i, call in enumerate(calls):
        if call != calls[0]:
            raise MismatchError(
                f"{described(0)}, but {described(i)}; "
                "every rank must make the same collective calls, on the same layers, in the same order"
            )


def _reduced(values: Sequence[Value], group: Group | None) -> WeightGrad:
    try:
        return sum_grads(values, _who(group))
    except RuleError as why:
        whole = [i for i, v in enumerate(values) if isinstance(v, WeightGrad) and v.batches and v.is_complete()]
        if len(whole) < 2:
            raise
        ranks = [i if group is None else group[i] for i in whole]
        raise RuleError(
            f"ranks {set_text(ranks)} each bring every batch, so this gradient is reduced already; reduce it once"
        ) from why


def _who(group: Group | None) -> Who:
    """Names the i-th member in a message."""
    return _rank if group is None else lambda i: _rank(group[i])


def _rank(rank: int) -> str:
    return f"rank {rank}"
