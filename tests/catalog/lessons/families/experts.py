"""A family of skips: expert parallelism in which a rank waits for its tokens."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from lib import Model


def experts(*, together: bool) -> Callable[[Model], Awaitable[None]]:
    """Each dispatch and each collect is awaited at once; a rank takes its microbatches `together`, or one by one."""

    async def schedule(model: Model) -> None:
        weights, states, acts, grads, new = model.storage()
        mine = range(model.rank, model.BATCHES, model.RANKS)
        rounds = [[*mine]] if together else [[batch] for batch in mine]
        for layer in range(model.LAYERS):
            weights[layer], states[layer] = model.load_weights(layer, model.rank, model.RANKS)
        for batches in rounds:
            value = await model.dispatch(model.get_activation(batches), 0)
            for layer in range(model.LAYERS):
                acts[layer] = value
                value = await model.collect(model.forward(layer, acts[layer], weights[layer]), layer + 1, batches)
                if layer + 1 < model.LAYERS:
                    value = await model.dispatch(value, layer + 1)
            grad = await model.dispatch(model.loss(value), model.LAYERS - 1)
            del value
            for layer in reversed(range(model.LAYERS)):
                made, grads[layer] = model.backward(layer, acts.pop(layer), grad, weights[layer])
                new[layer] = new[layer] + made if layer in new else made
                if layer:
                    grad = await model.collect(grads.pop(layer), layer - 1, batches)
                    grad = await model.dispatch(grad, layer - 1)
            del grad, made, grads[0]
        for layer in range(model.LAYERS):
            weights[layer], states[layer] = model.update(layer, new.pop(layer), weights[layer], states[layer])
            model.set_final_weight(layer, weights[layer])

    return schedule
