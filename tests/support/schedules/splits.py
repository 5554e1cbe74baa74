"""Pipelines whose stages have any number of layers, in 1F1B's order or GPipe's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from lib import Model


def uneven(counts: Sequence[int], warm_up: Callable[[int, int], int] | None = None) -> Callable[[Model], Any]:
    """1F1B where rank r has so many layers. `warm_up` of rank and ranks: forwards before the first backward, by default
    ranks - rank; as many as there are microbatches is GPipe."""

    async def schedule(model: Model) -> None:
        weights, states, inputs, waiting, grads = model.storage()
        me, last = model.rank, model.rank == model.RANKS - 1
        mine = range(sum(counts[:me]), sum(counts[: me + 1]))
        for layer in mine:
            weights[layer], states[layer] = model.load_weights(layer)

        async def forward(batch: int) -> None:
            out = await model.receive(me - 1) if me else model.get_activation([batch])
            for layer in mine:
                inputs[layer, batch] = out
                out = model.forward(layer, out, weights[layer])
            if last:
                waiting[batch] = model.loss(out)
            else:
                await model.pass_to(me + 1, out)

        async def backward(batch: int) -> None:
            if not last:
                waiting[batch] = await model.receive(me + 1)
            grad: Any = waiting.pop(batch)
            for layer in reversed(mine):
                new, grad = model.backward(layer, inputs.pop((layer, batch)), grad, weights[layer])
                grads[layer] = grads[layer] + new if layer in grads else new
            if me:
                await model.pass_to(me - 1, grad)

        ahead = min(model.BATCHES, (warm_up or (lambda rank, ranks: ranks - rank))(me, model.RANKS))
        for batch in range(model.BATCHES + ahead - 1):
            if batch < model.BATCHES:
                await forward(batch)
            if batch >= ahead - 1:
                await backward(batch - ahead + 1)
        for layer in mine:
            weights[layer], states[layer] = model.update(layer, grads.pop(layer), weights[layer], states[layer])
            model.set_final_weight(layer, weights[layer])

    return schedule
