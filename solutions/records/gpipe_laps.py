"""A pipeline that each batch passes in laps: layers are dealt out in turn, and a timetable orders the work.

A rank waits for its first batch as long as the earlier stages take. With one layer per stage that is half as
long as with two (interleaved stages, Narayanan et al. 2021, "Efficient large-scale language model training",
section 2.2). The remaining half step behind the first batch is for the messages, which the timetable ignores.
"""

from lib import Model


async def gpipe(model: Model) -> Model:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()
    mine = range(model.rank, model.LAYERS, model.RANKS)
    above, below = (model.rank + 1) % model.RANKS, (model.rank - 1) % model.RANKS
    last = model.LAYERS - 1

    for layer in mine:
        weights[layer], opt_states[layer] = model.load_weights(layer)

    async def forward(layer, batch):
        # The input of layer 0 is not kept: loading it again is free.
        if layer:
            activations[layer, batch] = await model.receive(below)
        inp = activations[layer, batch] if layer else model.get_activation([batch])
        activations["out"] = model.forward(layer, inp, weights[layer])
        out = activations.pop("out")
        if layer == last:
            grad_activations[batch] = model.loss(out)
        else:
            await model.pass_to(above, out)

    async def backward(layer, batch):
        if layer != last:
            grad_activations[batch] = await model.receive(above)
        inp = activations.pop((layer, batch)) if layer else model.get_activation([batch])
        grad, grad_inp = model.backward(layer, inp, grad_activations.pop(batch), weights[layer])
        grad_weights[layer] = grad_weights[layer] + grad if layer in grad_weights else grad
        if layer:
            await model.pass_to(below, grad_inp)

        # The gradient is complete; use it before the rank's other layer continues.
        if batch == model.BATCHES - 1:
            weights[layer], opt_states[layer] = model.update(
                layer, grad_weights.pop(layer), weights[layer], opt_states[layer]
            )
            model.set_final_weight(layer, weights[layer])

    # In steps. At most RANKS batches go around together: more would only wait for each other.
    # If two are due at the same time, the forward goes first, because other ranks wait for it.
    timetable = []
    for batch in range(model.BATCHES):
        place = batch % model.RANKS
        departure = place + 0.5 * (place > 0) + batch // model.RANKS * 2 * model.LAYERS
        for layer in mine:
            timetable.append((departure + layer, 0, forward, layer, batch))
            timetable.append((departure + 2 * model.LAYERS - layer - 1, 1, backward, layer, batch))
    for *_, work, layer, batch in sorted(timetable, key=lambda entry: entry[:2]):
        await work(layer, batch)
    return model
