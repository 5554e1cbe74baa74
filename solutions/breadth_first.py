"""Breadth-first: all batches go through one chunk before the next one, so that few weights have to be gathered."""

from lib import Model


async def breadth_first(model: Model) -> Model:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()
    stage, replica = model.index("pp"), model.index("dp")
    pipeline, replicas = model.axis("pp"), len(model.axis("dp"))
    before, after = pipeline[stage - 1], pipeline[(stage + 1) % len(pipeline)]
    my_layers = range(stage, model.LAYERS, len(pipeline))
    my_batches = range(replica, model.BATCHES, replicas)
    for layer in my_layers:
        weights[layer], opt_states[layer] = model.load_weights(layer, replica, replicas)

    def tag(layer, batch):
        return layer * model.BATCHES + batch

    async def forward(layer, batch):
        if layer == 0:
            activations[layer, batch] = model.get_activation([batch])
        else:
            activations[layer, batch] = await model.receive(before, tag(layer, batch))
        out = model.forward(layer, activations[layer, batch], weights["full"])
        if layer == model.LAYERS - 1:
            grad_activations[layer, batch] = model.loss(out)
        else:
            await model.pass_to(after, out, tag(layer + 1, batch))

    async def backward(layer, batch):
        if layer < model.LAYERS - 1:
            grad_activations[layer, batch] = await model.receive(after, tag(layer, batch))
        inp, grad_out = activations.pop((layer, batch)), grad_activations.pop((layer, batch))
        grad, grad_in = model.backward(layer, inp, grad_out, weights["full"])
        grad_weights[layer] = grad_weights[layer] + grad if layer in grad_weights else grad
        if layer > 0:
            await model.pass_to(before, grad_in, tag(layer - 1, batch))

    for layer in my_layers:
        weights["full"] = await model.allgather(weights[layer], layer, group="dp")
        for batch in my_batches:
            await forward(layer, batch)
        if layer != my_layers[-1]:
            del weights["full"]

    for layer in reversed(my_layers):
        if "full" not in weights:
            weights["full"] = await model.allgather(weights[layer], layer, group="dp")
        for batch in my_batches:
            await backward(layer, batch)
        del weights["full"]
        grad_weights[layer] = await model.scatterreduce(grad_weights[layer], layer, group="dp")

    for layer in my_layers:
        weights[layer], opt_states[layer] = model.update(layer, grad_weights[layer], weights[layer], opt_states[layer])
        model.set_final_weight(layer, weights[layer])
    return model
