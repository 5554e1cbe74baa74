"""Seq1F1B with longer first shares: fewer messages and less time, for more memory."""

from lib import Model

CUT = (2, 2, 1, 1, 1, 1)
"""Eighths of a sequence in each share. Later shares attend to more keys, so the first ones may be longer."""

VARIANTS = {
    # The least time of all 128 cuts in this order.
    "six_shares": {"CUT": (2, 2, 1, 1, 1, 1)},
    # A little more time, and less memory.
    "seven_shares": {"CUT": (2, 1, 1, 1, 1, 1, 1)},
    # The second share is the long one: still less memory.
    "long_second": {"CUT": (1, 2, 1, 1, 1, 1, 1)},
}


async def seq_pipeline(model: Model) -> Model:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()
    me, last = model.rank, model.RANKS - 1
    cut = [range(sum(CUT[:share]), sum(CUT[: share + 1])) for share in range(len(CUT))]
    shares = len(cut)
    weights[me], opt_states[me] = model.load_weights(me)

    async def forward(batch, share):
        inp = await model.receive(me - 1) if me else model.get_activation([batch], shares=cut[share])
        if me:  # rank 0 gets the model's input again
            activations[batch, share] = inp
        past = [activations["keys", batch, k] for k in range(share)]
        out, activations["keys", batch, share] = model.block_forward(me, inp, weights[me], past)
        if me == last:
            grad_activations[batch, share] = model.loss(out)
        else:
            await model.pass_to(me + 1, out)

    async def backward(batch, share):
        if me < last:
            grad_activations[batch, share] = await model.receive(me + 1)
        inp = activations.pop((batch, share)) if me else model.get_activation([batch], shares=cut[share])
        keys = [activations["keys", batch, k] for k in range(share + 1)]
        del activations["keys", batch, share]
        later = [grad_activations.pop(("keys", batch, k)) for k in range(share + 1)] if share < shares - 1 else ()
        grad = grad_activations.pop((batch, share))
        grad_weight, grad_in, grad_keys = model.block_backward(me, inp, keys, grad, weights[me], later)
        for k, one in enumerate(grad_keys):
            grad_activations["keys", batch, k] = one
        grad_weights[me] = grad_weights[me] + grad_weight if me in grad_weights else grad_weight
        if me:
            await model.pass_to(me - 1, grad_in)

    there = [(batch, share) for batch in range(model.BATCHES) for share in range(shares)]
    back = [(batch, share) for batch in range(model.BATCHES) for share in reversed(range(shares))]
    ahead = min(last - me + shares - 1, len(there))
    for one in there[:ahead]:
        await forward(*one)
    for i, one in enumerate(back):
        if i + ahead < len(there):
            await forward(*there[i + ahead])
        await backward(*one)

    weights[me], opt_states[me] = model.update(me, grad_weights.pop(me), weights[me], opt_states[me])
    model.set_final_weight(me, weights[me])
    return model
