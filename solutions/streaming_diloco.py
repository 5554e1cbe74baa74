"""Streaming DiLoCo: in each step the copies of one layer are averaged, and all ranks compute on meanwhile."""

from lib import Model


async def streaming_diloco(model: Model) -> Model:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()
    setting, last = model.dist.setting, model.LAYERS - 1
    summing = {}  # by layer: the handle of the all-reduce of its outer gradient

    async def average(layer: int) -> None:
        """Awaits the changes of all copies of a layer, and makes its next agreed weight."""
        total = await summing.pop(layer)
        before, state = weights.pop(("agreed", layer)), opt_states.pop(("outer", layer))
        weights["agreed", layer], opt_states["outer", layer] = model.outer_update(layer, before, total, state)

    for layer in range(model.LAYERS):
        weights[layer], opt_states[layer], opt_states["outer", layer] = model.load_weights(layer, outer=True)
        weights["agreed", layer] = weights[layer]

    for step in range(setting.steps):
        activations[0] = model.get_activation([model.rank], step)
        for layer in range(model.LAYERS):
            if layer in summing:
                await average(layer)
                weights[layer] = model.merge(layer, weights[layer], weights["agreed", layer])
            activations[layer + 1] = model.forward(layer, activations[layer], weights[layer])
        grad_activations[model.LAYERS] = model.loss(activations.pop(model.LAYERS))

        for layer in reversed(range(model.LAYERS)):
            grad_weights[layer], grad_activations[layer] = model.backward(
                layer, activations.pop(layer), grad_activations.pop(layer + 1), weights[layer]
            )
            weights[layer], opt_states[layer] = model.update(
                layer, grad_weights.pop(layer), weights[layer], opt_states[layer]
            )
            if layer == last:  # early in the backward, so that the all-reduce ends as the next step begins
                for turn in range(last - step % setting.outer, -1, -setting.outer):
                    change = model.delta(turn, weights["agreed", turn], weights[turn])
                    summing[turn] = model.allreduce(change, turn)
                    del change
        del grad_activations[0]

    for layer in [*summing]:
        await average(layer)
    for layer in range(model.LAYERS):
        model.set_final_weight(layer, weights["agreed", layer])
        model.set_final_copy(layer, weights[layer])
    return model
