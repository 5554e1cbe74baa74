"""GPipe: pipeline stages fed one microbatch at a time, so that all ranks work most of the time."""

from lib import Model


async def gpipe(model: Model) -> Model:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()
    depth = model.LAYERS // model.RANKS
    stage = range(model.rank * depth, (model.rank + 1) * depth)
    first, last = model.rank == 0, model.rank == model.RANKS - 1

    for layer in stage:
        weights[layer], opt_states[layer] = model.load_weights(layer)

    for batch in range(model.BATCHES):
        activations[stage[0], batch] = model.get_activation([batch]) if first else await model.receive()
        for layer in stage:
            activations[layer + 1, batch] = model.forward(layer, activations[layer, batch], weights[layer])
        if not last:
            await model.pass_to(model.rank + 1, activations[stage[-1] + 1, batch])

    for batch in range(model.BATCHES):
        if last:
            grad_activations[stage[-1] + 1, batch] = model.loss(activations[stage[-1] + 1, batch])
        else:
            grad_activations[stage[-1] + 1, batch] = await model.receive()
        for layer in reversed(stage):
            grad_weights[layer, batch], grad_activations[layer, batch] = model.backward(
                layer, activations[layer, batch], grad_activations[layer + 1, batch], weights[layer]
            )
            del activations[layer, batch], grad_activations[layer + 1, batch]
        if not first:
            await model.pass_to(model.rank - 1, grad_activations[stage[0], batch])

    for layer in stage:
        for batch in range(model.BATCHES):
            grad = grad_weights.pop((layer, batch))
            grad_weights[layer] = grad_weights[layer] + grad if layer in grad_weights else grad
        weights[layer], opt_states[layer] = model.update(layer, grad_weights[layer], weights[layer], opt_states[layer])
        model.set_final_weight(layer, weights[layer])
    return model
