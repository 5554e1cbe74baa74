"""Pipeline + FSDP: four stages of four ranks; every rank keeps a sixteenth of every layer."""

from lib import Model

STAGES = 4


async def pipeline_fsdp(model: Model) -> Model:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()
    depth = model.LAYERS // STAGES
    stage = model.rank % STAGES
    mine = range(stage * depth, (stage + 1) * depth)
    first, last = stage == 0, stage == STAGES - 1

    for layer in range(model.LAYERS):
        weights[layer], opt_states[layer] = model.load_weights(layer, model.rank, model.RANKS)

    # Every rank joins every gather, because every rank has a shard; only one stage uses the result.
    for layer in range(model.LAYERS):
        if layer == mine[0]:
            batch = model.rank // STAGES
            activations[layer] = model.get_activation([batch]) if first else await model.receive()
        weights["full"] = await model.allgather(weights[layer], layer)
        if layer in mine:
            activations[layer + 1] = model.forward(layer, activations[layer], weights["full"])
        del weights["full"]
        if layer == mine[-1]:
            if last:
                grad_activations[layer + 1] = model.loss(activations[layer + 1])
            else:
                await model.pass_to(model.rank + 1, activations[layer + 1])

    # Ranks without a gradient for the layer contribute zero to its reduce-scatter.
    for layer in reversed(range(model.LAYERS)):
        if layer == mine[-1] and not last:
            grad_activations[layer + 1] = await model.receive()
        weights["full"] = await model.allgather(weights[layer], layer)
        if layer in mine:
            grad_weights[layer], grad_activations[layer] = model.backward(
                layer, activations[layer], grad_activations[layer + 1], weights["full"]
            )
            del activations[layer], grad_activations[layer + 1]
        else:
            grad_weights[layer] = model.fake_grad(layer, [])
        grad_weights[layer] = await model.scatterreduce(grad_weights[layer], layer)
        del weights["full"]
        if layer == mine[0] and not first:
            await model.pass_to(model.rank - 1, grad_activations[layer])

    for layer in range(model.LAYERS):
        weights[layer], opt_states[layer] = model.update(layer, grad_weights[layer], weights[layer], opt_states[layer])
        model.set_final_weight(layer, weights[layer])
    return model
