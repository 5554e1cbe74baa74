"""States what must be there at the end: each layer's updated weight, or in inference each microbatch's output."""

from collections.abc import Iterable

from lib.errors import IncompleteError
from lib.game.setting import Game
from lib.values.algebra import missing_text
from lib.values.kinds import Activation, Weight
from lib.values.replica_shards import ReplicaShards


def complete(game: Game, final: Iterable[Weight]) -> None:
    """At the end each layer's updated weight exists whole, in shards of one count."""
    held: dict[int, dict[tuple[int, ReplicaShards | None], set[int]]] = {}
    final = list(final)
    for weight in final:
        if weight.copy != final[0].copy and game.task != "outer":
            raise IncompleteError(f"the final weights do not belong together: {final[0]}, and {weight}")
        held.setdefault(weight.layer, {}).setdefault((weight.total, weight.own), set()).update(weight.shards)
    for layer in range(game.layers):
        by_total = held.get(layer)
        if by_total is None:
            raise IncompleteError(
                f"no rank set a final weight for layer {layer}; update it and call set_final_weight({layer}, ...)"
            )
        there = {key: len(shards) * (key[1].replicas if key[1] else 1) for key, shards in by_total.items()}
        if not any(held == total for (total, _), held in there.items()):
            total, own = max(there, key=lambda key: there[key] / key[0])
            shards = own.everywhere(by_total[total, own]) if own else by_total[total, own]
            raise IncompleteError(
                f"the final weight of layer {layer} lacks {missing_text('shard', shards, total)} of {total}; "
                "some rank must update each shard and set it as final"
            )


def complete_outputs(game: Game, outputs: Iterable[Activation]) -> None:
    """At the end of inference each batch has come out of the last layer."""
    held = frozenset().union(*[output.batches for output in outputs])
    if len(held) < game.batches:
        missing = missing_text("batch", held, game.batches)
        raise IncompleteError(f"no rank set an output for {missing}; go forward with it and call set_output(...)")
