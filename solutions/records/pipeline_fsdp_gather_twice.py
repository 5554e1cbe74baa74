"""Pipeline + FSDP that keeps a full weight from forward to backward only where that costs no memory.

A zero gradient for the reduce-scatter of another stage's layer is as large as a weight. While a stage holds one
and the input of its layers, it has no room for their weights. The first stage loads its input again, and the
last starts backward right away; the others gather again, just before their turn. Memory then peaks at a
backward: one full weight, its two inputs, a sixteenth of everything else, and the one gradient shard that waits
for its update, which comes after the batch has been passed on.
"""

from lib import Model

STAGES = 4


async def pipeline_fsdp(model: Model) -> Model:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()
    depth = model.LAYERS // STAGES
    batch, stage = divmod(model.rank, STAGES)
    mine = range(stage * depth, (stage + 1) * depth)
    first, last = stage == 0, stage == STAGES - 1
    gathered_again = range(depth, model.LAYERS - depth)

    async def gather(layer):
        whole = await model.allgather(weights[layer], layer)
        if layer in mine:
            weights[layer] = whole

    def keep_shard(layer):
        weights[layer] = weights[layer].shard(model.rank, model.RANKS)

    for layer in range(model.LAYERS):
        weights[layer], opt_states[layer] = model.load_weights(layer, model.rank, model.RANKS)
    for layer in range(model.LAYERS):
        await gather(layer)

    if not first:
        activations[mine[0]] = await model.receive()
    for layer in mine:
        inp = activations[layer] if layer else model.get_activation([batch])
        activations[layer + 1] = model.forward(layer, inp, weights[layer])
        if layer in gathered_again:
            keep_shard(layer)
    out = activations.pop(mine[-1] + 1)
    if last:
        grad_activations["out"] = model.loss(out)
    else:
        await model.pass_to(model.rank + 1, out)
    del out

    for layer in reversed(range(model.LAYERS)):
        if layer in mine:
            if layer == mine[-1] and not last:
                grad_activations["out"] = await model.receive()
            inp = activations.pop(layer) if layer else model.get_activation([batch])
            grad_weights[layer], grad_activations["out"] = model.backward(
                layer, inp, grad_activations["out"], weights[layer]
            )
            keep_shard(layer)
        else:
            grad_weights[layer] = model.fake_grad(layer, [])
        # Before the message is sent: while it is in flight, the waiting rank can update.
        grad_weights[layer] = await model.scatterreduce(grad_weights[layer], layer)
        if layer - 1 in gathered_again:
            await gather(layer - 1)
        if layer == mine[0] and not first:
            await model.pass_to(model.rank - 1, grad_activations.pop("out"))

        my_turn = mine[0] < layer <= mine[-1] + 1
        if first or not my_turn:
            for ready in list(grad_weights):
                weights[ready], opt_states[ready] = model.update(
                    ready, grad_weights.pop(ready), weights[ready], opt_states[ready]
                )
                model.set_final_weight(ready, weights[ready])
    return model
