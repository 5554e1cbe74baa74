"""Pipeline + FSDP that gathers each weight once, before any batch moves, and updates while others compute.

A gather stops all ranks, whenever it happens. So each weight is gathered once, and a stage keeps its own
weights whole until their backward, which needs a full weight anyway. From then on, batches are the only thing
to wait for. A stage whose turn it is delays its updates until it has passed the batch on. Stage 0 passes
nothing on; the best time left for its update is while the message that it waits for is in flight.
"""

from lib import Model

STAGES = 4


async def pipeline_fsdp(model: Model) -> Model:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()
    depth = model.LAYERS // STAGES
    batch, stage = divmod(model.rank, STAGES)
    mine = range(stage * depth, (stage + 1) * depth)
    first, last = stage == 0, stage == STAGES - 1

    for layer in range(model.LAYERS):
        weights[layer], opt_states[layer] = model.load_weights(layer, model.rank, model.RANKS)
    for layer in range(model.LAYERS):
        whole = await model.allgather(weights[layer], layer)
        if layer in mine:
            weights[layer] = whole

    if not first:
        activations[mine[0]] = await model.receive()
    for layer in mine:
        inp = activations[layer] if layer else model.get_activation([batch])
        activations[layer + 1] = model.forward(layer, inp, weights[layer])
    out = activations.pop(mine[-1] + 1)
    if last:
        grad_activations["out"] = model.loss(out)
    else:
        await model.pass_to(model.rank + 1, out)

    for layer in reversed(range(model.LAYERS)):
        if layer in mine:
            if layer == mine[-1] and not last:
                grad_activations["out"] = await model.receive()
            inp = activations.pop(layer) if layer else model.get_activation([batch])
            grad_weights[layer], grad_activations["out"] = model.backward(
                layer, inp, grad_activations["out"], weights[layer]
            )
            weights[layer] = weights[layer].shard(model.rank, model.RANKS)
        else:
            grad_weights[layer] = model.fake_grad(layer, [])
        # Before the message is sent: while it is in flight, the waiting rank can update.
        grad_weights[layer] = await model.scatterreduce(grad_weights[layer], layer)
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
