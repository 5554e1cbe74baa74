"""States what each collective demands and what it yields: pure functions from every member's value to every result.

The members are the ranks of a group, ascending; `None` is the world, all ranks. In a smaller group a value may be cut
again: a shard of a shard is a shard of a finer count, and what is gathered gets back the coarsest count that says the
same. So a weight can be cut for tensor parallelism and again for data parallelism (ZeRO inside Megatron).

A rule gets the values of all members and yields those of all members. A rule for one member, which asks the others for
what it needs, would be closer to a real library, but the run and the referee could not apply it alike.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import cast

from lib.errors import RuleError, Sentences
from lib.ledger import algebra
from lib.ledger.algebra import Copy, Who, averaged, batches_text, named, parts_text, shards_text, tokens_text
from lib.ledger.setting import Game
from lib.ledger.values import (
    ALIKE_PARTS,
    ONE_LABEL,
    Batched,
    Delta,
    KeyValue,
    KeyValueGrad,
    Parked,
    S,
    Scalar,
    Sharded,
    Value,
    Weight,
    WeightGrad,
    added,
    join_shards,
    object_text,
    require_alike,
    require_kind,
    sum_grads,
)

from . import attention
from .layers import require_layers

# --- One rank is the root: the source of a broadcast, the rank that gets the sum of a reduce ---
#
# Both run along a chain of the group's ranks in a circle. A broadcast starts at its source, a reduce ends at its root,
# so each rank but one sends a whole value (Thakur et al. 2005, "Optimization of collective communication operations in
# MPICH", whose long messages go through a pipelined ring).

ROOT_OF = {"broadcast": "source", "reduce": "to"}
"""The collectives that have a root, each with the name of the argument that is the root."""


def root_in(name: str, args: Sequence[int]) -> int | None:
    """The root in a record's arguments, which are a group, a label and a root; None for other operations."""
    return args[2] if name in ROOT_OF else None


def require_root(name: str, root: object, rank: int, members: Sequence[int], gives: bool) -> int:
    """The root of a collective that a rank of a group calls, checked, and that of a broadcast only the root gives a
    value."""
    root = algebra.whole_number(root, ROOT_OF[name])
    if root not in members:
        raise RuleError(SAYS("root outside group", root=root, group=", ".join(map(str, members))))
    if name == "broadcast" and gives and rank != root:
        raise RuleError(SAYS("value not from root", rank=rank, root=root))
    if not gives and (name != "broadcast" or rank == root):
        raise RuleError(SAYS("no value given", rank=rank, name=name, advice=_WHO_GIVES[name]))
    return root


_WHO_GIVES = {"broadcast": "the source gives the value", "reduce": "every rank gives its part"}


def require_own(value: object) -> None:
    """Refuses what no other rank can get."""
    if not isinstance(value, Value):
        raise RuleError(SAYS("broadcast of no value", value=object_text(value)))
    if isinstance(value, Parked):
        raise RuleError(SAYS("parked value sent", value=value))


def refuse_broadcast(maker: str, call: object) -> None:
    """Refuses to bring the pending result of a broadcast to another call: on most ranks nothing is known of it."""
    if maker == "broadcast":
        raise RuleError(SAYS("result still pending", call=call))


def results_of(name: str, given: int, rank: int, root: int | None) -> int:
    """How many values a rank gets from a collective to which it gives so many."""
    return 1 if name == "broadcast" else given if root in (None, rank) else 0


def is_last(name: str, rank: int, members: Sequence[int], root: int) -> bool:
    """True for the rank at the end of the chain, which sends nothing."""
    return root == (rank if name == "reduce" else next_member(rank, members))


def next_member(rank: int, members: Sequence[int], steps: int = 1) -> int:
    """The rank that follows in the circle of a group."""
    return members[(members.index(rank) + steps) % len(members)]


# --- Activations: parts of a sum, shares of the tokens, tokens on the way to experts ---
#
# A block that is cut by shards makes parts of a sum (Shoeybi et al. 2019, section 3). Adding them and keeping a share
# of the tokens is half of an all-reduce (Korthikanti et al. 2022, section 4.2.2). Both hold for activations and for
# their gradients.


def sum_parts(values: Sequence[Value], who: Who) -> Batched:
    """The sum of all parts, each of which is contributed once."""
    first, of = _alike(values, ALIKE_PARTS, who, "sum")
    if first.of == 1:
        raise RuleError(SAYS("complete sum", first=first))
    union = algebra.disjoint_union([v.parts for v in of], "part", who, "sum each part once")
    if len(union) < first.of:
        missing = algebra.missing_text("part", union, first.of)
        raise RuleError(SAYS("missing parts", missing=missing, of=first.of))
    return first.copied(parts=algebra.WHOLE, of=1)


def scatter_sum(values: Sequence[Value], who: Who) -> list[Value]:
    """The sum of all parts, of which the i-th of n members keeps share i of n of the tokens."""
    total, n = sum_parts(values, who), len(values)
    shares, count = algebra.coarsest(total.shards, total.total)
    if len(shares) > 1:
        raise RuleError(SAYS("scatter of several shares", tokens=tokens_text(total)))
    (share,) = shares
    return [total.copied(shards=frozenset((share * n + i,)), total=count * n) for i in range(n)]


def gather_tokens(values: Sequence[Value], who: Who) -> Batched:
    """The tokens of all members, joined."""
    first, of = _alike(values, (*ONE_LABEL, "batches", "parts", "of", "total"), who, "gather")
    union = algebra.disjoint_union([v.shards for v in of], "share", who, "gather each share of the tokens once")
    if isinstance(first, KeyValue | KeyValueGrad):
        return first.copied(shards=union)
    shards, total = algebra.coarsest(union, first.total)
    return first.copied(shards=shards, total=total)


def dispatch(values: Sequence[Value], who: Who) -> list[Value]:
    """The tokens of each member's batches go to their experts: the e-th of n members gets share e of n of all."""
    first, of = _alike(values, ONE_LABEL, who, "dispatch")
    for i, value in enumerate(of):
        _require_whole(value, who(i), "dispatch")
    batches = algebra.disjoint_union([v.batches for v in of], "batch", who, "dispatch each batch once")
    n = len(of)
    if n == 1:
        return [first]
    return [first.copied(batches=batches, shards=frozenset((e,)), total=n) for e in range(n)]


def collect(values: Sequence[Value], wanted: Sequence[frozenset[int]], who: Who) -> list[Value]:
    """The experts' tokens go back: every member gets the batches that it wants, with all of their tokens."""
    whole = gather_tokens(values, who)
    _require_whole(whole, "everybody together", "collect")
    back = algebra.disjoint_union(wanted, "batch", who, "collect each batch on one rank")
    if back != whole.batches:
        asked = named("batch", sorted(back)) if back else "none"
        raise RuleError(SAYS("other batches asked back", batches=batches_text(whole), asked=asked))
    return [whole.copied(batches=batches) for batches in wanted]


def _alike(values: Sequence[Value], names: Sequence[str], who: Who, verb: str) -> tuple[Batched, list[Batched]]:
    first = values[0]
    assert isinstance(first, Batched)  # what `require_contribution` lets through
    for i, value in enumerate(values):
        require_kind(value, type(first), f"what all ranks {verb}")
        require_alike(first, value, names, who, i, verb)
    return first, values  # type: ignore[return-value]  # all are of one kind by now


def _require_whole(value: Batched, owner: str, verb: str) -> None:
    if len(value.parts) < value.of:
        raise RuleError(SAYS("part of a sum", owner=owner, parts=parts_text(value), verb=verb))
    if len(value.shards) < value.total:
        raise RuleError(SAYS("not all tokens", owner=owner, tokens=tokens_text(value), verb=verb))


Group = tuple[int, ...]
"""Some of the ranks, ascending, but not all."""

Wanted = Sequence[frozenset[int]]
"""The batches that each member asks for, where the operation names any."""


def allreduce(values: Sequence[Value], group: Group | None, wanted: Wanted = ()) -> list[Value]:
    """Everyone gets the sum. Each rank contributes its own batches, or its part of an activation. Of weights that
    replicas have trained everyone gets the average."""
    if isinstance(values[0], Batched):
        return [sum_parts(values, who_in(group))] * len(values)
    if isinstance(values[0], Delta | Scalar):
        return [added(values, who_in(group))] * len(values)
    if isinstance(values[0], Weight):
        return [_average(values, who_in(group))] * len(values)
    return [_reduced(values, group)] * len(values)


def allgather(values: Sequence[Value], group: Group | None, wanted: Wanted = ()) -> list[Value]:
    """Everyone gets the shards of all, joined; of activations, the tokens."""
    if isinstance(values[0], Batched):
        return [gather_tokens(values, who_in(group))] * len(values)
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
        return scatter_sum(values, who_in(group))
    total, members = _reduced(values, group), len(values)
    if total.total > 1:
        total = _in_coarsest_shards(total)
    shards, count = total.shards, total.total
    if group is None and count > 1:
        raise RuleError(SAYS("scatter of shards", shards=shards_text(total)))
    if len(shards) > 1:
        raise RuleError(SAYS("scatter of several shards", shards=shards_text(total)))
    (first,) = shards
    return [total.copied(shards=frozenset((first * members + i,)), total=count * members) for i in range(members)]


COLLECTIVE_RULES: Mapping[str, Callable[[Sequence[Value], Group | None, Wanted], list[Value]]] = {
    "allreduce": allreduce,
    "reduce": allreduce,
    "broadcast": lambda values, group, wanted: [*values],  # the root's, which is the only one
    "allgather": allgather,
    "scatterreduce": scatterreduce,
    "dispatch": lambda values, group, wanted: dispatch(values, who_in(group)),
    "collect": lambda values, group, wanted: collect(values, wanted, who_in(group)),
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
        require_layers(game, name, "attention")
        return attention.exchangeable(value, name)
    if name == "broadcast":
        return require_own(value)
    if isinstance(value, WeightGrad if name in REDUCING else Sharded) and name not in ALL_TO_ALL:
        return
    if name in ALL_TO_ALL:
        require_layers(game, name, "experts")
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
    return first.copied(copy=averaged(copies, first.step))


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
    return value.copied(shards=shards, total=total)


def group_text(group: Group) -> str:
    """'of ranks 0, 2'."""
    return f"of {algebra.named('rank', group)}"


def who_in(group: Group | None) -> Who:
    """Names the i-th member in a message."""
    return _rank if group is None else lambda i: _rank(group[i])


def _rank(rank: int) -> str:
    return f"rank {rank}"


SAYS = Sentences(
    {
        "root outside group": "rank {root} is not in the group {{{group}}}",
        "value not from root": "rank {rank} gives a value to the broadcast of rank {root}; give None on the other ranks",
        "no value given": "rank {rank} gives no value to the {name}; {advice}",
        "broadcast of no value": "a broadcast takes a value; got {value}",
        "parked value sent": "this is the {value}, which only its own rank can read; fetch it, and send the copy",
        "result still pending": "the result of {call} is known when it has come; await it before another call takes it",
        "complete sum": "this is the {first}, which is already complete; only parts of a sum are added. Reduce a value once, and load a shard of the weight on each rank",
        "missing parts": "this sum is missing {missing} of {of}; every rank that has a shard contributes its part",
        "scatter of several shares": "it splits one share of the tokens, and this is {tokens}; scatter each share by itself",
        "other batches asked back": "{batches} went to the experts, but the ranks ask for {asked} back; name each batch on one rank",
        "part of a sum": "{owner} contributes {parts}; add the parts before they {verb}",
        "not all tokens": "{owner} contributes {tokens}; {verb} takes all of them",
        "scatter of shards": "it splits a full gradient, and this one is {shards}; use allreduce for shards",
        "scatter of several shards": "it splits one shard, and these are {shards}; scatter each by itself",
        "not to an expert": "{name} takes an activation or its gradient; got {value}",
        "no shards to gather": "only weights, optimizer states and weight gradients have shards to gather; got {value}",
        "no replica": "{who} contributes the {weight}, which no replica has trained alone; average only replicas",
        "replicas of different weights": "{who} contributes the {first}, but {other} the {weight}; average replicas that started from the same weight",
        "replicas missing": "no replica here has trained with {missing}; average all replicas",
        "every batch contributed": "{ranks} each contribute every batch; reduce a gradient once, and let each rank take its own batches",
    }
)
