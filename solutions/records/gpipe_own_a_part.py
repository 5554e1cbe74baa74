"""No pipeline at all: a rank for each batch, every weight everywhere, the optimizer state shared out (ZeRO-1).

A pipeline waits for its first batch to come round; batches in parallel never wait. Eight reductions are cheaper than
twelve idle steps.
"""

from functools import reduce
from math import lcm

from lib import Model


async def gpipe(model: Model) -> Model:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()

    # Whole layers as long as they go round; those left over are laid end to end and cut into RANKS equal runs.
    whole = model.LAYERS - model.LAYERS % model.RANKS
    parts = lcm(model.LAYERS - whole, model.RANKS) // (model.LAYERS - whole) if whole < model.LAYERS else 1
    run = (model.LAYERS - whole) * parts // model.RANKS

    def keep_mine(storage, layer, value):
        """Stores what this rank owns of a layer, and forgets the rest."""
        storage.pop(layer, None)
        if layer < whole:
            mine = [value] if layer % model.RANKS == model.rank else []
        else:
            owners = [((layer - whole) * parts + i) // run for i in range(parts)]
            mine = [value.shard(i, parts) for i in range(parts) if owners[i] == model.rank]
        if mine:
            storage[layer] = reduce(lambda one, other: one.combine(other), mine)

    for layer in range(model.LAYERS):
        weights[layer], opt_state = model.load_weights(layer)
        keep_mine(opt_states, layer, opt_state)
        # The input of layer 0 is not kept: it costs nothing to read it again.
        inp = activations[layer] if layer else model.get_activation([model.rank])
        activations[layer + 1] = model.forward(layer, inp, weights[layer])
    grad_activations["out"] = model.loss(activations.pop(model.LAYERS))

    for layer in reversed(range(model.LAYERS)):
        inp = activations.pop(layer) if layer else model.get_activation([model.rank])
        grad_weights[layer], grad_activations["out"] = model.backward(
            layer, inp, grad_activations["out"], weights[layer]
        )
        # Backward was the last to need the whole weight.
        keep_mine(weights, layer, weights[layer])
        keep_mine(grad_weights, layer, await model.allreduce(grad_weights[layer], layer))
    del grad_activations["out"]

    # Not earlier: who updates between two reductions lets all the others wait.
    for layer in list(weights):
        weights[layer], opt_states[layer] = model.update(
            layer, grad_weights.pop(layer), weights[layer], opt_states[layer]
        )
        model.set_final_weight(layer, weights[layer])
    return model
