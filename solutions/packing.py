"""Longest first, by time: a sequence's time has a part that grows with its tokens, and one with their square."""

from lib import Model


def dealt(lengths, ticks, ranks):
    """The sequences of each rank."""
    shares = [[] for _ in range(ranks)]
    ends = [0] * ranks
    for batch in sorted(range(len(lengths)), key=lambda batch: -lengths[batch]):
        first = ends.index(min(ends))
        shares[first].append(batch)
        ends[first] += ticks["keys"] * lengths[batch] + ticks["attend"] * lengths[batch] ** 2
    return shares


async def packing(model: Model) -> Model:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()
    setting = model.dist.setting
    pending = {}

    for layer in range(model.LAYERS):
        weights[layer], opt_states[layer] = model.load_weights(layer)

    mine = dealt(setting.lengths, setting.costs.ticks, model.RANKS)[model.rank]
    for batch in mine:
        activations[0] = model.get_activation([batch])
        for layer in range(model.LAYERS):
            activations["keys", layer] = model.keys(layer, activations[layer], weights[layer])
            activations[layer + 1] = model.attend(layer, activations[layer], [activations["keys", layer]])
        grad_activations[model.LAYERS] = model.loss(activations[model.LAYERS])
        del activations[model.LAYERS]
        for layer in reversed(range(model.LAYERS)):
            grad_activations["through"], (grad_activations["keys"],) = model.attend_backward(
                layer, activations[layer], [activations.pop(("keys", layer))], grad_activations.pop(layer + 1)
            )
            grad_weight, grad_activations[layer] = model.keys_backward(
                layer,
                activations.pop(layer),
                grad_activations.pop("keys"),
                weights[layer],
                grad_activations.pop("through"),
            )
            grad_weights[layer] = grad_weights[layer] + grad_weight if layer in grad_weights else grad_weight
            if batch == mine[-1]:
                pending[layer] = model.allreduce(grad_weights.pop(layer), layer)
        del grad_activations[0]

    for layer in range(model.LAYERS):
        grad_weights[layer] = await pending.pop(layer)
        weights[layer], opt_states[layer] = model.update(
            layer, grad_weights.pop(layer), weights[layer], opt_states[layer]
        )
        model.set_final_weight(layer, weights[layer])
    return model
