"""A family of skips: replicas that train alone, and average their weights every so many steps."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from lib import Model


def local(every: int) -> Callable[[Model], Awaitable[None]]:
    """The weights are averaged after each `every`-th step, and after the last one."""

    async def schedule(model: Model) -> None:
        weights, states, acts, grads, new = model.storage()
        steps = model.dist.setting.steps
        for layer in range(model.LAYERS):
            weights[layer], states[layer] = model.load_weights(layer)
        for step in range(steps):
            acts[0] = model.get_activation([model.rank], step)
            for layer in range(model.LAYERS):
                acts[layer + 1] = model.forward(layer, acts[layer], weights[layer])
            grads[model.LAYERS] = model.loss(acts.pop(model.LAYERS))
            for layer in reversed(range(model.LAYERS)):
                new[layer], grads[layer] = model.backward(layer, acts.pop(layer), grads.pop(layer + 1), weights[layer])
                weights[layer], states[layer] = model.update(layer, new.pop(layer), weights[layer], states[layer])
            del grads[0]
            if (step + 1) % every == 0 or step + 1 == steps:
                for layer in range(model.LAYERS):
                    weights[layer] = await model.allreduce(weights[layer], layer)
        for layer in range(model.LAYERS):
            model.set_final_weight(layer, weights[layer])

    return schedule
