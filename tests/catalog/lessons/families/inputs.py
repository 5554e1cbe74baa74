"""A family of skips: one rank, or ranks with a row of every layer, keep, park or compute again each layer's input."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from lib import Model


def inputs(plan: str) -> Callable[[Model], Awaitable[None]]:
    """`plan` has a letter for the input of each layer: k to keep it; p to park it on the host; a to compute it again
    and keep it then; n to compute it again for each backward. The model's input is taken again, unless it is kept.
    """
    assert set(plan) <= set("kpan")

    async def schedule(model: Model) -> None:
        weights, states, acts, grads, new = model.storage()
        everything = range(model.BATCHES)
        for layer in range(model.LAYERS):
            weights[layer], states[layer] = model.load_weights(layer, model.rank, model.RANKS)

        async def summed(part: Any, layer: int) -> Any:
            return await model.allreduce(part, layer) if model.RANKS > 1 else part

        acts[0] = model.get_activation(everything)
        for layer in range(model.LAYERS):
            leaving = model.offload(acts[layer]) if plan[layer] == "p" else None
            acts[layer + 1] = await summed(model.forward(layer, acts[layer], weights[layer]), layer + 1)
            if leaving is not None:
                model.parked[layer] = await leaving
            if plan[layer] != "k":
                del acts[layer]
        grads[model.LAYERS] = model.loss(acts.pop(model.LAYERS))

        def source(layer: int) -> int:
            """The input from which a layer's input is computed."""
            return max(at for at in range(layer + 1) if plan[at] in "kp" or at == 0)

        for layer in reversed(range(model.LAYERS)):
            before = source(layer - 1) if layer else 0
            coming = model.fetch(model.parked[before]) if before in model.parked and before not in acts else None
            start = max((at for at in acts if at <= layer), default=0)
            if start not in acts:
                acts[0] = model.get_activation(everything)
            for at in range(start, layer):
                acts[at + 1] = await summed(model.forward(at, acts[at], weights[at]), at + 1)
                if plan[at] == "n":
                    del acts[at]
            new[layer], grads[layer] = model.backward(layer, acts.pop(layer), grads.pop(layer + 1), weights[layer])
            if layer:
                grads[layer] = await summed(grads[layer], layer - 1)
            grads.pop(0, None)
            weights[layer], states[layer] = model.update(layer, new.pop(layer), weights[layer], states[layer])
            model.set_final_weight(layer, weights[layer])
            if coming is not None:
                acts[before] = await coming
                del model.parked[before]

    return schedule
