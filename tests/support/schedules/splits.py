"""Pipelines whose stages have any number of layers, in 1F1B's order or GPipe's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from lib import Model


def uneven(counts: Sequence[int], warm_up: Callable[[int, int], int] | None = None) -> Callable[[Model], Any]:
    """1F1B where rank r has so many layers. `warm_up` of rank and ranks: forwards before the first backward, by default
    ranks - rank; as many as there are microbatches is GPipe."""

    async def schedule(model: Model) -> None:
        me, weights, states, inputs, grads = model.rank, {}, {}, {}, {}
        mine = range(sum(counts[:me]), sum(counts[: me + 1]))
        last = me == model.RANKS - 1
        for layer in mine:
            weights[layer], states[layer] = model.load_weights(layer)

        async def forward(batch: int) -> None:
            x = await model.receive(me - 1) if me else model.get_activation([batch])
            for layer in mine:
                inputs[layer, batch] = x
                x = model.forward(layer, x, weights[layer])
            if last:
                inputs[model.LAYERS, batch] = x
            else:
                await model.pass_to(me + 1, x)

        async def backward(batch: int) -> None:
            grad = model.loss(inputs.pop((model.LAYERS, batch))) if last else await model.receive(me + 1)
            for layer in reversed(mine):
                new, grad = model.backward(layer, inputs.pop((layer, batch)), grad, weights[layer])
                grads[layer] = grads[layer] + new if layer in grads else new
            if me:
                await model.pass_to(me - 1, grad)

        ahead = min(model.BATCHES, (warm_up or (lambda rank, ranks: ranks - rank))(me, model.RANKS))
        for batch in range(model.BATCHES + ahead):
            if batch < model.BATCHES:
                await forward(batch)
            if batch >= ahead - 1 and batch - ahead + 1 < model.BATCHES:
                await backward(batch - ahead + 1)
        for layer in mine:
            weights[layer], states[layer] = model.update(layer, grads[layer], weights[layer], states[layer])
            model.set_final_weight(layer, weights[layer])

    return schedule
