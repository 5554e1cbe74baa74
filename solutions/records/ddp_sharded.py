"""Data parallelism in which each rank keeps a quarter of the sharded layers, and gathers every weight once.

With the weights full from their first forward to their backward there is one gather for each layer more than in plain
data parallelism. The optimizer states are in quarters throughout, and so are the weights after their backward.
"""

from lib import Model

REPLICATED = 0
"""How many layers, counted from the first, every rank keeps full."""

VARIANTS = {
    # A quarter of everything, for one gather for each layer.
    "every_layer": {"REPLICATED": 0},
    # A gather less. The replicated layer is the first: the peak is at the backward of the last, and a gradient that is
    # reduced to a shard there leaves room below.
    "above_the_first": {"REPLICATED": 1},
}


async def ddp(model: Model) -> Model:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()
    sharded = range(REPLICATED, model.LAYERS)

    for layer in range(model.LAYERS):
        part = (model.rank, model.RANKS) if layer in sharded else (0, 1)
        weights[layer], opt_states[layer] = model.load_weights(layer, *part)

    # The input of layer 0 is not kept: it costs nothing to read it again.
    for layer in range(model.LAYERS):
        if layer in sharded:
            weights[layer] = await model.allgather(weights[layer], layer)
        inp = activations[layer] if layer else model.get_activation([model.rank])
        activations[layer + 1] = model.forward(layer, inp, weights[layer])
    grad_activations["out"] = model.loss(activations.pop(model.LAYERS))

    for layer in reversed(range(model.LAYERS)):
        inp = activations.pop(layer) if layer else model.get_activation([model.rank])
        grad_weights[layer], grad_activations["out"] = model.backward(
            layer, inp, grad_activations["out"], weights[layer]
        )
        if layer in sharded:
            weights[layer] = weights[layer].shard(model.rank, model.RANKS)
            grad_weights[layer] = await model.scatterreduce(grad_weights[layer], layer)
        else:
            grad_weights[layer] = await model.allreduce(grad_weights[layer], layer)
        weights[layer], opt_states[layer] = model.update(
            layer, grad_weights.pop(layer), weights[layer], opt_states[layer]
        )
        model.set_final_weight(layer, weights[layer])
    return model
