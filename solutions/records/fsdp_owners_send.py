"""Data parallelism in which the owner of a layer sends its weight to the other ranks, before they need it.

Nothing is sharded: every layer is full on one rank, its owner. A message costs a rank less than a gather, and a layer
is updated once, not in parts on all ranks. A message that is sent early waits unread, and nobody waits for it. Where
memory allows it, several reductions come together, because each makes the ranks wait for each other. The order of
messages and updates was found by a search.
"""

from lib import Model

SIZE = (6, 4, 4)
"""The layers, batches and ranks for which the plan is made."""

BACKWARD = "B5 r5 B4 r4 f3 B3 r3 f2 B2 r2 u5 u4 f1 B1 f0 B0 r0 r1 u3 u2 u0 u1"
"""At that size, after all forwards: f3 fetches the weight of layer 3, B3 is its backward, r3 reduces its gradient, u3
updates it. All ranks do the same."""

AHEAD = [(5, 5, 5)] * 6 + [(4, 4, 4)] * 4
"""For each fetch: how many fetches before it the owner sends the weight to the next rank, to the one after, and on."""

SENDS_FIRST = False
"""Whether a rank at a fetch first sends what is due then, and receives afterwards."""

VARIANTS = {
    # The least memory with six layers: layers 4 and 5 stay full until their backward, the others are sent twice.
    "six_layers_four_twice": {
        "SIZE": (6, 4, 4),
        "BACKWARD": "B5 r5 B4 r4 f3 B3 r3 f2 B2 r2 u5 u4 f1 B1 f0 B0 r0 r1 u3 u2 u0 u1",
        "AHEAD": [(5, 5, 5)] * 6 + [(4, 4, 4)] * 4,
        "SENDS_FIRST": False,
    },
    # Faster, and layers 0 and 1 stay full as well: only layers 2 and 3 are sent twice.
    "six_layers_two_twice": {
        "SIZE": (6, 4, 4),
        "BACKWARD": "B5 r5 B4 r4 u5 u4 f3 B3 f2 B2 r2 B1 r3 r1 B0 r0 u2 u3 u1 u0",
        "AHEAD": [(5, 5, 5)] * 6 + [(5, 4, 0)] * 2,
        "SENDS_FIRST": False,
    },
    # The least memory with eight layers: all but the last are sent twice.
    "eight_layers_seven_twice": {
        "SIZE": (8, 4, 4),
        "BACKWARD": "B7 r7 u7 f6 B6 f5 B5 r6 r5 f4 B4 r4 f3 B3 r3 u4 f2 B2 u6 u5 f1 B1 f0 B0 r1 r0 r2 u3 u1 u0 u2",
        "AHEAD": [(2, 2, 2)] * 8 + [(6, 1, 0)] * 4 + [(1, 4, 3)] * 3,
        "SENDS_FIRST": True,
    },
    # Faster, with room for the gradients of two layers that wait to be reduced.
    "eight_layers_two_gradients_wait": {
        "SIZE": (8, 4, 4),
        "BACKWARD": "B7 r7 u7 f6 B6 f5 B5 f4 B4 r6 r4 f3 B3 r5 r3 u5 f2 B2 f1 B1 u6 u4 f0 B0 r2 r1 r0 u2 u0 u3 u1",
        "AHEAD": [(2, 4, 5)] * 8 + [(3, 0, 4)] * 4 + [(4, 4, 3)] * 3,
        "SENDS_FIRST": False,
    },
    # The minimum time with owners: each weight is sent once, and no rank waits. All ranks keep all weights.
    "eight_layers_once": {
        "SIZE": (8, 4, 4),
        "BACKWARD": "B7 r7 B6 r6 B5 r5 B4 r4 B3 r3 B2 r2 B1 r1 B0 r0 u7 u6 u5 u4 u3 u2 u1 u0",
        "AHEAD": [(1, 2, 3)] * 8,
        "SENDS_FIRST": True,
    },
}


def steps_of(layers, known):
    """All steps. At another size every weight is fetched twice, and its gradient is reduced and used at once."""
    forward = " ".join(f"f{layer} F{layer}" for layer in range(layers))
    plain = " ".join(f"f{layer} B{layer} r{layer} u{layer}" for layer in reversed(range(layers)))
    return [(step[0], int(step[1:])) for step in f"{forward} {BACKWARD if known else plain}".split()]


async def fsdp(model: Model) -> Model:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()
    known = (model.LAYERS, model.BATCHES, model.RANKS) == SIZE
    plan = steps_of(model.LAYERS, known)
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
            if SENDS_FIRST:
                await send(fetches)
            if not mine(layer):
                weights[layer] = await model.receive(owner(layer))
            if not SENDS_FIRST:
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


wsdp = gpipe = pipeline = fsdp
"""A puzzle of the same size, and two of the other."""
