"""FSDP that keeps every second activation and computes the others again (checkpointing, Chen et al. 2016).

The peak is at the first backward, when all activations are there: at six layers two of them are computed again, for
a step and a gather each. Updating a shard at once leaves nothing else that grows.
"""

from lib import Model


async def fsdp(model: Model) -> Model:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()
    last = model.LAYERS - 1

    def forward(layer):
        inp = activations[layer] if layer else model.get_activation([model.rank])
        activations[layer + 1] = model.forward(layer, inp, weights[layer])

    def keep_shard(layer):
        weights[layer] = weights[layer].shard(model.rank, model.RANKS)

    for layer in range(model.LAYERS):
        weights[layer], opt_state = model.load_weights(layer)
        opt_states[layer] = opt_state.shard(model.rank, model.RANKS)
        forward(layer)
        if layer != last:
            keep_shard(layer)
            if layer % 2:
                del activations[layer]
    grad_activations["out"] = model.loss(activations.pop(model.LAYERS))

    for layer in reversed(range(model.LAYERS)):
        if layer and layer not in activations:
            weights[layer - 1] = await model.allgather(weights[layer - 1], layer - 1)
            forward(layer - 1)
            # Layer 0 stays whole until its backward: so few activations are left that there is room.
            if layer > 1:
                keep_shard(layer - 1)
        if not weights[layer].is_complete():
            weights[layer] = await model.allgather(weights[layer], layer)
        inp = activations.pop(layer) if layer else model.get_activation([model.rank])
        grad_weights[layer], grad_activations["out"] = model.backward(
            layer, inp, grad_activations["out"], weights[layer]
        )
        keep_shard(layer)
        grad_weights[layer] = await model.scatterreduce(grad_weights[layer], layer)
        weights[layer], opt_states[layer] = model.update(
            layer, grad_weights.pop(layer), weights[layer], opt_states[layer]
        )
        model.set_final_weight(layer, weights[layer])
    return model
