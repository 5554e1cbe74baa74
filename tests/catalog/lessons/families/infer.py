"""A family of skips: inference on one rank, with each weight on the device, on the host, or loaded when it is used."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from lib import Model


def infer(plan: str, *, ahead: bool = True) -> Callable[[Model], Awaitable[None]]:
    """`plan` has a letter for the weight of each layer: d to hold it on the device; h to fetch it from the host for its
    use, with `ahead` while the layer before it computes; l to load it to the device for its use, and drop it then; b to
    load it both to the host and so.
    """
    assert set(plan) <= set("dhlb")

    async def schedule(model: Model) -> None:
        weights, acts, parked = model.weights, model.activations, model.parked
        for layer, where in enumerate(plan):
            if where == "d":
                weights[layer], _ = model.load_weights(layer)
            elif where in "hb":
                parked[layer], _ = model.load_weights(layer, tier="host")
        acts[0] = model.get_activation(range(model.BATCHES))
        coming: dict[int, Any] = {}

        def fetch(layer: int) -> None:
            if layer < model.LAYERS and plan[layer] == "h":
                coming[layer] = model.fetch(parked[layer])

        if ahead:
            fetch(0)
        for layer in range(model.LAYERS):
            if plan[layer] in "lb":
                weights[layer], _ = model.load_weights(layer)
            if not ahead:
                fetch(layer)
            if layer in coming:
                weights[layer] = await coming.pop(layer)
            if ahead:
                fetch(layer + 1)
            acts[layer + 1] = model.forward(layer, acts.pop(layer), weights[layer])
            if plan[layer] != "d":
                del weights[layer]
        model.set_output(acts[model.LAYERS])

    return schedule
