"""Tensor parallelism inside each machine, and ZeRO-1 between machines.

The two halves of an all-reduce between machines, with the update between them, send as much, and of the last half only
the start counts. Each optimizer state is in as many shards as there are ranks.
"""

from lib import Model


async def axis_inside(model: Model) -> Model:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()
    each = model.BATCHES // len(model.axis("machine"))
    gpu, gpus = model.index("gpu"), len(model.axis("gpu"))
    machine, machines = model.index("machine"), len(model.axis("machine"))
    mine_of_all = gpu * machines + machine, gpus * machines
    mine = range(model.index("machine") * each, (model.index("machine") + 1) * each)

    for layer in range(model.LAYERS):
        weights[layer], opt_states[layer] = model.load_weights(layer, gpu, gpus)
        opt_states[layer] = opt_states[layer].shard(*mine_of_all)
    activations[0] = model.get_activation(mine)

    for layer in range(model.LAYERS):
        activations["part"] = model.forward(layer, activations[layer], weights[layer])
        activations[layer + 1] = await model.allreduce(activations["part"], layer + 1, group="gpu")
        del activations["part"]
        if layer == 0:
            del activations[0]
    grad_activations[model.LAYERS - 1] = model.loss(activations[model.LAYERS])
    del activations[model.LAYERS]

    for layer in reversed(range(model.LAYERS)):
        if layer == 0:
            activations[0] = model.get_activation(mine)
        grad_weights[layer], grad_activations["part"] = model.backward(
            layer, activations[layer], grad_activations[layer], weights[layer]
        )
        del activations[layer], grad_activations[layer]
        if layer:  # nobody needs the gradient of the model's input
            grad_activations[layer - 1] = await model.allreduce(grad_activations["part"], layer - 1, group="gpu")
        del grad_activations["part"]

    for layer in range(model.LAYERS):
        grad_weights[layer] = await model.scatterreduce(grad_weights[layer], layer, group="machine")
        weights[layer] = weights[layer].shard(*mine_of_all)
        weights[layer], opt_states[layer] = model.update(layer, grad_weights[layer], weights[layer], opt_states[layer])
        del grad_weights[layer]
        weights[layer] = await model.allgather(weights[layer], layer, group="machine")
        model.set_final_weight(layer, weights[layer])
    return model
