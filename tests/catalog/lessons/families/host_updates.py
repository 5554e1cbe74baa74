"""Training on one rank with an update on the host after each backward."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from lib import Model


def host_updates(at_once: bool = True) -> Callable[[Model], Awaitable[None]]:
    """All microbatches are computed at once or in turn; each step waits for the updates of the one before."""

    async def schedule(model: Model) -> None:
        layers, weights, parked = range(model.LAYERS), model.weights, model.parked
        on_device: dict[int, Any] = {}
        handles: list[tuple[int, Any]] = []
        groups = [range(model.BATCHES)] if at_once else [[batch] for batch in range(model.BATCHES)]
        for layer in layers:
            parked["w", layer], parked["s", layer] = model.load_weights(layer, tier="host")
            on_device[layer] = model.fetch(parked["w", layer])
        for step in range(model.dist.setting.steps):
            grads: dict[int, Any] = {}
            for batches in groups:
                inputs = [model.get_activation(batches, step)]
                for layer in layers:
                    if layer in on_device:
                        weights[layer] = await on_device.pop(layer)
                    inputs.append(model.forward(layer, inputs[layer], weights[layer]))
                grad = model.loss(inputs.pop())
                for layer in reversed(layers):
                    new, grad = model.backward(layer, inputs.pop(), grad, weights[layer])
                    new = grads[layer] = grads[layer] + new if layer in grads else new
                    if batches is not groups[-1]:
                        continue
                    del grads[layer]
                    leaving = model.offload(new)
                    update = model.update(layer, leaving, parked["w", layer], parked["s", layer], on="host")
                    on_device[layer] = model.fetch(update[0])
                    await leaving
                    handles.append((layer, update))
                    del new
            for layer, update in handles:
                parked["w", layer], parked["s", layer] = await update
            handles.clear()
        for layer in layers:
            if layer in on_device:
                weights[layer] = await on_device.pop(layer)
            model.set_final_weight(layer, weights[layer])

    return schedule
