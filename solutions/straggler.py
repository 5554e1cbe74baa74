"""Longest first: each microbatch goes to the rank that would end first with it, so that all end together."""

from lib import Model


def dealt(lengths, slow, ranks):
    """The microbatches of each rank."""
    shares = [[] for _ in range(ranks)]
    ends = [0] * ranks
    for batch in sorted(range(len(lengths)), key=lambda batch: -lengths[batch]):
        first = min(range(ranks), key=lambda rank: ends[rank] + lengths[batch] * slow.get(rank, 1))
        shares[first].append(batch)
        ends[first] += lengths[batch] * slow.get(first, 1)
    return shares


async def straggler(model: Model) -> Model:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()
    setting = model.dist.setting

    for layer in range(model.LAYERS):
        weights[layer], opt_states[layer] = model.load_weights(layer)
        grad_weights[layer] = model.fake_grad(layer, [])

    for batch in dealt(setting.lengths, setting.costs.slow, model.RANKS)[model.rank]:
        activations[0] = model.get_activation([batch])
        for layer in range(model.LAYERS):
            activations[layer + 1] = model.forward(layer, activations[layer], weights[layer])
        grad_activations[model.LAYERS] = model.loss(activations.pop(model.LAYERS))
        for layer in reversed(range(model.LAYERS)):
            grad, grad_activations[layer] = model.backward(
                layer, activations.pop(layer), grad_activations.pop(layer + 1), weights[layer]
            )
            grad_weights[layer] = grad_weights[layer] + grad
        del grad_activations[0]

    for layer in range(model.LAYERS):
        grad_weights[layer] = await model.allreduce(grad_weights[layer], layer)
        weights[layer], opt_states[layer] = model.update(
            layer, grad_weights.pop(layer), weights[layer], opt_states[layer]
        )
        model.set_final_weight(layer, weights[layer])
    return model
