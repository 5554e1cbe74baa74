"""DDP with overlap: gradients are summed in buckets of two layers while backward goes on with the next layers."""

from lib import Model


async def ddp_overlap(model: Model) -> Model:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()

    for layer in range(model.LAYERS):
        weights[layer], opt_states[layer] = model.load_weights(layer)
    activations[0] = model.get_activation([model.rank])

    for layer in range(model.LAYERS):
        activations[layer + 1] = model.forward(layer, activations[layer], weights[layer])
    grad_activations[model.LAYERS] = model.loss(activations[model.LAYERS])
    del activations[model.LAYERS]

    bucket, sums = [], []
    for layer in reversed(range(model.LAYERS)):
        grad_weights[layer], grad_activations[layer] = model.backward(
            layer, activations[layer], grad_activations[layer + 1], weights[layer]
        )
        del activations[layer], grad_activations[layer + 1]
        bucket.append(layer)
        if len(bucket) == 2 or layer == 0:
            sums.append((bucket, model.allreduce([grad_weights.pop(i) for i in bucket], bucket)))
            bucket = []
    del grad_activations[0]

    for bucket, handle in sums:
        grad_weights.update(zip(bucket, await handle))
        for layer in bucket:
            weights[layer], opt_states[layer] = model.update(
                layer, grad_weights.pop(layer), weights[layer], opt_states[layer]
            )
            model.set_final_weight(layer, weights[layer])
    return model
