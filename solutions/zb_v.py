"""ZB-V: the layers go down the ranks and up again, so that rank 0 has both the first layer and the last."""

from lib import Model


async def zb_v(model: Model) -> Model:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()
    me, ranks = model.rank, model.RANKS
    down, up = my_layers = me, model.LAYERS - 1 - me
    for layer in my_layers:
        weights[layer], opt_states[layer] = model.load_weights(layer)
    done = {(action, layer): 0 for action in "FIW" for layer in my_layers}  # how many batches

    def tag(layer, batch):
        return layer * model.BATCHES + batch

    def owner(layer):
        return min(layer, model.LAYERS - 1 - layer)

    async def hand_on(storage, layer, batch, value):
        """To the rank of a layer, which at the turn of the V is this one."""
        if owner(layer) == me:
            storage[layer, batch] = value
        else:
            await model.pass_to(owner(layer), value, tag(layer, batch))

    async def take(storage, layer, batch, source):
        if owner(source) != me:
            storage[layer, batch] = await model.receive(owner(source), tag(layer, batch))

    def next_batch(action, layer):
        done[action, layer] += 1
        return done[action, layer] - 1

    async def forward(layer):
        batch = next_batch("F", layer)
        if layer == 0:
            activations[layer, batch] = model.get_activation([batch])
        else:
            await take(activations, layer, batch, layer - 1)
        out = model.forward(layer, activations[layer, batch], weights[layer])
        if layer == model.LAYERS - 1:
            grad_activations[layer, batch] = model.loss(out)
        else:
            await hand_on(activations, layer + 1, batch, out)

    async def backward_input(layer):
        batch = next_batch("I", layer)
        if layer < model.LAYERS - 1:
            await take(grad_activations, layer, batch, layer + 1)
        grad_in = model.backward_input(layer, activations[layer, batch], grad_activations[layer, batch], weights[layer])
        if layer > 0:
            await hand_on(grad_activations, layer - 1, batch, grad_in)

    def backward_weight(layer):
        batch = next_batch("W", layer)
        inp, grad_out = activations.pop((layer, batch)), grad_activations.pop((layer, batch))
        grad = model.backward_weight(layer, inp, grad_out)
        grad_weights[layer] = grad_weights[layer] + grad if layer in grad_weights else grad

    # Fill the V: just as many batches that the first of them comes back when the last one has left.
    for _ in range(min(2 * (ranks - me) - 1, model.BATCHES)):
        await forward(down)
    for _ in range(me):
        await forward(up)
        if done["F", down] < model.BATCHES:
            await forward(down)
    for _ in range(ranks - me):
        await forward(up)
        await backward_input(up)
        backward_weight(up)
    # From here on, each of the two layers has one of everything in turn.
    while done["F", up] < model.BATCHES:
        if done["F", down] < model.BATCHES:
            await forward(down)
        await backward_input(down)
        backward_weight(down)
        await forward(up)
        await backward_input(up)
        backward_weight(up)
    # The ranks at the turn of the V are waited for: they send first, and compute weight gradients at the end.
    for _ in range(me):
        await backward_input(down)
        await backward_input(up)
    for _ in range(ranks - me):
        await backward_input(down)
        backward_weight(down)
    for layer in (up, down):
        while done["W", layer] < model.BATCHES:
            backward_weight(layer)

    for layer in my_layers:
        weights[layer], opt_states[layer] = model.update(layer, grad_weights[layer], weights[layer], opt_states[layer])
        model.set_final_weight(layer, weights[layer])
    return model
