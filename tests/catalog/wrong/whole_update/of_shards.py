# whole_update: rule
"""Wrong: every rank updates a shard of each matrix."""

from lib import Model


def owners(kinds, sizes, ranks):
    """The rank that updates each layer: the longest update first, to the rank with the least so far. In the order in
    which the updates end."""
    loads, of, ends = [0] * ranks, {}, {}
    for layer in sorted(range(len(kinds)), key=lambda layer: -sizes[kinds[layer]]):
        of[layer] = loads.index(min(loads))
        loads[of[layer]] += sizes[kinds[layer]]
        ends[layer] = loads[of[layer]]
    return {layer: of[layer] for layer in sorted(of, key=ends.get)}


async def whole_update(model: Model) -> Model:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()
    setting = model.dist.setting
    ticks = {name: kind.ticks["update"] for name, kind in setting.costs.kinds.items()}
    owner = owners(setting.kinds, ticks, model.RANKS)
    summing, sending = {}, {}

    for layer in range(model.LAYERS):
        weights[layer], state = model.load_weights(layer)
        if layer in owner:
            opt_states[layer] = state
    del state

    async def summed(layer):
        total = await summing.pop(layer)
        del grad_weights[layer]
        grad_weights[layer] = total

    activations[0] = model.get_activation(range(model.rank, model.BATCHES, model.RANKS))
    for layer in range(model.LAYERS):
        activations[layer + 1] = model.forward(layer, activations[layer], weights[layer])
    grad_activations[model.LAYERS] = model.loss(activations.pop(model.LAYERS))
    for layer in reversed(range(model.LAYERS)):
        grad_weights[layer], grad_activations[layer] = model.backward(
            layer, activations.pop(layer), grad_activations.pop(layer + 1), weights[layer]
        )
        if layer + 1 in summing:
            await summed(layer + 1)
        summing[layer] = model.scatterreduce(grad_weights[layer], layer)
    del grad_activations[0]
    await summed(0)

    for layer in owner:
        old, state = (value.pop(layer).shard(model.rank, model.RANKS) for value in (weights, opt_states))
        new, opt_states[layer] = model.update(layer, grad_weights.pop(layer), old, state)
        sending[layer] = model.allgather(new, layer)
    for layer in owner:
        weights[layer] = await sending.pop(layer)
        model.set_final_weight(layer, weights[layer])
    return model
