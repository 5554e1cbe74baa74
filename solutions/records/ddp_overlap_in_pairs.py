"""DDP with overlap whose buckets hold the gradients of two layers each: half as many calls, and as fast."""

from lib import Model

BUCKET = 2


async def ddp_overlap(model: Model) -> Model:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()

    for layer in range(model.LAYERS):
        weights[layer], opt_states[layer] = model.load_weights(layer)
    activations[0] = model.get_activation([model.rank])

    for layer in range(model.LAYERS):
        activations[layer + 1] = model.forward(layer, activations[layer], weights[layer])
    grad_activations[model.LAYERS] = model.loss(activations.pop(model.LAYERS))

    sums = []
    for layer in reversed(range(model.LAYERS)):
        grad_weights[layer], grad_activations[layer] = model.backward(
            layer, activations[layer], grad_activations[layer + 1], weights[layer]
        )
        del activations[layer], grad_activations[layer + 1]
        if layer == 0:
            del grad_activations[0]
        if layer % BUCKET == 0:
            bucket = list(grad_weights)
            sums.append((bucket, model.allreduce([grad_weights.pop(layer) for layer in bucket], bucket)))

    for bucket, total in sums:
        grad_weights.update(zip(bucket, await total))
        for layer in bucket:
            new = model.update(layer, grad_weights.pop(layer), weights[layer], opt_states[layer])
            weights[layer], opt_states[layer] = new
            model.set_final_weight(layer, weights[layer])
    return model
