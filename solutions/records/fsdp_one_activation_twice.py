"""FSDP that recomputes one activation: the input of layer 1, which waits longest for its backward.

All activations exist when backward begins. This one is the cheapest to recompute: it takes one forward from
the model's input, and the weight gathered for that stays whole for the backward of layer 0, so there is no
extra gather. By then the other activations are gone, and there is room for two full weights.
"""

from lib import Model


async def fsdp(model: Model) -> Model:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()
    last = model.LAYERS - 1

    for layer in range(model.LAYERS):
        weights[layer], opt_states[layer] = model.load_weights(layer, model.rank, model.RANKS)

    async def gather(layer):
        if not weights[layer].is_complete():
            weights[layer] = await model.allgather(weights[layer], layer)

    def forward(layer):
        inp = activations[layer] if layer else model.get_activation([model.rank])
        activations[layer + 1] = model.forward(layer, inp, weights[layer])

    for layer in range(model.LAYERS):
        await gather(layer)
        forward(layer)
        # Keep the last layer's weight and input: its backward comes next.
        if layer != last:
            weights[layer] = weights[layer].shard(model.rank, model.RANKS)
            if layer == 1:
                del activations[layer]
    grad_activations["out"] = model.loss(activations.pop(model.LAYERS))

    for layer in reversed(range(model.LAYERS)):
        if layer and layer not in activations:
            await gather(layer - 1)
            forward(layer - 1)
        await gather(layer)
        inp = activations.pop(layer) if layer else model.get_activation([model.rank])
        grad_weights[layer], grad_activations["out"] = model.backward(
            layer, inp, grad_activations["out"], weights[layer]
        )
        weights[layer] = weights[layer].shard(model.rank, model.RANKS)
        grad_weights[layer] = await model.scatterreduce(grad_weights[layer], layer)
        weights[layer], opt_states[layer] = model.update(
            layer, grad_weights.pop(layer), weights[layer], opt_states[layer]
        )
        model.set_final_weight(layer, weights[layer])
    return model
