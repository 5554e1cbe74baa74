"""Pipeline + FSDP that gathers each weight once before its forward, and updates while others compute.

A gather stops all ranks, whenever it happens. From the last gather on, batches are the only thing to wait for. A stage
whose turn it is delays its updates until it has passed the batch on. Stage 0 passes nothing on; the best time left for
its update is while the message that it waits for is in flight.

A zero gradient for the reduce-scatter of another stage's layer is as large as a weight. While a stage holds one and the
input of its layers, it has no room for their weights. The first stage loads its input again, and the last starts
backward right away; the others may gather again, just before their turn.
"""

from lib import Model

STAGES = 4

GATHERS_AGAIN = True
"""Whether the stages between the first and the last drop their weights after forward, and gather them again."""

FORWARD_EVERYWHERE = False
"""Whether every stage computes the way to its own layers itself, so that only gradients travel."""

VARIANTS = {
    # At the peak, which is a backward, a stage holds one full weight and its inputs, and shards.
    "twice": {"GATHERS_AGAIN": True, "FORWARD_EVERYWHERE": False},
    # A stage keeps its weights full until their backward, and computes instead of waiting: forwards cost no message.
    "once_forward_everywhere": {"GATHERS_AGAIN": False, "FORWARD_EVERYWHERE": True},
    # Faster than `twice` with the same memory, in the same way.
    "twice_forward_everywhere": {"GATHERS_AGAIN": True, "FORWARD_EVERYWHERE": True},
}


async def pipeline_fsdp(model: Model) -> Model:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()
    depth = model.LAYERS // STAGES
    batch, stage = divmod(model.rank, STAGES)
    mine = range(stage * depth, (stage + 1) * depth)
    first, last = stage == 0, stage == STAGES - 1
    gathered_again = range(depth, model.LAYERS - depth) if GATHERS_AGAIN else ()

    async def gather(layer):
        full = await model.allgather(weights[layer], layer)
        if layer in mine:
            weights[layer] = full

    def keep_shard(layer):
        weights[layer] = weights[layer].shard(model.rank, model.RANKS)

    async def forward_in_turn():
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

    async def forward_everywhere():
        for layer in range(model.LAYERS):
            weights[layer] = await model.allgather(weights[layer], layer)
            if layer <= mine[-1]:
                inp = activations[layer] if layer else model.get_activation([batch])
                activations[layer + 1] = model.forward(layer, inp, weights[layer])
                del inp
            if layer not in mine or layer in gathered_again:
                keep_shard(layer)
            if layer < mine[0]:
                activations.pop(layer, None)
            if layer == mine[-1]:
                out = activations.pop(layer + 1)
                if last:
                    grad_activations["out"] = model.loss(out)
                del out

    for layer in range(model.LAYERS):
        weights[layer], opt_states[layer] = model.load_weights(layer, model.rank, model.RANKS)
    await (forward_everywhere() if FORWARD_EVERYWHERE else forward_in_turn())

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
