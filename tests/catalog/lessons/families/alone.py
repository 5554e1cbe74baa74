"""A skip for every puzzle of several ranks: one rank does all the work."""

from __future__ import annotations

from lib import Model


async def alone(model: Model) -> None:
    """Rank 0 trains with one microbatch after the other; the others do nothing."""
    if model.rank:
        return
    weights, states, acts, grads, new = model.storage()
    for layer in range(model.LAYERS):
        weights[layer], states[layer] = model.load_weights(layer)
    for step in range(model.dist.setting.steps):
        for batch in range(model.BATCHES):
            acts[0] = model.get_activation([batch], step)
            for layer in range(model.LAYERS):
                acts[layer + 1] = model.forward(layer, acts[layer], weights[layer])
                if layer == 0:
                    del acts[0]
            grads[model.LAYERS] = model.loss(acts.pop(model.LAYERS))
            for layer in reversed(range(model.LAYERS)):
                if layer == 0:
                    acts[0] = model.get_activation([batch], step)
                grad, grads[layer] = model.backward(layer, acts.pop(layer), grads.pop(layer + 1), weights[layer])
                grads.pop(0, None)
                new[layer] = new[layer] + grad if layer in new else grad
                del grad
                if batch == model.BATCHES - 1:
                    weights[layer], states[layer] = model.update(layer, new.pop(layer), weights[layer], states[layer])
    for layer in range(model.LAYERS):
        model.set_final_weight(layer, weights[layer])
