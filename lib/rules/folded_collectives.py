"""Rules of collectives that cross the replicas of a folded run, from the inputs of replica 0 alone."""

from collections.abc import Callable, Sequence
from typing import cast

from lib.errors import RuleError
from lib.game.folding import Fold
from lib.game.setting import Game
from lib.values.algebra import coarsest
from lib.values.base import Batched, Sharded, Value, join_shards, with_fields
from lib.values.kinds import Weight, WeightGrad
from lib.values.replica_shards import ReplicaShards
from lib.values.replicas import shared

from .collectives import ALL_TO_ALL, COLLECTIVE_RULES, Group, Wanted, who_in


def folded(game: Game, fold: Fold, name: str) -> Callable[[Sequence[Value], Group | None, Wanted], list[Value]]:
    """The rule of a collective whose group has members in all replicas: from what those of replica 0 bring to what they
    get."""

    def rule(values: Sequence[Value], group: Group | None, wanted: Wanted) -> list[Value]:
        members = None if group is None else group[1:]
        if name in ALL_TO_ALL or isinstance(values[0], Batched):
            raise RuleError(
                f"{name} of activations along {fold.axis!r} would mix the batches of different replicas, which a "
                f"folded run does not play; name another axis, as group='tp', or do not fold"
            )
        who = who_in(members)
        for i, value in enumerate(values):
            _require_of_replica(game, name, value, who(i))
        if name == "allgather":
            return [_gathered(values, members)] * len(values)
        if isinstance(values[0], Weight):
            values = [_trained_by_all(fold, value) for value in values]
            return COLLECTIVE_RULES[name](values, members, wanted)
        made = [
            with_fields(value, total_batches=game.batches // fold.replicas)
            for value in COLLECTIVE_RULES[name](values, members, wanted)
        ]
        return made if name == "allreduce" else [_cut(fold, value, len(made)) for value in made]

    return rule


def _require_of_replica(game: Game, name: str, value: Value, who: str) -> None:
    """Refuses what cannot come together with the same of the other replicas: all of them contribute alike values."""
    if not isinstance(value, Sharded):
        return  # the rule says what is wrong with it
    if name == "allgather":
        if value.own is None:
            why = "every replica contributes the same; a gather takes every shard once"
        elif isinstance(value, WeightGrad) and value.batches and value.total_batches == game.batches:
            why = "every replica contributes other batches; reduce first"
        elif isinstance(value, Weight) and not shared(value.copy):
            why = "every replica has trained its own; average them first"
        else:
            return
    elif value.own is not None:
        why = "every replica contributes another shard; sum equal shards"
    elif isinstance(value, WeightGrad) and value.batches and value.total_batches != game.batches:
        why = "every replica contributes it: it is reduced over them already; reduce it once"
    else:
        return
    raise RuleError(f"{who} contributes the {value}, and {why}")


def _gathered(values: Sequence[Value], members: Group | None) -> Value:
    """The shards of all replicas."""
    value = (
        cast(Sharded, values[0]) if len(values) == 1 else join_shards(cast(Sequence[Sharded], values), who_in(members))
    )
    assert value.own is not None
    joined = value.own.joined(value.shards, value.total)
    if joined is None:
        raise RuleError(
            f"the {value} leaves gaps between the replicas, which a folded run does not play; "
            "gather along the other axes first"
        )
    shards, total = coarsest(*joined)
    return with_fields(value, shards=shards, total=total, own=None)


def _cut(fold: Fold, value: Value, members: int) -> Value:
    """The shard of a member of replica 0, where replica 0 alone has so many members: the next one has as many more."""
    assert isinstance(value, WeightGrad)
    (shard,) = value.shards
    first, place = divmod(shard, members)
    shards = frozenset((first * members * fold.replicas + place,))
    return with_fields(
        value, shards=shards, total=value.total * fold.replicas, own=ReplicaShards(members, fold.replicas)
    )


def _trained_by_all(fold: Fold, value: Value) -> Value:
    """A weight that a replica has trained alone, as all of them bring theirs to an average."""
    copy = value.copy if isinstance(value, Weight) else None
    if copy is None:
        return value
    return with_fields(value, copy=copy._replace(of=copy.of // fold.replicas))
