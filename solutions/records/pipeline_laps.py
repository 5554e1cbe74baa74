"""A pipeline passed in laps, three batches close together: layers dealt out in turn, work by a timetable.

A rank waits for its first batch as long as the stages before it take: with one layer each, half of what two
take (interleaved stages, Narayanan et al. 2021, "Efficient large-scale language model training", section
2.2). And the input of a high layer waits for its backward for a short time only, so a batch under way takes
little memory. Three batches follow each other closely; the next sets out as the first begins its last lap.
"""

from lib import Model


async def pipeline(model: Model) -> Model:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()
    mine = range(model.rank, model.LAYERS, model.RANKS)
    above, below = (model.rank + 1) % model.RANKS, (model.rank - 1) % model.RANKS
    last = model.LAYERS - 1

    for layer in mine:
        weights[layer], opt_states[layer] = model.load_weights(layer)

    async def forward(layer, batch):
        # The input of layer 0 is not kept: it costs nothing to read it again.
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

        # Complete, and gone before the rank's other layer goes on.
        if batch == model.BATCHES - 1:
            weights[layer], opt_states[layer] = model.update(
                layer, grad_weights.pop(layer), weights[layer], opt_states[layer]
            )
            model.set_final_weight(layer, weights[layer])

    # In steps. Of two that are due at the same time the backward goes first: it frees memory.
    timetable = []
    for batch in range(model.BATCHES):
        departure = batch % 3 * 1.5 + batch // 3 * 10.5
        for layer in mine:
            timetable.append((departure + layer, 1, forward, layer, batch))
            timetable.append((departure + 2 * model.LAYERS - layer - 1, 0, backward, layer, batch))
    for *_, work, layer, batch in sorted(timetable, key=lambda entry: entry[:2]):
        await work(layer, batch)
    return model
