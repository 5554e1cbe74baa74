"""A pipeline that each batch passes in laps: layers are dealt out in turn, and a timetable orders the work.

A rank waits for its first batch as long as the earlier stages take. With one layer per stage that is half as
long as with two (interleaved stages, Narayanan et al. 2021, "Efficient large-scale language model training",
section 2.2). The input of a late layer also waits only briefly for its backward, so a batch in flight takes little
memory. The timetable counts steps, and ignores messages.
"""

from lib import Model


def by_ranks(batch, layers, ranks):
    """As many batches as ranks go around together: more would only wait for each other. The half step behind the first
    batch is for its messages."""
    place = batch % ranks
    return place + 0.5 * (place > 0) + batch // ranks * 2 * layers


def by_threes(batch, layers, ranks):
    """Three batches follow each other closely; the next starts when the first begins its last lap."""
    return batch % 3 * 1.5 + batch // 3 * 10.5


DEPARTURE = by_ranks
"""When a batch starts."""

FORWARD_FIRST = True
"""Which goes first if a forward and a backward are due at the same time."""

VARIANTS = {
    # The fastest: a forward goes first, because other ranks wait for it.
    "a_batch_per_rank": {"DEPARTURE": by_ranks, "FORWARD_FIRST": True},
    # Less memory: fewer batches are in flight, and a backward goes first, because it frees memory.
    "three_batches": {"DEPARTURE": by_threes, "FORWARD_FIRST": False},
}


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

    timetable = []
    for batch in range(model.BATCHES):
        departure = DEPARTURE(batch, model.LAYERS, model.RANKS)
        for layer in mine:
            timetable.append((departure + layer, not FORWARD_FIRST, forward, layer, batch))
            timetable.append((departure + 2 * model.LAYERS - layer - 1, FORWARD_FIRST, backward, layer, batch))
    for *_, work, layer, batch in sorted(timetable, key=lambda entry: entry[:2]):
        await work(layer, batch)
    return model


pipeline = gpipe
"""A puzzle of the same size."""
