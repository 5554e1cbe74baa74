"""FSDP that gathers the last weight only once, and updates every shard as soon as its gradient is ready.

Backward starts right after the last forward, so deleting that weight would only mean gathering it again. While
it is whole, it replaces the rank's own shard, which is cut from it afterwards. Memory peaks at the first
backward: one full weight, shards of everything else, and all inputs except that of layer 0, which is loaded
again. Without recomputation none of these can be missing. Every remaining gather has another backward between
it and its forward.
"""

from lib import Model


async def fsdp(model: Model) -> Model:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()
    last = model.LAYERS - 1

    for layer in range(model.LAYERS):
        weights[layer], opt_states[layer] = model.load_weights(layer, model.rank, model.RANKS)

    for layer in range(model.LAYERS):
        weights[layer] = await model.allgather(weights[layer], layer)
        inp = activations[layer] if layer else model.get_activation([model.rank])
        activations[layer + 1] = model.forward(layer, inp, weights[layer])
        if layer != last:
            weights[layer] = weights[layer].shard(model.rank, model.RANKS)
    grad_activations["out"] = model.loss(activations.pop(model.LAYERS))

    for layer in reversed(range(model.LAYERS)):
        if layer != last:
            weights[layer] = await model.allgather(weights[layer], layer)
        inp = activations.pop(layer) if layer else model.get_activation([model.rank])
        grad_weights[layer], grad_activations["out"] = model.backward(
            layer, inp, grad_activations["out"], weights[layer]
        )
        weights[layer] = weights[layer].shard(model.rank, model.RANKS)
        grad_weights[layer] = await model.scatterreduce(grad_weights[layer], layer)

        # All ranks update at the same time, so no rank waits for it.
        weights[layer], opt_states[layer] = model.update(
            layer, grad_weights.pop(layer), weights[layer], opt_states[layer]
        )
        model.set_final_weight(layer, weights[layer])
    return model
