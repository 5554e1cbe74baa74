"""Ulysses: between layers each rank has a part of the tokens, within attention a part of the heads with all tokens.

Heads do not need each other. All-to-alls exchange tokens for heads before attention and heads for tokens after it. They
move each value once, however many ranks there are.
"""

from lib import Model


async def ulysses(model: Model) -> Model:
    weights, opt_states, activations, _, grad_weights = model.storage()
    each = model.SHARES // model.RANKS
    layers = range(model.LAYERS)
    pending = {}
    for layer in layers:
        weights[layer], opt_states[layer] = model.load_weights(layer)

    activations[0] = model.get_activation([0], shares=range(model.rank * each, (model.rank + 1) * each))
    for layer in layers:
        inp = activations[layer]
        queries = model.heads(inp, layer)
        keys = model.heads(model.keys(layer, inp, weights[layer]), layer)
        activations["queries", layer], activations["keys", layer] = await queries, await keys
        out = model.attend(layer, activations["queries", layer], [activations["keys", layer]])
        activations[layer + 1] = await model.tokens(out, layer + 1)

    grad = model.loss(activations.pop(model.LAYERS))
    for layer in reversed(layers):
        queries, keys = activations.pop(("queries", layer)), activations.pop(("keys", layer))
        through, (of_keys,) = model.attend_backward(layer, queries, [keys], await model.heads(grad, layer))
        of_keys, through = model.tokens(of_keys, layer), model.tokens(through, layer - 1)
        of_keys, through = await of_keys, await through
        grad_weight, grad = model.keys_backward(layer, activations.pop(layer), of_keys, weights[layer], through)
        pending[layer] = model.allreduce(grad_weight, layer)

    for layer in layers:
        grad_weights[layer] = await pending.pop(layer)
        weights[layer], opt_states[layer] = model.update(
            layer, grad_weights.pop(layer), weights[layer], opt_states[layer]
        )
        model.set_final_weight(layer, weights[layer])
    return model
