"""Fully sharded data parallelism in place of a pipeline; inputs of some layers are dropped and computed again.

Each rank takes a batch through all layers, so no rank waits for activations of another. Weights, optimizer states and
gradients live in shards, as in fsdp. The peak is at the turn from forward to backward, with the inputs of all layers.
Some inputs are dropped until then, and computed again when they are needed. A weight that is gathered for a second
forward stays full for its own backward, which comes next, where memory allows it.
"""

from lib import Model

FORGOTTEN = {2}
"""Layers whose inputs are dropped on the way forward and computed again."""

FORGOTTEN_AGAIN = set()
"""Of these layers, the ones whose inputs are dropped again on the way to a later one."""

GATHERED_AGAIN = set()
"""Layers whose weights are dropped again after a second forward; others stay full until their backward."""

VARIANTS = {
    # One activation less at the turn, for one forward and no gather more.
    "one_input_twice": {"FORGOTTEN": {2}, "FORGOTTEN_AGAIN": set(), "GATHERED_AGAIN": set()},
    # Two activations less. Both are computed again at the backward of layer 2, when three full weights fit.
    "two_inputs_twice": {"FORGOTTEN": {1, 2}, "FORGOTTEN_AGAIN": set(), "GATHERED_AGAIN": set()},
    # Three activations less. When the input of layer 5 is computed again, no second full weight fits.
    "three_inputs_twice": {"FORGOTTEN": {1, 3, 5}, "FORGOTTEN_AGAIN": set(), "GATHERED_AGAIN": {4}},
    # Four activations less. Only the weight of layer 0 can stay full after its second forward.
    "four_inputs_twice": {"FORGOTTEN": {1, 3, 4, 6}, "FORGOTTEN_AGAIN": set(), "GATHERED_AGAIN": {2, 3, 5}},
    # Only the inputs of layers 4 and 7 are kept. It takes seven forwards more: inputs 1 and 5 are dropped twice.
    "five_inputs_again": {"FORGOTTEN": {1, 2, 3, 5, 6}, "FORGOTTEN_AGAIN": {1, 5}, "GATHERED_AGAIN": {*range(7)}},
    # The minimum memory where ranks share the model evenly; the number of forwards grows with the layers squared.
    "no_input_kept": {"FORGOTTEN": {*range(1, 7)}, "FORGOTTEN_AGAIN": {*range(1, 7)}, "GATHERED_AGAIN": {*range(7)}},
}


async def gpipe(model: Model) -> Model:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()
    last = model.LAYERS - 1
    batches = range(model.rank, model.BATCHES, model.RANKS)
    kept = {0}  # inputs that a rank with batches has; it can always read that of layer 0 again

    for layer in range(model.LAYERS):
        weights[layer], opt_states[layer] = model.load_weights(layer, model.rank, model.RANKS)

    def keep_shard(layer):
        weights[layer] = weights[layer].shard(model.rank, model.RANKS)

    def drop_input(layer):
        kept.discard(layer)
        activations.pop(layer, None)

    async def gather(layer):
        if not weights[layer].is_complete():
            weights[layer] = await model.allgather(weights[layer], layer)

    async def forward(layer):
        await gather(layer)
        if batches:
            inp = activations[layer] if layer else model.get_activation(batches)
            activations[layer + 1] = model.forward(layer, inp, weights[layer])
        kept.add(layer + 1)

    for layer in range(model.LAYERS):
        await forward(layer)
        if layer != last:
            keep_shard(layer)
        if layer in FORGOTTEN:
            drop_input(layer)
    if batches:
        grad_activations["out"] = model.loss(activations.pop(model.LAYERS))

    for layer in reversed(range(model.LAYERS)):
        for before in range(max(kept & {*range(layer + 1)}), layer):
            await forward(before)
            if before in GATHERED_AGAIN:
                keep_shard(before)
            if before in FORGOTTEN_AGAIN:
                drop_input(before)
        await gather(layer)
        if batches:
            inp = activations.pop(layer) if layer else model.get_activation(batches)
            grad_weights[layer], grad_activations["out"] = model.backward(
                layer, inp, grad_activations["out"], weights[layer]
            )
            del inp
        else:
            grad_weights[layer] = model.fake_grad(layer, [])
        kept.discard(layer)
        keep_shard(layer)
        if layer == 0:
            grad_activations.clear()
        grad_weights[layer] = await model.scatterreduce(grad_weights[layer], layer)
        weights[layer], opt_states[layer] = model.update(
            layer, grad_weights.pop(layer), weights[layer], opt_states[layer]
        )
        model.set_final_weight(layer, weights[layer])
    return model


pipeline = gpipe
"""A puzzle of the same size."""
