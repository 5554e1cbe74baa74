"""DDP with buckets of four layers: large enough for few calls, and small enough to hide behind backward."""

from lib import Model

SIZE = 4


async def bucket_size(model: Model) -> Model:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()

    for layer in range(model.LAYERS):
        weights[layer], opt_states[layer] = model.load_weights(layer)
    activations[0] = model.get_activation([model.rank])

    for layer in range(model.LAYERS):
        activations[layer + 1] = model.forward(layer, activations[layer], weights[layer])
    grad_activations[model.LAYERS] = model.loss(activations[model.LAYERS])
    del activations[model.LAYERS]

    sums = []
    for layer in reversed(range(model.LAYERS)):
        grad_weights[layer], grad_activations[layer] = model.backward(
            layer, activations[layer], grad_activations[layer + 1], weights[layer]
        )
        del activations[layer], grad_activations[layer + 1]
        if len(grad_weights) == SIZE or layer == 0:
            bucket = list(grad_weights)
            sums.append((bucket, model.allreduce([grad_weights.pop(one) for one in bucket], bucket)))
    del grad_activations[0]

    for bucket, total in sums:
        grad_weights.update(zip(bucket, await total))
        for layer in bucket:
            weights[layer], opt_states[layer] = model.update(
                layer, grad_weights.pop(layer), weights[layer], opt_states[layer]
            )
            model.set_final_weight(layer, weights[layer])
    return model
