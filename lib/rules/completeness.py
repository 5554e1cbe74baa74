"""States what must be there at the end: each layer's updated weight, or in inference each microbatch's output."""

from collections.abc import Iterable

from lib.errors import IncompleteError
from lib.game.setting import Game
from lib.values.algebra import missing_text
from lib.values.kinds import Activation, Weight

from .words import SAYS


def complete(game: Game, final: Iterable[Weight]) -> None:
    """At the end each layer's updated weight exists whole, in shards of one count."""
    shards_of: dict[int, dict[int, set[int]]] = {}
    final = list(final)
    for weight in final:
        if weight.copy != final[0].copy and game.task != "outer":
            raise IncompleteError(SAYS("final weights differ", first=final[0], weight=weight))
        shards_of.setdefault(weight.layer, {}).setdefault(weight.total, set()).update(weight.shards)
    for layer in (layer for layer in range(game.layers) if layer not in game.setting.frozen):
        by_total = shards_of.get(layer)
        if by_total is None:
            raise IncompleteError(SAYS("no final weight", layer=layer))
        if not any(len(shards) == total for total, shards in by_total.items()):
            total = max(by_total, key=lambda total: len(by_total[total]) / total)
            raise IncompleteError(
                SAYS(
                    "final shards missing",
                    layer=layer,
                    missing=missing_text("shard", by_total[total], total),
                    total=total,
                )
            )


def complete_outputs(game: Game, outputs: Iterable[Activation]) -> None:
    """At the end of inference each batch has come out of the last layer."""
    batches = frozenset().union(*[output.batches for output in outputs])
    if len(batches) < game.batches:
        missing = missing_text("batch", batches, game.batches)
        raise IncompleteError(SAYS("no output", missing=missing))
