"""FSDP instead of a pipeline, with no activation kept at all: each is computed from the input when its backward comes.

Four ranks that work all the time have hours to spare against a pipeline in which one works and three wait. They spend
them on memory: each backward holds a whole weight, its two inputs, and of everything else a RANKS-th part. While all
ranks are in a backward they cannot hold less, because the rest of the model has to be somewhere.
"""

from lib import Model


async def pipeline(model: Model) -> Model:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()
    last = model.LAYERS - 1

    def keep_shard(layer):
        weights[layer] = weights[layer].shard(model.rank, model.RANKS)

    # Forward once, to load every layer and to come by the loss.
    activations["in"] = model.get_activation([model.rank])
    for layer in range(model.LAYERS):
        weights[layer], opt_state = model.load_weights(layer)
        opt_states[layer] = opt_state.shard(model.rank, model.RANKS)
        if layer != last:
            activations["in"] = model.forward(layer, activations["in"], weights[layer])
            keep_shard(layer)
    grad_activations["out"] = model.loss(model.forward(last, activations["in"], weights[last]))

    # The last layer's input and weight are still there: its backward comes first.
    for layer in reversed(range(model.LAYERS)):
        if layer != last:
            activations["in"] = model.get_activation([model.rank])
            for below in range(layer):
                weights[below] = await model.allgather(weights[below], below)
                activations["in"] = model.forward(below, activations["in"], weights[below])
                keep_shard(below)
            weights[layer] = await model.allgather(weights[layer], layer)
        grad_weights[layer], grad_activations["out"] = model.backward(
            layer, activations.pop("in"), grad_activations["out"], weights[layer]
        )
        keep_shard(layer)
        grad_weights[layer] = await model.scatterreduce(grad_weights[layer], layer)
        weights[layer], opt_states[layer] = model.update(
            layer, grad_weights.pop(layer), weights[layer], opt_states[layer]
        )
        model.set_final_weight(layer, weights[layer])
    return model
