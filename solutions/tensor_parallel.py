"""Tensor parallelism: every rank computes a quarter of every block, and all ranks add up what they get."""

from lib import Model


async def tensor_parallel(model: Model) -> Model:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()
    for layer in range(model.LAYERS):
        weights[layer], opt_states[layer] = model.load_weights(layer, model.rank, model.RANKS)

    activations[0] = model.get_activation(range(model.BATCHES))
    for layer in range(model.LAYERS):
        part = model.forward(layer, activations[layer], weights[layer])
        activations[layer + 1] = await model.allreduce(part, layer + 1)

    grad_activations[model.LAYERS - 1] = model.loss(activations.pop(model.LAYERS))
    for layer in reversed(range(model.LAYERS)):
        grad_weights[layer], part = model.backward(
            layer, activations.pop(layer), grad_activations.pop(layer), weights[layer]
        )
        grad_activations[layer - 1] = await model.allreduce(part, layer - 1)
        weights[layer], opt_states[layer] = model.update(
            layer, grad_weights.pop(layer), weights[layer], opt_states[layer]
        )
        model.set_final_weight(layer, weights[layer])
    return model
