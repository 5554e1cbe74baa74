"""Four ranks compute, and twelve hold the model: no rank has both a batch and a share of the upper layers.

A stage of a pipeline waits most of the time, and holds its share of the model all the while. Here one rank of each
four takes the batch through all layers, and the others own a layer each, which they send whole, just before it is
needed (parameter servers, Li et al. 2014, "Scaling distributed machine learning with the parameter server"). Layer 0
is sharded over all ranks: a gather brings it to everybody at once at the start, and its update at the end is the only
one that somebody waits for.
"""

from lib import Model

GROUP = 4


async def pipeline_fsdp(model: Model) -> Model:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()
    last = model.LAYERS - 1
    batch, computes = model.rank // GROUP, model.rank % GROUP == 0
    workers = range(0, model.RANKS, GROUP)
    helpers = [rank for rank in range(model.RANKS) if rank not in workers]

    def owner(layer):
        return helpers[layer % len(helpers)]

    mine = [layer for layer in range(1, model.LAYERS) if owner(layer) == model.rank]
    weights[0], opt_states[0] = model.load_weights(0, model.rank, model.RANKS)
    for layer in mine:
        weights[layer], opt_states[layer] = model.load_weights(layer)

    async def fetch(layer):
        if layer:
            weights[layer] = await model.receive(owner(layer))
        else:
            weights[0] = await model.allgather(weights[0], 0)

    def forget(layer):
        if layer:
            del weights[layer]
        else:
            weights[0] = weights[0].shard(model.rank, model.RANKS)

    async def reduce(layer):
        """Sums a gradient over all ranks; who does not hold the layer forgets it."""
        if not computes:
            grad_weights[layer] = model.fake_grad(layer, [])
        combine = model.allreduce if layer else model.scatterreduce
        grad_weights[layer] = await combine(grad_weights[layer], layer)
        if layer and layer not in mine:
            del grad_weights[layer]

    def update():
        for layer in list(grad_weights):
            weights[layer], opt_states[layer] = model.update(
                layer, grad_weights.pop(layer), weights[layer], opt_states[layer]
            )
            model.set_final_weight(layer, weights[layer])

    if computes:
        for layer in range(model.LAYERS):
            await fetch(layer)
            inp = activations[layer] if layer else model.get_activation([batch])
            activations[layer + 1] = model.forward(layer, inp, weights[layer])
            if layer != last:
                forget(layer)
        grad_activations["out"] = model.loss(activations.pop(model.LAYERS))
    else:
        await fetch(0)
        forget(0)
        for layer in mine:
            # Once for forward and once for backward, but the last layer stays between the two.
            for worker in [*workers] * (1 if layer == last else 2):
                await model.pass_to(worker, weights[layer])

    for layer in reversed(range(model.LAYERS)):
        if layer == 0 or (computes and layer != last):
            await fetch(layer)
        if computes:
            inp = activations.pop(layer) if layer else model.get_activation([batch])
            grad_weights[layer], grad_activations["out"] = model.backward(
                layer, inp, grad_activations["out"], weights[layer]
            )
            del inp
        if layer == 0:
            grad_activations.clear()
        if layer == 0 or computes:
            forget(layer)
        if not computes:
            update()  # of the layer above, while the others are at work
        await reduce(layer)
    update()
    return model
