"""Data parallel training whose communication runs beside computation."""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate, zip_longest
from typing import Any

from lib import Model


def ddp_overlap(*buckets: int, early: tuple[int, ...] = ()) -> Callable[[Model], Any]:
    """Gradients are summed in buckets of so many layers each, from the last layer on, while backward goes on. So many
    buckets are awaited and updated early, after each backward; the others at the end."""

    async def schedule(model: Model) -> None:
        weights, opt_states, inputs, grads, weight_grads = model.storage()
        calls: list[tuple[list[int], Any]] = []

        async def update() -> None:
            bucket, call = calls.pop(0)
            weight_grads.update(zip(bucket, await call))
            for layer in bucket:
                new = model.update(layer, weight_grads.pop(layer), weights[layer], opt_states[layer])
                weights[layer], opt_states[layer] = new
                model.set_final_weight(layer, weights[layer])

        for layer in range(model.LAYERS):
            weights[layer], opt_states[layer] = model.load_weights(layer)
        inputs[0] = model.get_activation([model.rank])
        for layer in range(model.LAYERS):
            inputs[layer + 1] = model.forward(layer, inputs[layer], weights[layer])
        grads[0] = model.loss(inputs.pop(model.LAYERS))
        ends = {*accumulate(buckets)}
        bucket: list[int] = []
        for done, (layer, updates) in enumerate(zip_longest(reversed(range(model.LAYERS)), early, fillvalue=0), 1):
            weight_grads[layer], grads[0] = model.backward(layer, inputs[layer], grads[0], weights[layer])
            del inputs[layer]
            if layer == 0:
                del grads[0]
            bucket.append(layer)
            if done in ends:
                calls.append((bucket, model.allreduce([weight_grads.pop(one) for one in bucket], bucket)))
                bucket = []
            for _ in range(updates):
                await update()
        while calls:
            await update()

    return schedule


def fsdp_prefetch(gather_first: bool = True, input_again: bool = False) -> Callable[[Model], Any]:
    """Sharded weights that are gathered one layer ahead. In backward the lane has the gather of the layer before ahead
    of the scatter of this one, unless it is not to be. The model's input is dropped and taken again where told so."""

    async def schedule(model: Model) -> None:
        weights, opt_states, inputs, grads, weight_grads = model.storage()

        def gather(layer: int) -> Any:
            return model.allgather(weights[layer], layer)

        for layer in range(model.LAYERS):
            weights[layer], opt_states[layer] = model.load_weights(layer, model.rank, model.RANKS)
        inputs[0] = model.get_activation([model.rank])
        ahead: Any = gather(0)
        last = model.LAYERS - 1
        for layer in range(model.LAYERS):
            weights["full"] = await ahead
            ahead = gather(layer + 1) if layer < last else None
            inputs[layer + 1] = model.forward(layer, inputs[layer], weights["full"])
            if input_again and layer == 0:
                del inputs[0]
        grads[0] = model.loss(inputs.pop(model.LAYERS))
        scattered: dict[int, Any] = {}
        for layer in reversed(range(model.LAYERS)):
            if input_again and layer == 0:
                inputs[0] = model.get_activation([model.rank])
            if layer and gather_first:
                ahead = gather(layer - 1)
            weight_grads[layer], grads[0] = model.backward(layer, inputs[layer], grads[0], weights.pop("full"))
            del inputs[layer]
            if layer + 1 in scattered:
                weight_grads[layer + 1] = await scattered[layer + 1]
            scattered[layer] = model.scatterreduce(weight_grads.pop(layer), layer)
            if layer:
                weights["full"] = await (ahead if gather_first else gather(layer - 1))
        del grads[0]
        for layer in reversed(range(model.LAYERS)):
            if layer == 0:
                weight_grads[0] = await scattered[0]
            new = model.update(layer, weight_grads.pop(layer), weights[layer], opt_states[layer])
            weights[layer], opt_states[layer] = new
            model.set_final_weight(layer, weights[layer])

    return schedule
