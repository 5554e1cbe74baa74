"""States how long a rank's own operation takes."""

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from lib.game.costs import ATTENDING, PRODUCTS
from lib.game.setting import Game
from lib.game.tiers import ON_TIER
from lib.values.kinds import Weight

from . import attention, memory_tiers
from .operations import PER_BATCH, batches_of


def ticks(game: Game, operation: str, items: int, used: Sequence[Any], results: Sequence[Any], rank: int) -> int:
    """The ticks of a rank's own operation on `items` batches: on a shard of a weight, that share of the time."""
    price = game.prices.get(operation)
    if price is not None:
        return price * items
    costs = game.setting.costs
    if operation in ON_TIER:
        return memory_tiers.ticks(costs, operation, results, used)
    if operation in ATTENDING:
        return attention.ticks(game, operation, used)
    sized = used if operation in PRODUCTS or operation == "loss" else ()
    shares = [(len(v.shards), v.total) for v in sized if type(v) is Weight or getattr(v, "vocabulary", False)]
    shards, total = shares[0] if shares else (1, 1)
    if costs.unequal is not None:
        batches = batches_of(results) if operation in PER_BATCH else ()
        layer = min(used[0].layer, game.layers - 1)  # a loss is the last layer's
        return costs.unequal.ticks(operation, layer, batches, rank, Fraction(shards, total))
    return costs.duration(operation, items, shards, total)
