"""Data parallelism in place of a pipeline: owners send their weights, and more reductions come together.

As gpipe_owners_send, with room for the gradients of two layers that wait to be reduced.
"""

from lib import Model

SIZE = (8, 4, 4)
PLAN = """
f0 F0 f1 F1 f2 F2 f3 F3 f4 F4 f5 F5 f6 F6 f7 F7
B7 r7 u7 f6 B6 f5 B5 f4 B4 r6 r4 f3 B3 r5 r3 u5 f2 B2 f1 B1 u6 u4 f0 B0 r2 r1 r0 u2 u0 u3 u1
"""
"""At that size: fetch the weight of a layer, forward, backward, reduce its gradient, update. All ranks do the same."""

AHEAD = [(2, 4, 5)] * 8 + [(3, 0, 4)] * 4 + [(4, 4, 3)] * 3
"""For each fetch: how many fetches before it the owner sends the weight to the next rank, to the one after, and on."""


def plain_plan(layers):
    """The same for other sizes: every weight is fetched twice, and its gradient is reduced and used at once."""
    there = [f"f{layer} F{layer}" for layer in range(layers)]
    back = [f"f{layer} B{layer} r{layer} u{layer}" for layer in reversed(range(layers))]
    return " ".join(there + back)


async def gpipe(model: Model) -> Model:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()
    known = (model.LAYERS, model.BATCHES, model.RANKS) == SIZE
    plan = [(step[0], int(step[1:])) for step in (PLAN if known else plain_plan(model.LAYERS)).split()]
    fetched = [layer for step, layer in plan if step == "f"]
    batches = range(model.rank, model.BATCHES, model.RANKS)

    def owner(layer):
        return (model.RANKS - 1 - layer) % model.RANKS

    def mine(layer):
        return owner(layer) == model.rank

    async def send(now):
        """Sends what is due at a fetch; before the first fetch, what is due even earlier."""
        for number, layer in enumerate(fetched):
            for step in range(1, model.RANKS):
                due = number - (AHEAD[number][step - 1] if known else 1)
                if mine(layer) and max(due, -1) == now:
                    await model.pass_to((model.rank + step) % model.RANKS, weights[layer])

    for layer in filter(mine, range(model.LAYERS)):
        weights[layer], opt_states[layer] = model.load_weights(layer)
    await send(-1)

    fetches = 0
    for at, (step, layer) in enumerate(plan):
        if step == "f":
            if not mine(layer):
                weights[layer] = await model.receive(owner(layer))
            await send(fetches)
            fetches += 1
        elif step == "F":
            if batches:
                inp = activations[layer] if layer else model.get_activation(batches)
                activations[layer + 1] = model.forward(layer, inp, weights[layer])
                if layer == model.LAYERS - 1:
                    grad_activations["out"] = model.loss(activations.pop(model.LAYERS))
            if not mine(layer) and ("f", layer) in plan[at + 1 :]:
                del weights[layer]
        elif step == "B":
            if batches:
                inp = activations.pop(layer) if layer else model.get_activation(batches)
                grad_weights[layer], grad_activations["out"] = model.backward(
                    layer, inp, grad_activations["out"], weights[layer]
                )
            else:
                grad_weights[layer] = model.fake_grad(layer, [])
            if layer == 0:
                grad_activations.clear()
            if not mine(layer):
                del weights[layer]
        elif step == "r":
            grad_weights[layer] = await model.allreduce(grad_weights[layer], layer)
            if not mine(layer):
                del grad_weights[layer]
        elif mine(layer):
            weights[layer], opt_states[layer] = model.update(
                layer, grad_weights.pop(layer), weights[layer], opt_states[layer]
            )
            model.set_final_weight(layer, weights[layer])
    return model


pipeline = gpipe
"""A puzzle of the same size."""
