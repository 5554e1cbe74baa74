"""A rank for each stage of each batch: forward each goes alone, backward the gradient is handed down the stages.

Computing the layers before one's own again takes no longer than waiting for their output, and saves the messages. The
ranks of a stage share its optimizer state and keep its weights whole. While lower stages work they reduce their own
gradients, in messages; only the lowest stage, for which everybody waits, calls for a collective. The stages are
LAYERS * BATCHES / RANKS layers deep: one at the size of the puzzle.

Each backward there holds the whole weight, its two inputs and the rank's share of the optimizer state, nothing else.
And no schedule at all is faster than two steps for each layer and one reduction (8.3); three messages make the rest.
"""

from lib import Model


async def pipeline_fsdp(model: Model) -> Model:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()
    depth = model.LAYERS * model.BATCHES // model.RANKS
    stage, batch = divmod(model.rank, model.BATCHES)
    mine = range(stage * depth, (stage + 1) * depth)
    last = mine[-1] == model.LAYERS - 1

    def keep_part(storage, layer):
        storage[layer] = storage[layer].shard(batch, model.BATCHES)

    # A weight below one's own stage is read, used, and forgotten; its optimizer state is others' to keep.
    for layer in range(mine[-1] + 1):
        weights[layer], opt_state = model.load_weights(layer)
        if layer in mine:
            opt_states[layer] = opt_state
            keep_part(opt_states, layer)
        if layer < mine[-1] or last:
            inp = activations[layer] if layer else model.get_activation([batch])
            activations[layer + 1] = model.forward(layer, inp, weights[layer])
        if layer not in mine:
            del weights[layer]
            activations.pop(layer, None)

    if last:
        grad_activations["out"] = model.loss(activations.pop(model.LAYERS))
    else:
        grad_activations["out"] = await model.receive(model.rank + model.BATCHES)
    for layer in reversed(mine):
        inp = activations.pop(layer) if layer else model.get_activation([batch])
        grad_weights[layer], grad_activations["out"] = model.backward(
            layer, inp, grad_activations["out"], weights[layer]
        )
        keep_part(weights, layer)
    if stage:
        await model.pass_to(model.rank - model.BATCHES, grad_activations["out"])
    del grad_activations["out"]

    # Reduce-scatter among the ranks of a stage: a part for each of the others, and theirs for this one.
    for layer in mine if stage else ():
        for step in range(1, model.BATCHES):
            to = (batch + step) % model.BATCHES
            await model.pass_to(stage * model.BATCHES + to, grad_weights[layer].shard(to, model.BATCHES))
        keep_part(grad_weights, layer)
        for step in range(1, model.BATCHES):
            source = stage * model.BATCHES + (batch - step) % model.BATCHES
            grad_weights[layer] = grad_weights[layer] + await model.receive(source)

    # Ranks above the lowest stage bring a zero and ignore the sum.
    for layer in reversed(range(depth)):
        total = await model.allreduce(model.fake_grad(layer, []) if stage else grad_weights[layer], layer)
        if not stage:
            grad_weights[layer] = total
            keep_part(grad_weights, layer)

    for layer in mine:
        weights[layer], opt_states[layer] = model.update(
            layer, grad_weights.pop(layer), weights[layer], opt_states[layer]
        )
        model.set_final_weight(layer, weights[layer])
    return model
