"""FSDP without prefetching: one whole weight at a time, and the model's input taken again. The least memory."""

from lib import Model


async def fsdp_prefetch(model: Model) -> Model:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()

    for layer in range(model.LAYERS):
        weights[layer], opt_states[layer] = model.load_weights(layer, model.rank, model.RANKS)
    activations[0] = model.get_activation([model.rank])

    for layer in range(model.LAYERS):
        weights["whole"] = await model.allgather(weights[layer], layer)
        activations[layer + 1] = model.forward(layer, activations[layer], weights["whole"])
        activations.pop(0, None)
        if layer < model.LAYERS - 1:
            del weights["whole"]
    grad_activations[model.LAYERS] = model.loss(activations.pop(model.LAYERS))

    # A full gradient exists only between its backward and its reduce-scatter.
    for layer in reversed(range(model.LAYERS)):
        if "whole" not in weights:
            weights["whole"] = await model.allgather(weights[layer], layer)
        if layer == 0:
            activations[0] = model.get_activation([model.rank])
        grad_weights[layer], grad_activations[layer] = model.backward(
            layer, activations[layer], grad_activations[layer + 1], weights["whole"]
        )
        del activations[layer], grad_activations[layer + 1], weights["whole"]
        grad_weights[layer] = await model.scatterreduce(grad_weights[layer], layer)
    del grad_activations[0]

    for layer in range(model.LAYERS):
        weights[layer], opt_states[layer] = model.update(layer, grad_weights[layer], weights[layer], opt_states[layer])
        model.set_final_weight(layer, weights[layer])
    return model
