"""Data parallel training in groups of ranks."""

from __future__ import annotations

from typing import Any

from lib import Model


async def hybrid_shard(model: Model) -> None:
    """Weights in shards within an island, gradients summed between islands (FSDP's HYBRID_SHARD), each of whose ranks
    takes one microbatch."""
    await _hybrid(model, keep=False)


async def hybrid_shard_keeping_the_last(model: Model) -> None:
    """The same, and the last layer stays whole between its forward and its backward; the model's input is dropped and
    taken again."""
    await _hybrid(model, keep=True)


async def _hybrid(model: Model, keep: bool) -> None:
    weights, opt_states, inputs, grads, weight_grads = model.storage()
    place, of = model.index("shard"), len(model.axis("shard"))
    last = model.LAYERS - 1

    async def gather(layer: int) -> None:
        if "whole" not in weights:
            weights["whole"] = await model.allgather(weights[layer], layer, group="shard")

    for layer in range(model.LAYERS):
        weights[layer], opt_states[layer] = model.load_weights(layer, place, of)
    inputs[0] = model.get_activation([model.rank])
    for layer in range(model.LAYERS):
        await gather(layer)
        inputs[layer + 1] = model.forward(layer, inputs[layer], weights["whole"])
        if keep and layer == 0:
            del inputs[0]
        if not keep or layer < last:
            del weights["whole"]
    grads[0] = model.loss(inputs.pop(model.LAYERS))
    for layer in reversed(range(model.LAYERS)):
        await gather(layer)
        if keep and layer == 0:
            inputs[0] = model.get_activation([model.rank])
        weight_grads["whole"], grads[0] = model.backward(layer, inputs[layer], grads[0], weights.pop("whole"))
        del inputs[layer]
        weight_grads[layer] = await model.scatterreduce(weight_grads.pop("whole"), layer, group="shard")
    del grads[0]
    for layer in range(model.LAYERS):
        weight_grads[layer] = await model.allreduce(weight_grads[layer], layer, group="replica")
        new: Any = model.update(layer, weight_grads.pop(layer), weights[layer], opt_states[layer])
        weights[layer], opt_states[layer] = new
        model.set_final_weight(layer, weights[layer])
