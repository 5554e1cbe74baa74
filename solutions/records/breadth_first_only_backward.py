"""Depth-first forward with all weights whole, breadth-first backward: the ramp is short, and few gathers are needed.

Breadth-first keeps the inputs of all chunks before the first backward. Going forward depth-first, in groups of as many
batches as there are stages, the last stage can begin its backward while the others still go forward. A rank then keeps
the whole weights of its chunks; the shards are cut again from them. Backward is breadth-first: one gradient at a time
is whole. The first stage takes the model's input again.
"""

from lib import Model


async def breadth_first(model: Model) -> Model:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()
    stage, replica = model.index("pp"), model.index("dp")
    pipeline, replicas = model.axis("pp"), len(model.axis("dp"))
    stages, last = len(pipeline), stage == len(pipeline) - 1
    before, after = pipeline[stage - 1], pipeline[(stage + 1) % stages]
    my_layers = range(stage, model.LAYERS, stages)
    my_batches = range(replica, model.BATCHES, replicas)
    for layer in my_layers:
        weights[layer], opt_states[layer] = model.load_weights(layer, replica, replicas)

    def tag(layer, batch):
        return layer * model.BATCHES + batch

    async def gather(layer):
        if not weights[layer].is_complete():
            weights[layer] = await model.allgather(weights[layer], layer, group="dp")

    def cut(layer):
        if weights[layer].is_complete():
            weights[layer] = weights[layer].shard(replica, replicas)

    async def forward(layer, batch):
        await gather(layer)
        if layer == 0:
            inp = model.get_activation([batch])
        else:
            inp = activations[layer, batch] = await model.receive(before, tag(layer, batch))
        out = model.forward(layer, inp, weights[layer])
        if layer == model.LAYERS - 1:
            grad_activations[layer, batch] = model.loss(out)
            return
        await model.pass_to(after, out, tag(layer + 1, batch))

    async def backward(layer, batch):
        if layer < model.LAYERS - 1:
            grad_activations[layer, batch] = await model.receive(after, tag(layer, batch))
        inp = activations.pop((layer, batch)) if layer else model.get_activation([batch])
        grad, grad_in = model.backward(layer, inp, grad_activations.pop((layer, batch)), weights[layer])
        grad_weights[layer] = grad_weights[layer] + grad if layer in grad_weights else grad
        if layer:
            await model.pass_to(before, grad_in, tag(layer - 1, batch))

    if last:
        for layer in reversed(my_layers):
            await gather(layer)
    groups = [my_batches[start : start + stages] for start in range(0, len(my_batches), stages)]
    forwards = [(layer, batch) for group in groups for layer in my_layers for batch in group]
    late = forwards[-stages:] if last else []
    for layer, batch in forwards[: len(forwards) - len(late)]:
        await forward(layer, batch)

    for layer in reversed(my_layers):
        await gather(layer)
        for batch in my_batches:
            if (layer, batch) in late:
                await forward(layer, batch)
            await backward(layer, batch)
        cut(layer)
        if not last:
            grad_weights[layer] = await model.scatterreduce(grad_weights[layer], layer, group="dp")
    if last:
        for layer in my_layers:
            grad_weights[layer] = await model.scatterreduce(grad_weights[layer], layer, group="dp")

    for layer in my_layers:
        weights[layer], opt_states[layer] = model.update(layer, grad_weights[layer], weights[layer], opt_states[layer])
        model.set_final_weight(layer, weights[layer])
    return model
