"""A family of skips on one rank: inputs are kept, parked or computed again, with at most one copy under way."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from lib import Model


def host_plan(plan: str) -> Callable[[Model], Awaitable[None]]:
    """`plan` has a letter for the input of each layer from layer 1 on: k to keep it, p to park it on the host, a to
    compute it again from the nearest input below. A copy leaves while the next layers are computed, and is awaited
    before the next one or the loss; it comes back while the layer above is, if no other input than that layer's is on
    the device. The model's input is taken again.
    """
    assert set(plan) <= set("kpa")

    async def schedule(model: Model) -> None:
        weights, states, acts, grads, new = model.storage()
        way = dict(enumerate(plan, start=1))
        for layer in range(model.LAYERS):
            weights[layer], states[layer] = model.load_weights(layer)

        copies: dict[int, Any] = {}

        async def parked() -> None:
            for layer in list(copies):
                model.parked[layer] = await copies.pop(layer)
                del acts[layer]

        acts[0] = model.get_activation(range(model.BATCHES))
        for layer in range(model.LAYERS):
            if way.get(layer) == "p":
                await parked()
                copies[layer] = model.offload(acts[layer])
            acts[layer + 1] = model.forward(layer, acts[layer], weights[layer])
            if way.get(layer, "a") == "a":
                del acts[layer]
        await parked()
        grads[model.LAYERS] = model.loss(acts[model.LAYERS])
        del acts[model.LAYERS]

        async def fetched(layer: int) -> None:
            if layer in model.parked:
                acts[layer] = await (copies.pop(layer, None) or model.fetch(model.parked[layer]))
                del model.parked[layer]

        for layer in reversed(range(model.LAYERS)):
            start = max((at for at in (*acts, *model.parked) if at <= layer), default=0)
            await fetched(start)
            if start not in acts:
                acts[0] = model.get_activation(range(model.BATCHES))
            for at in range(start, layer):
                acts[at + 1] = model.forward(at, acts[at], weights[at])
                if way.get(at, "a") == "a":
                    del acts[at]
            if len(acts) == 1 and not copies and model.parked:
                copies[max(model.parked)] = model.fetch(model.parked[max(model.parked)])
            new[layer], grads[layer] = model.backward(layer, acts[layer], grads[layer + 1], weights[layer])
            del acts[layer], grads[layer + 1]
            weights[layer], states[layer] = model.update(layer, new[layer], weights[layer], states[layer])
            del new[layer]
            model.set_final_weight(layer, weights[layer])
        del grads[0]

    return schedule
