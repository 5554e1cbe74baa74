"""FSDP that keeps the weights of the last layers full from forward to backward, so that each is gathered once.

The backward of the last layer starts right after its forward, so deleting that weight would only mean gathering it
again. While a weight is full, it replaces the rank's own shard, which is cut from it after the backward. Memory peaks
at the first backward: the full weights, shards of everything else, and all inputs except that of layer 0, which is
loaded again. Each further layer that stays full saves a gather, 0.3 timesteps, and at the peak takes the memory of a
weight without the rank's own shard.
"""

from lib import Model

FULL = 1
"""How many layers, counted from the last, keep their full weight from forward to backward."""

ALL_REDUCE = False
"""Whether gradients are all-reduced, and the shard is cut from the sum, instead of reduce-scattered."""

VARIANTS = {
    # The least memory without recomputation: one full weight at the peak.
    "last_layer": {"FULL": 1, "ALL_REDUCE": False},
    # One gather less and one full weight more than `last_layer`.
    "last_two_layers": {"FULL": 2, "ALL_REDUCE": False},
    # Two gathers less and two full weights more than `last_layer`.
    "last_three_layers": {"FULL": 3, "ALL_REDUCE": False},
    # Three gathers less and three full weights more than `last_layer`.
    "last_four_layers": {"FULL": 4, "ALL_REDUCE": False},
    # The minimum time with a shard of every layer on every rank: one gather, one reduction and one update per layer.
    "every_layer_all_reduced": {"FULL": 6, "ALL_REDUCE": True},
}


async def fsdp(model: Model) -> Model:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()
    full = range(model.LAYERS - FULL, model.LAYERS)

    def my_shard(value):
        return value.shard(model.rank, model.RANKS)

    for layer in range(model.LAYERS):
        weights[layer], opt_states[layer] = model.load_weights(layer, model.rank, model.RANKS)

    for layer in range(model.LAYERS):
        weights[layer] = await model.allgather(weights[layer], layer)
        inp = activations[layer] if layer else model.get_activation([model.rank])
        activations[layer + 1] = model.forward(layer, inp, weights[layer])
        if layer not in full:
            weights[layer] = my_shard(weights[layer])
    grad_activations["out"] = model.loss(activations.pop(model.LAYERS))

    for layer in reversed(range(model.LAYERS)):
        if layer not in full:
            weights[layer] = await model.allgather(weights[layer], layer)
        inp = activations.pop(layer) if layer else model.get_activation([model.rank])
        grad_weights[layer], grad_activations["out"] = model.backward(
            layer, inp, grad_activations["out"], weights[layer]
        )
        weights[layer] = my_shard(weights[layer])
        if ALL_REDUCE:
            grad_weights[layer] = my_shard(await model.allreduce(grad_weights[layer], layer))
        else:
            grad_weights[layer] = await model.scatterreduce(grad_weights[layer], layer)

        # All ranks update at the same time, so no rank waits for it.
        weights[layer], opt_states[layer] = model.update(
            layer, grad_weights.pop(layer), weights[layer], opt_states[layer]
        )
        model.set_final_weight(layer, weights[layer])
    return model


wsdp = fsdp
"""A puzzle of the same size."""
