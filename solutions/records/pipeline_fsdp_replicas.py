"""Pipelines side by side, with full weights on every replica, which exchange gradients and new weights in messages.

A stage's replicas share its optimizer states: an owner of a shard is sent that shard of the gradients, and sends the
new shard of the weight. Few owners need few messages, and the first stage ends the step: its layers have one owner
each. Other stages are ready before it; with more owners each of them holds less.
"""

from lib import Model

STAGES = 4
"""Stages of a pipeline; the other ranks are replicas."""

OWNERS = (1, 2, 2, 2)
"""For each stage: into how many shards, each on a replica of its own, its optimizer states are cut."""

VARIANTS = {
    # The least time: the first stage, which ends the step, has one owner, and holds no activation then.
    "one_owner_first": {"STAGES": 4, "OWNERS": (1, 2, 2, 2)},
    # Less traffic, since no owner sends a full weight, for two messages more at the end.
    "two_owners_first": {"STAGES": 4, "OWNERS": (2, 4, 4, 2)},
    # The least memory: every replica has an equal share, which takes most messages.
    "every_replica": {"STAGES": 4, "OWNERS": (4, 4, 4, 4)},
    # With eight layers on four ranks: two pipelines of two stages. A short pipeline has a small bubble.
    "two_stages": {"STAGES": 2, "OWNERS": (1, 1)},
}


async def pipeline_fsdp(model: Model) -> Model:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()
    stages = STAGES if model.RANKS % STAGES == 0 else model.RANKS
    replica, stage = divmod(model.rank, stages)
    replicas, depth = model.RANKS // stages, model.LAYERS // stages
    mine = range(stage * depth, (stage + 1) * depth)
    batches = range(replica, model.BATCHES, replicas)
    first, last = stage == 0, stage == stages - 1
    owned = min(OWNERS[min(stage, len(OWNERS) - 1)], replicas)

    def owners(layer):
        """The ranks that own a layer's shards, in their order."""
        return [(layer * owned + part) % replicas * stages + stage for part in range(owned)]

    for layer in mine:
        weights[layer], state = model.load_weights(layer)
        if model.rank in owners(layer):
            opt_states[layer] = state.shard(owners(layer).index(model.rank), owned)
        del state

    async def forward(batch):
        activations[mine[0], batch] = model.get_activation([batch]) if first else await model.receive(model.rank - 1)
        for layer in mine:
            activations[layer + 1, batch] = model.forward(layer, activations[layer, batch], weights[layer])
            activations.pop((0, batch), None)
        out = activations.pop((mine[-1] + 1, batch))
        if last:
            grad_activations[batch] = model.loss(out)
        else:
            await model.pass_to(model.rank + 1, out)
        del out

    async def backward(batch):
        if not last:
            grad_activations[batch] = await model.receive(model.rank + 1)
        for layer in reversed(mine):
            if layer == 0:
                activations[0, batch] = model.get_activation([batch])
            grad, grad_activations[batch] = model.backward(
                layer, activations.pop((layer, batch)), grad_activations[batch], weights[layer]
            )
            grad_weights[layer] = grad_weights[layer] + grad if layer in grad_weights else grad
            del grad
        out = grad_activations.pop(batch)
        if not first:
            await model.pass_to(model.rank - 1, out)
        del out

    # One forward, one backward: the last stage goes back at once, the others when they have filled the pipeline.
    ahead = min(stages - stage - 1, len(batches))
    for batch in batches[:ahead]:
        await forward(batch)
    for number, batch in enumerate(batches):
        if number + ahead < len(batches):
            await forward(batches[number + ahead])
        await backward(batch)

    # Of so many layers, each replica owns a shard of one.
    others = [rank for rank in range(stage, model.RANKS, stages) if rank != model.rank]
    for start in range(0, len(mine), replicas // owned):
        together = mine[start : start + replicas // owned]
        for layer in together:
            for part, owner in enumerate(owners(layer)):
                if owner != model.rank:
                    await model.pass_to(owner, grad_weights[layer].shard(part, owned))
            if layer in opt_states:
                part = owners(layer).index(model.rank), owned
                grad_weights[layer], weights[layer] = grad_weights[layer].shard(*part), weights[layer].shard(*part)
            else:
                del grad_weights[layer], weights[layer]
        for layer in opt_states.keys() & {*together}:
            for rank in others:
                grad_weights[layer] = grad_weights[layer] + await model.receive(rank)
            weights[layer], opt_states[layer] = model.update(
                layer, grad_weights.pop(layer), weights[layer], opt_states[layer]
            )
            for rank in others:
                await model.pass_to(rank, weights[layer])
        for layer in together:
            for owner in owners(layer):
                if owner != model.rank:
                    new = await model.receive(owner)
                    weights[layer] = weights[layer].combine(new) if layer in weights else new
                    del new
            model.set_final_weight(layer, weights[layer])
    return model


pipeline = gpipe = pipeline_fsdp
"""Puzzles of another size, for which the last variant is."""
