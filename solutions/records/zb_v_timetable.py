"""ZB-V in an order that a solver (CP-SAT) found: not a step more, and less memory.

A sum of gradients is as large as two activations, so weight gradients wait until fewer activations are kept. A
letter is an action for the next batch: f, i and w are the forward, the input half and the weight half of the layer on
the way down, F, I and W those on the way up. x and g receive an activation or a gradient for the way down before its
turn, where its sender needs the room; X and G do for the way up. Rank 0 takes the model's input again for each use. At
other sizes the order is the paper's.
"""

from lib import Model

ORDERS = (
    "fffffffFIFIFIWWiwiwiwfFIFIWWWiwFIgWiFIFIiWWwgwiiww",
    "ffffFFIFxIWIiwifiWfFWFxIWxIWwwiwfFfiIFwFIiIwWiwiwWW",
    "fffxFfFFIXWIiIiwifwFxwFfWIWGWIiWwFfifFIFwiIWIiWiWwww",
    "fFxfFfFfFIiIiIiWWfWFwwfwIWiwIFWifFfFIiWwIiIiwWWww",
)


def paper_order(me, ranks, batches):
    start = "f" * (2 * (ranks - me) - 1) + "Ff" * me + "FIW" * (ranks - me)
    started = start.count("F")
    downs = batches - start.count("f")
    steady = "".join(("f" if n < downs else "") + "iwFIW" for n in range(batches - started))
    end = "iI" * me + "iw" * (ranks - me)
    order = start + steady + end
    return order + "W" * (batches - order.count("W")) + "w" * (batches - order.count("w"))


async def zb_v(model: Model) -> Model:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()
    me, ranks = model.rank, model.RANKS
    down, up = my_layers = me, model.LAYERS - 1 - me
    for layer in my_layers:
        weights[layer], opt_states[layer] = model.load_weights(layer)

    def tag(layer, batch):
        return layer * model.BATCHES + batch

    def owner(layer):
        return min(layer, model.LAYERS - 1 - layer)

    async def hand_on(storage, layer, batch, value):
        if owner(layer) == me:
            storage[layer, batch] = value
        else:
            await model.pass_to(owner(layer), value, tag(layer, batch))

    async def take(storage, layer, batch, source):
        if (layer, batch) not in storage:
            storage[layer, batch] = await model.receive(owner(source), tag(layer, batch))

    async def perform(action, layer, batch):
        if action == "x":
            await take(activations, layer, batch, layer - 1)
        elif action == "g":
            await take(grad_activations, layer, batch, layer + 1)
        elif action == "f":
            if layer:
                await take(activations, layer, batch, layer - 1)
            inp = activations[layer, batch] if layer else model.get_activation([batch])
            out = model.forward(layer, inp, weights[layer])
            del inp
            if layer == model.LAYERS - 1:
                grad_activations[layer, batch] = model.loss(out)
            else:
                await hand_on(activations, layer + 1, batch, out)
        elif action == "i":
            await take(grad_activations, layer, batch, layer + 1)
            inp = activations[layer, batch] if layer else model.get_activation([batch])
            grad_in = model.backward_input(layer, inp, grad_activations[layer, batch], weights[layer])
            if layer:
                await hand_on(grad_activations, layer - 1, batch, grad_in)
        else:
            inp = activations.pop((layer, batch)) if layer else model.get_activation([batch])
            grad = model.backward_weight(layer, inp, grad_activations.pop((layer, batch)))
            grad_weights[layer] = grad_weights[layer] + grad if layer in grad_weights else grad

    order = ORDERS[me] if (ranks, model.BATCHES) == (4, 8) else paper_order(me, ranks, model.BATCHES)
    done = dict.fromkeys("fiwFIWxgXG", 0)
    for letter in order:
        if letter in "xXgG":  # the first that has not been received
            user = {"x": "f", "X": "F", "g": "i", "G": "I"}[letter]
            done[letter] = max(done[letter], done[user])
        await perform(letter.lower(), down if letter.islower() else up, done[letter])
        done[letter] += 1

    for layer in my_layers:
        weights[layer], opt_states[layer] = model.update(layer, grad_weights[layer], weights[layer], opt_states[layer])
        model.set_final_weight(layer, weights[layer])
    return model
