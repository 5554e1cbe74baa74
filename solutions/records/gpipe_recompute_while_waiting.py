"""1F1B in which a rank with many batches keeps only their inputs, and recomputes the rest while it waits.

A rank starts each backward as soon as it can, so rank r has at most RANKS - r batches in flight (Narayanan et
al. 2019, "PipeDream"). The first rank can load its input again, and the last two have few batches. The others
keep only the inputs of their stage and recompute the rest (GPipe, Huang et al. 2019, section 2.3). That costs
no time: it happens while the gradient is in flight.
"""

from lib import Model


async def gpipe(model: Model) -> Model:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()
    depth = model.LAYERS // model.RANKS
    stage = range(model.rank * depth, (model.rank + 1) * depth)
    first, last = model.rank == 0, model.rank == model.RANKS - 1
    ahead = min(model.RANKS - model.rank, model.BATCHES)
    lean = ahead > 2 and not first

    for layer in stage:
        weights[layer], opt_states[layer] = model.load_weights(layer)

    def run(batch, layers):
        """Keeps the input of each layer, except layer 0, whose input is loaded again."""
        for layer in layers:
            inp = activations[layer, batch] if layer else model.get_activation([batch])
            activations[layer + 1, batch] = model.forward(layer, inp, weights[layer])

    async def forward(batch):
        if not first:
            activations[stage[0], batch] = await model.receive(model.rank - 1)
        run(batch, stage)
        out = activations.pop((stage[-1] + 1, batch))
        if last:
            grad_activations[batch] = model.loss(out)
        else:
            if lean:
                for layer in stage[1:]:
                    del activations[layer, batch]
            await model.pass_to(model.rank + 1, out)

    async def backward(batch):
        if lean:
            run(batch, stage[:-1])
        if not last:
            grad_activations[batch] = await model.receive(model.rank + 1)
        for layer in reversed(stage):
            inp = activations.pop((layer, batch)) if layer else model.get_activation([batch])
            grad_out = grad_activations.pop(batch)
            grad, grad_activations[batch] = model.backward(layer, inp, grad_out, weights[layer])
            grad_weights[layer] = grad_weights[layer] + grad if layer in grad_weights else grad
        if not first:
            await model.pass_to(model.rank - 1, grad_activations[batch])
        del grad_activations[batch]

    for batch in range(ahead):
        await forward(batch)
    for batch in range(model.BATCHES):
        await backward(batch)
        if batch + ahead < model.BATCHES:
            await forward(batch + ahead)

    for layer in stage:
        weights[layer], opt_states[layer] = model.update(
            layer, grad_weights.pop(layer), weights[layer], opt_states[layer]
        )
        model.set_final_weight(layer, weights[layer])
    return model
