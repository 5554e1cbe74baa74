"""Tensor parallelism in place of sequence parallelism: activations stay full between layers, so none is gathered.

It takes the least time and the most memory. The model's input is dropped after its forward, and taken again for its
backward; the gradient of the model's input is not summed.
"""

from lib import Model


async def sequence_parallel(model: Model) -> Model:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()
    batches = range(model.BATCHES)
    for layer in range(model.LAYERS):
        weights[layer], opt_states[layer] = model.load_weights(layer, model.rank, model.RANKS)

    for layer in range(model.LAYERS):
        inp = activations[layer] if layer else model.get_activation(batches)
        part = model.forward(layer, inp, weights[layer])
        del inp
        activations[layer + 1] = await model.allreduce(part, layer + 1)

    grad_activations[model.LAYERS - 1] = model.loss(activations.pop(model.LAYERS))
    for layer in reversed(range(model.LAYERS)):
        inp = activations.pop(layer) if layer else model.get_activation(batches)
        grad_weights[layer], part = model.backward(layer, inp, grad_activations.pop(layer), weights[layer])
        if layer:
            grad_activations[layer - 1] = await model.allreduce(part, layer - 1)
        weights[layer], opt_states[layer] = model.update(
            layer, grad_weights.pop(layer), weights[layer], opt_states[layer]
        )
        model.set_final_weight(layer, weights[layer])
    return model
