"""Pipeline + FSDP in which every stage computes the way to its own layers itself, and only gradients travel.

The ranks of a pipeline wait for their batch while the stages before them compute. They might as well compute the same:
then no activation has to be sent, and a forward costs no message. Weights are kept whole as in
pipeline_fsdp_gather_twice, only where that costs no memory.
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
    # Every stage goes the whole way to its own layers, with its batch: nobody waits for an activation.
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
        # Before the message: while it is under way, the rank that waits for it can update.
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
