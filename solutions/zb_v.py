"""ZB-V: the layers go down the ranks and up again, so that the first rank has the first and the last one."""

from lib import Model


async def zb_v(model: Model) -> Model:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()
    me, ranks = model.rank, model.RANKS
    down, up = my_layers = me, model.LAYERS - 1 - me
    for layer in my_layers:
        weights[layer], opt_states[layer] = model.load_weights(layer)

    def owner(layer):
        return min(layer, model.LAYERS - 1 - layer)

    async def hand_on(storage, layer, batch, value, tag):
        if owner(layer) == me:
            storage[layer, batch] = value
        else:
            await model.pass_to(owner(layer), value, tag)

    async def take(storage, layer, batch, source, tag):
        if (layer, batch) not in storage:
            storage[layer, batch] = await model.receive(owner(source), tag)

    # Two streams go from a rank to the next one: activations of `down`, and gradients of `up`. Tags keep them apart.
    async def forward(layer):
        batch = begun[layer]
        begun[layer] += 1
        tag = int(layer == up)
        if layer == 0:
            activations[layer, batch] = model.get_activation([batch])
        await take(activations, layer, batch, layer - 1, tag)
        out = model.forward(layer, activations[layer, batch], weights[layer])
        if layer == model.LAYERS - 1:
            grad_activations[layer, batch] = model.loss(out)
        else:
            await hand_on(activations, layer + 1, batch, out, tag)

    async def backward_input(layer):
        batch = returned[layer]
        returned[layer] += 1
        tag = int(layer == up)
        await take(grad_activations, layer, batch, layer + 1, tag)
        grad_in = model.backward_input(layer, activations[layer, batch], grad_activations[layer, batch], weights[layer])
        if layer:
            await hand_on(grad_activations, layer - 1, batch, grad_in, tag)

    def backward_weight(layer):
        batch = done[layer]
        done[layer] += 1
        inp, grad_out = activations.pop((layer, batch)), grad_activations.pop((layer, batch))
        grad = model.backward_weight(layer, inp, grad_out)
        grad_weights[layer] = grad_weights[layer] + grad if layer in grad_weights else grad

    begun, returned, done = ({down: 0, up: 0} for _ in range(3))
    m = model.BATCHES
    for _ in range(2 * (ranks - me) - 1):
        await forward(down)
    for _ in range(me):
        await forward(up)
        await forward(down)
    for _ in range(ranks - me):
        await forward(up)
        await backward_input(up)
        backward_weight(up)
    while begun[up] < m:
        if begun[down] < m:
            await forward(down)
        await backward_input(down)
        backward_weight(down)
        await forward(up)
        await backward_input(up)
        backward_weight(up)
    for _ in range(me):
        await backward_input(down)
        await backward_input(up)
    for _ in range(ranks - me):
        await backward_input(down)
        backward_weight(down)
    while done[up] < m:
        backward_weight(up)
    while done[down] < m:
        backward_weight(down)

    for layer in my_layers:
        weights[layer], opt_states[layer] = model.update(layer, grad_weights[layer], weights[layer], opt_states[layer])
        model.set_final_weight(layer, weights[layer])
    return model
