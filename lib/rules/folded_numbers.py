"""Checks batch and shard numbers in a folded run: a rank may name only those of its replica."""

from collections.abc import Iterable, Sequence
from typing import Any

from lib.errors import RuleError
from lib.game.folding import stride_of
from lib.game.setting import Game
from lib.values import algebra


def chosen_batches(game: Game, given: object) -> frozenset[int]:
    """Microbatches that exist; in a folded run, the own ones of a replica."""
    fold = game.fold
    if fold is None or isinstance(given, (str, bytes)) or not isinstance(given, Iterable):
        return algebra.numbers(given, game.batches, "batch")
    own = game.batches // fold.replicas
    listed = [int(batch) if stride_of(batch) == own else batch for batch in given]
    chosen = algebra.numbers(listed, game.batches, "batch")
    if others := [batch for batch in chosen if batch >= own]:
        raise RuleError(
            f"batch {min(others)} is another replica's; of {game.batches} batches, each of {fold.replicas} replicas "
            f"has {own} in a row, replica d from {own} d on: name them by model.index({fold.axis!r})"
        )
    return chosen


def require_own_batches(game: Game, given: object) -> object:
    """The batches that a rank names, if in a folded run each is another one on each replica."""
    fold = game.fold
    if fold is None or isinstance(given, (str, bytes)) or not isinstance(given, Iterable):
        return given
    listed, own = list(given), game.batches // fold.replicas
    for batch in listed:
        if type(batch) is int and 0 <= batch < own:
            raise RuleError(
                f"batch {batch} would be the same batch for all {fold.replicas} replicas; of {game.batches} batches, "
                f"replica d has {own} from {own} d on: name them by model.index({fold.axis!r})"
            )
    return listed


def part_in_record(game: Game, part: Any, stride: Sequence[Any]) -> Any:
    """The number of a shard in a record, which in a folded run may be each replica's own."""
    if not stride:
        return part
    if game.fold is None or type(stride[0]) is not int or stride[0] < 1 or type(part) is not int:
        raise RuleError(f"only replicas of a folded run have shards of their own, at least 1 apart; got {stride}")
    return game.fold.number(part, stride[0])
