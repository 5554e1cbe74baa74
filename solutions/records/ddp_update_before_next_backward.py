"""DDP in which each gradient is summed and used before the next backward makes another.

That costs no time: all ranks reach each all-reduce together, and the work is the same. A replicated model
cannot need less memory: right after the first backward a rank holds the model (8 units of one batch's
activation), the gradient of that layer (2) and the activation gradient for the previous layer (1).
"""

from lib import Model


async def ddp(model: Model) -> Model:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()

    # The input of layer 0 is not kept: loading it again is free.
    for layer in range(model.LAYERS):
        weights[layer], opt_states[layer] = model.load_weights(layer)
        inp = activations[layer] if layer else model.get_activation([model.rank])
        activations[layer + 1] = model.forward(layer, inp, weights[layer])
    grad_activations["out"] = model.loss(activations.pop(model.LAYERS))

    for layer in reversed(range(model.LAYERS)):
        inp = activations.pop(layer) if layer else model.get_activation([model.rank])
        grad_weights[layer], grad_activations["out"] = model.backward(
            layer, inp, grad_activations["out"], weights[layer]
        )
        # No layer before layer 0 needs its activation gradient.
        if layer == 0:
            del grad_activations["out"]
        grad_weights[layer] = await model.allreduce(grad_weights[layer], layer)
        weights[layer], opt_states[layer] = model.update(
            layer, grad_weights.pop(layer), weights[layer], opt_states[layer]
        )
        model.set_final_weight(layer, weights[layer])
    return model
