"""Ring attention in zigzag: each rank has an early and a late share of the tokens, and keys go round.

The mask lets late tokens see more, so a share from either end gives all ranks as much to do, in every step of the ring.
Backward, keys go round again and their gradients follow one step behind; the last hop brings them home.
"""

from lib import Model


async def ring_context(model: Model) -> Model:
    weights, opt_states, activations, _, grad_weights = model.storage()
    me, ranks, layers = model.rank, model.RANKS, range(model.LAYERS)
    before, after = (me - 1) % ranks, (me + 1) % ranks
    each = model.SHARES // (2 * ranks)
    early = range(me * each, (me + 1) * each)
    pending = {}
    for layer in layers:
        weights[layer], opt_states[layer] = model.load_weights(layer)

    def tokens():
        return model.get_activation([0], shares=[*early, *(model.SHARES - 1 - share for share in early)])

    async def update(layer):
        grad_weights[layer] = await pending.pop(layer)
        weights[layer], opt_states[layer] = model.update(
            layer, grad_weights.pop(layer), weights[layer], opt_states[layer]
        )

    for layer in layers:
        inp = activations[layer] if layer else tokens()
        keys = activations["keys", layer] = model.keys(layer, inp, weights[layer])
        for hop in range(ranks):
            sending = model.pass_to(after, keys) if hop < ranks - 1 else None
            activations[layer + 1] = model.attend(layer, inp, [keys], activations.get(layer + 1))
            if sending:
                keys = await model.receive(before)
                await sending

    grad = model.loss(activations.pop(model.LAYERS))
    for layer in reversed(layers):
        inp = activations.pop(layer) if layer else tokens()
        keys = activations.pop(("keys", layer))
        through, own, returning = None, None, None
        for hop in range(ranks):
            sending = model.pass_to(after, keys) if hop < ranks - 1 else None
            part, (of_keys,) = model.attend_backward(layer, inp, [keys], grad)
            through = part if through is None else through + part
            if not hop:
                own = of_keys  # the part of its own keys stays
                if layer + 1 in pending:
                    await update(layer + 1)
            elif hop == 1:
                returning = model.pass_to(after, of_keys, tag=1)
            else:
                of_keys = of_keys + await model.receive(before, tag=1)
                await returning
                returning = model.pass_to(after, of_keys, tag=1)
            if sending:
                keys = await model.receive(before)
                await sending
        own = own + await model.receive(before, tag=1)
        await returning
        grad_weight, grad = model.keys_backward(layer, inp, own, weights[layer], through)
        pending[layer] = model.allreduce(grad_weight, layer)

    await update(0)
    for layer in layers:
        model.set_final_weight(layer, weights[layer])
    return model
