"""FSDP instead of a pipeline, with one activation kept between forward and backward: the one in the middle.

Whatever is missing is computed again from the nearest activation below, and the middle of what lies below it is kept in
turn. A pipeline's idle steps buy all of that: the same time, and less than half the memory. Each backward holds a whole
weight, its two inputs, the one kept activation, and of everything else a RANKS-th part.
"""

from lib import Model


async def gpipe(model: Model) -> Model:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()
    last = model.LAYERS - 1

    def keep_shard(layer):
        weights[layer] = weights[layer].shard(model.rank, model.RANKS)

    def forward(layer, keep):
        """One layer forward. Its input stays only if it is the one to keep; the input of layer 0 is read again."""
        inp = activations[layer] if layer else model.get_activation([model.rank])
        activations[layer + 1] = model.forward(layer, inp, weights[layer])
        if layer and layer != keep:
            del activations[layer]

    middle = model.LAYERS // 2
    for layer in range(model.LAYERS):
        weights[layer], opt_state = model.load_weights(layer)
        opt_states[layer] = opt_state.shard(model.rank, model.RANKS)
        if layer != last:
            forward(layer, keep=middle)
            keep_shard(layer)
    # The last layer's input and weight both stay: its backward comes next.
    forward(last, keep=last)
    grad_activations["out"] = model.loss(activations.pop(model.LAYERS))

    for layer in reversed(range(model.LAYERS)):
        if layer and layer not in activations:
            start = max(activations, default=0)
            middle = start or (layer + 1) // 2
            for below in range(start, layer):
                weights[below] = await model.allgather(weights[below], below)
                forward(below, keep=middle)
                keep_shard(below)
        if layer != last:
            weights[layer] = await model.allgather(weights[layer], layer)
        inp = activations.pop(layer) if layer else model.get_activation([model.rank])
        grad_weights[layer], grad_activations["out"] = model.backward(
            layer, inp, grad_activations["out"], weights[layer]
        )
        keep_shard(layer)
        grad_weights[layer] = await model.scatterreduce(grad_weights[layer], layer)
        weights[layer], opt_states[layer] = model.update(
            layer, grad_weights.pop(layer), weights[layer], opt_states[layer]
        )
        model.set_final_weight(layer, weights[layer])
    return model
