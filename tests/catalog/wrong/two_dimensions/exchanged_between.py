# two_dimensions: over_target
"""Wrong: heads are exchanged between the machines, and blocks within them."""

from lib import Model


async def two_dimensions(model: Model) -> Model:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()
    machine, place = model.index("gpu"), model.index("machine")
    (peer,) = (rank for rank in model.axis("gpu") if rank != model.rank)  # the same heads, on the other machine
    quarter = model.SHARES // 4
    first = (machine, 3 - machine)[place] * quarter
    layers, pending = range(model.LAYERS), {}
    for layer in layers:
        weights[layer], opt_states[layer] = model.load_weights(layer)

    activations[0] = model.get_activation([0], shares=range(first, first + quarter))
    for layer in layers:
        exchange = model.heads(activations[layer], layer, group="machine")
        block = model.heads(model.keys(layer, activations[layer], weights[layer]), layer, group="machine")
        activations["queries", layer], activations["keys", layer] = await exchange, await block
        sending = model.pass_to(peer, activations["keys", layer])
        activations["out"] = model.attend(layer, activations["queries", layer], [activations["keys", layer]])
        activations["there", layer] = await model.receive(peer)
        await sending
        activations["out"] = model.attend(
            layer, activations["queries", layer], [activations["there", layer]], activations["out"]
        )
        activations[layer + 1] = await model.tokens(activations["out"], layer + 1, group="machine")
        del activations["out"]

    grad_activations["out"] = model.loss(activations[model.LAYERS])
    del activations[model.LAYERS]
    for layer in reversed(layers):
        grad_activations["heads"] = await model.heads(grad_activations["out"], layer, group="machine")
        del grad_activations["out"]
        grad_activations["queries"], (grad_activations["there"],) = model.attend_backward(
            layer, activations["queries", layer], [activations["there", layer]], grad_activations["heads"]
        )
        del activations["there", layer]
        sending = model.pass_to(peer, grad_activations["there"])
        grad_activations["more"], (grad_activations["keys"],) = model.attend_backward(
            layer, activations["queries", layer], [activations["keys", layer]], grad_activations["heads"]
        )
        del activations["queries", layer], activations["keys", layer], grad_activations["heads"]
        grad_activations["queries"] = grad_activations["queries"] + grad_activations.pop("more")
        await sending
        grad_activations["there"] = await model.receive(peer)
        grad_activations["keys"] = grad_activations["keys"] + grad_activations.pop("there")
        exchange = model.tokens(grad_activations["keys"], layer, group="machine")
        block = model.tokens(grad_activations["queries"], layer - 1, group="machine")
        grad_activations["keys"], grad_activations["queries"] = await exchange, await block
        grad_weights[layer], grad_activations["out"] = model.keys_backward(
            layer, activations[layer], grad_activations["keys"], weights[layer], grad_activations["queries"]
        )
        del activations[layer], grad_activations["keys"], grad_activations["queries"]
        pending[layer] = model.allreduce(grad_weights[layer], layer)
    del grad_activations["out"]

    for layer in layers:
        grad_weights[layer] = await pending.pop(layer)
        weights[layer], opt_states[layer] = model.update(
            layer, grad_weights.pop(layer), weights[layer], opt_states[layer]
        )
        model.set_final_weight(layer, weights[layer])
    return model
