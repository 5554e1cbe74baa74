"""A family of skips: FSDP whose ranks take some microbatches in a pass, one pass after the other."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from lib import Model, Weight, WeightGrad


def passes(at_once: int, *, prefetch: bool = True, keep: bool = False) -> Callable[[Model], Awaitable[None]]:
    """`at_once`: the microbatches of a pass. `prefetch`: the next layer is gathered, and the last gradient scattered,
    while a layer computes. `keep`: each weight is gathered once, and full until the end; otherwise it is so for a layer
    where a pass turns. The model's input is taken again.
    """

    async def schedule(model: Model) -> None:
        weights, states, acts, grads, new = model.storage()
        layers = range(model.LAYERS)
        mine = range(model.rank, model.BATCHES, model.RANKS)
        for layer in layers:
            weights[layer], states[layer] = model.load_weights(layer, model.rank, model.RANKS)

        there_and_back = [*layers[1:], *layers[-2::-1]]
        coming = [*layers] if keep else [0, *there_and_back * len(mine[::at_once])]
        gathers = [(layer, model.allgather(weights[layer], layer)) for layer in coming[:1]] if prefetch else []
        coming = coming[1:] if prefetch else coming

        async def full(layer: int) -> Weight:
            if ("full", layer) not in weights:
                for other in [] if keep else layers:
                    weights.pop(("full", other), None)
                if not prefetch:
                    gathers.append((coming.pop(0), model.allgather(weights[layer], layer)))
                at, call = gathers.pop(0)
                assert at == layer
                weights["full", layer] = await call
                if prefetch and coming:
                    gathers.append((coming[0], model.allgather(weights[coming[0]], coming.pop(0))))
            return weights["full", layer]

        scatters: list[tuple[int, Awaitable[WeightGrad]]] = []

        async def settle(left: int) -> None:
            while len(scatters) > left:
                layer, call = scatters.pop(0)
                shard = await call
                new[layer] = new[layer] + shard if layer in new else shard

        for start in range(0, len(mine), at_once):
            batches = mine[start : start + at_once]
            acts[0] = model.get_activation(batches)
            for layer in layers:
                acts[layer + 1] = model.forward(layer, acts[layer], await full(layer))
                acts.pop(0, None)
            grads[model.LAYERS] = model.loss(acts[model.LAYERS])
            del acts[model.LAYERS]
            for layer in reversed(layers):
                weight = await full(layer)
                if layer == 0:
                    acts[0] = model.get_activation(batches)
                new["full"], grads[layer] = model.backward(layer, acts[layer], grads[layer + 1], weight)
                del acts[layer], grads[layer + 1], weight
                await settle(0)
                scatters.append((layer, model.scatterreduce(new["full"], layer)))
                del new["full"]
                await settle(1 if prefetch else 0)
            del grads[0]
        await settle(0)
        for layer in layers:
            weights.pop(("full", layer), None)
            weights[layer], states[layer] = model.update(layer, new[layer], weights[layer], states[layer])
            model.set_final_weight(layer, weights[layer])

    return schedule
