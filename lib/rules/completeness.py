"""States what must be there at the end: each layer's updated weight, or in inference each microbatch's output."""

from collections.abc import Iterable

from lib.errors import IncompleteError
from lib.game.setting import Game
from lib.values.algebra import missing_text
from lib.values.kinds import Activation, Weight


def complete(game: Game, final: Iterable[Weight]) -> None:
    """At the end each layer's updated weight exists whole, in shards of one count."""
    shards_of: dict[int, dict[int, set[int]]] = {}
    final = list(final)
    for weight in final:
        if weight.copy != final[0].copy and game.task != "outer":
            raise IncompleteError(f"the final weights do not belong together: {final[0]}, and {weight}")
        shards_of.setdefault(weight.layer, {}).setdefault(weight.total, set()).update(weight.shards)
    for layer in (layer for layer in range(game.layers) if layer not in game.setting.frozen):
        by_total = shards_of.get(layer)
        if by_total is None:
            raise IncompleteError(
                f"no rank set a final weight for layer {layer}; update it and call set_final_weight({layer}, ...)"
            )
        if not any(len(shards) == total for total, shards in by_total.items()):
            total = max(by_total, key=lambda total: len(by_total[total]) / total)
            raise IncompleteError(
                f"the final weight of layer {layer} lacks {missing_text('shard', by_total[total], total)} of {total}; "
                "some rank must update each shard and set it as final"
            )


def complete_outputs(game: Game, outputs: Iterable[Activation]) -> None:
    """At the end of inference each batch has come out of the last layer."""
    batches = frozenset().union(*[output.batches for output in outputs])
    if len(batches) < game.batches:
        missing = missing_text("batch", batches, game.batches)
        raise IncompleteError(f"no rank set an output for {missing}; go forward with it and call set_output(...)")
