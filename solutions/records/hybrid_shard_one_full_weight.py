"""Sharding in which at most one weight is full at a time, and the last layer's from its forward to its backward.

The model's input is dropped after the first forward and taken again, which makes room for the full weight.
"""

from lib import Model

SHARDED_OVER = None
"""The axis of the mesh whose ranks share a model; None for all ranks."""

VARIANTS = {
    # The least memory; every gather crosses between machines, if there are several.
    "over_all_ranks": {"SHARDED_OVER": None},
    # Gathers stay within a machine, at the price of larger shards, and of an all-reduce of each between the machines.
    "within_a_machine": {"SHARDED_OVER": "shard"},
}


async def hybrid_shard(model: Model) -> Model:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()
    ranks = model.axis(SHARDED_OVER) if SHARDED_OVER else range(model.RANKS)

    for layer in range(model.LAYERS):
        weights[layer], opt_states[layer] = model.load_weights(layer, ranks.index(model.rank), len(ranks))
    activations[0] = model.get_activation([model.rank])

    for layer in range(model.LAYERS):
        weights["full"] = await model.allgather(weights[layer], layer, group=SHARDED_OVER)
        activations[layer + 1] = model.forward(layer, activations[layer], weights["full"])
        activations.pop(0, None)
        if layer < model.LAYERS - 1:
            del weights["full"]
    grad_activations[model.LAYERS] = model.loss(activations.pop(model.LAYERS))

    # A full gradient exists only between its backward and its reduce-scatter.
    for layer in reversed(range(model.LAYERS)):
        if "full" not in weights:
            weights["full"] = await model.allgather(weights[layer], layer, group=SHARDED_OVER)
        if layer == 0:
            activations[0] = model.get_activation([model.rank])
        grad_weights[layer], grad_activations[layer] = model.backward(
            layer, activations[layer], grad_activations[layer + 1], weights["full"]
        )
        del activations[layer], grad_activations[layer + 1], weights["full"]
        grad_weights[layer] = await model.scatterreduce(grad_weights[layer], layer, group=SHARDED_OVER)
    del grad_activations[0]

    for layer in range(model.LAYERS):
        if SHARDED_OVER:
            grad_weights[layer] = await model.allreduce(grad_weights[layer], layer, group="replica")
        weights[layer], opt_states[layer] = model.update(layer, grad_weights[layer], weights[layer], opt_states[layer])
        model.set_final_weight(layer, weights[layer])
    return model


fsdp_prefetch = hybrid_shard
"""A puzzle without machines: nothing is gathered ahead."""
