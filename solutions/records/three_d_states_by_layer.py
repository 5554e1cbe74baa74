"""3D parallelism in which each layer's optimizer state is on one replica, which updates the layer for all of them.

Two messages, a gradient there and a weight back, send as much as an all-reduce between two replicas. Each replica owns
every second layer of its stage, so both are busy, and each has half of the states (ZeRO-1 by layers).
"""

from lib import Model


async def three_d(model: Model) -> Model:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()
    pipeline, stage, row = model.axis("pp"), model.index("pp"), model.index("tp")
    stages, rows, replicas = len(pipeline), len(model.axis("tp")), len(model.axis("dp"))
    depth, microbatches = model.LAYERS // stages, model.BATCHES // replicas
    mine = range(stage * depth, (stage + 1) * depth)
    batches = range(model.index("dp") * microbatches, (model.index("dp") + 1) * microbatches)
    replica_ranks = model.axis("dp")
    first, last = stage == 0, stage == stages - 1

    def owner(layer):
        return replica_ranks[layer % replicas]

    for layer in mine:
        weights[layer], state = model.load_weights(layer, row, rows)
        if owner(layer) == model.rank:
            opt_states[layer] = state
        del state

    async def forward(batch):
        activations[mine[0], batch] = (
            model.get_activation([batch]) if first else await model.receive(pipeline[stage - 1])
        )
        for layer in mine:
            activations["part"] = model.forward(layer, activations[layer, batch], weights[layer])
            activations[layer + 1, batch] = await model.allreduce(activations["part"], layer + 1, group="tp")
            del activations["part"]
        if last:
            grad_activations[batch] = model.loss(activations[mine[-1] + 1, batch])
        else:
            await model.pass_to(pipeline[stage + 1], activations[mine[-1] + 1, batch])
        del activations[mine[-1] + 1, batch]

    async def backward(batch):
        if not last:
            grad_activations[batch] = await model.receive(pipeline[stage + 1])
        for layer in reversed(mine):
            grad, grad_activations["part"] = model.backward(
                layer, activations[layer, batch], grad_activations[batch], weights[layer]
            )
            del activations[layer, batch], grad_activations[batch]
            grad_weights[layer] = grad_weights[layer] + grad if layer in grad_weights else grad
            if layer:  # nobody needs the gradient of the model's input
                grad_activations[batch] = await model.allreduce(grad_activations["part"], layer - 1, group="tp")
            del grad_activations["part"]
        if not first:
            await model.pass_to(pipeline[stage - 1], grad_activations.pop(batch))

    # One forward, one backward: the last stage goes back at once, the others when they have filled the pipeline.
    ahead = min(stages - stage - 1, microbatches)
    for batch in batches[:ahead]:
        await forward(batch)
    for batch in batches[: microbatches - ahead]:
        await forward(batch + ahead)
        await backward(batch)
    for batch in batches[microbatches - ahead :]:
        await backward(batch)

    # Of as many layers as there are replicas, each replica owns one.
    others = [rank for rank in replica_ranks if rank != model.rank]
    for start in range(0, len(mine), replicas):
        for layer in mine[start : start + replicas]:
            if owner(layer) != model.rank:
                await model.pass_to(owner(layer), grad_weights.pop(layer))
                del weights[layer]
        for layer in opt_states.keys() & {*mine[start : start + replicas]}:
            for rank in others:
                grad_weights[layer] = grad_weights[layer] + await model.receive(rank)
            weights[layer], opt_states[layer] = model.update(
                layer, grad_weights.pop(layer), weights[layer], opt_states[layer]
            )
            for rank in others:
                await model.pass_to(rank, weights[layer])
        for layer in mine[start : start + replicas]:
            if owner(layer) != model.rank:
                weights[layer] = await model.receive(owner(layer))
            model.set_final_weight(layer, weights[layer])
    return model
