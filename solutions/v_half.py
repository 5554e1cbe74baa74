"""V-Half: a V whose ranks keep little more than half of 1F1B's activations, in an order found by turns.

In each turn every rank does the first of six things that it can do. All ranks make this plan, and make it alike.
"""

from lib import Model


def plan(ranks, batches, cap, share):
    """The actions of each rank, as (name, layer), and the number of turns. A rank keeps at most `cap` activations, and
    the early ranks leave some room for the way up: one for every `share` ranks below. None if all ranks are stuck."""
    layers = 2 * ranks
    count = {(name, layer): 0 for name in "FIW" for layer in range(layers)}
    orders, turns = [[] for _ in range(ranks)], 0
    while sum(map(len, orders)) < 3 * layers * batches:
        before, turns = dict(count), turns + 1  # a turn is a step: what it makes is there in the next one

        def can(name, layer, room, before=before):
            done, forwards = before[name, layer], before["F", layer]
            if name == "W":
                return done < before["I", layer]
            if name == "I":
                ahead = forwards if layer == layers - 1 else before["I", layer + 1]
                return done < min(ahead, forwards)
            return room > 0 and done < (before["F", layer - 1] if layer else batches)

        for rank, order in enumerate(orders):
            down, up = rank, layers - 1 - rank
            room = cap - sum(before["F", layer] - before["W", layer] for layer in (down, up))
            left = room - (ranks - 1 - rank) // share
            wanted = [("I", down), ("F", up), ("I", up), ("F", down), ("W", up), ("W", down)]
            for action in wanted:
                if can(*action, left if action == ("F", down) else room):
                    count[action] += 1
                    order.append(action)
                    break
        if count == before:
            return None
    return turns, orders


def best_plan(ranks, batches, cap):
    plans = [plan(ranks, batches, cap, share) for share in (1, 2, 4, ranks)]
    return min(found for found in plans if found is not None)[1]


async def v_half(model: Model) -> Model:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()
    me, ranks = model.rank, model.RANKS
    my_layers = me, model.LAYERS - 1 - me
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
        if owner(source) != me:
            storage[layer, batch] = await model.receive(owner(source), tag(layer, batch))

    async def forward(layer, batch):
        if layer == 0:
            activations[layer, batch] = model.get_activation([batch])
        else:
            await take(activations, layer, batch, layer - 1)
        out = model.forward(layer, activations[layer, batch], weights[layer])
        if layer == model.LAYERS - 1:
            grad_activations[layer, batch] = model.loss(out)
        else:
            await hand_on(activations, layer + 1, batch, out)

    async def backward_input(layer, batch):
        if layer < model.LAYERS - 1:
            await take(grad_activations, layer, batch, layer + 1)
        grad_in = model.backward_input(layer, activations[layer, batch], grad_activations[layer, batch], weights[layer])
        if layer > 0:
            await hand_on(grad_activations, layer - 1, batch, grad_in)

    async def backward_weight(layer, batch):
        inp, grad_out = activations.pop((layer, batch)), grad_activations.pop((layer, batch))
        grad = model.backward_weight(layer, inp, grad_out)
        grad_weights[layer] = grad_weights[layer] + grad if layer in grad_weights else grad

    perform = {"F": forward, "I": backward_input, "W": backward_weight}
    done = dict.fromkeys(((name, layer) for name in "FIW" for layer in my_layers), 0)
    for name, layer in best_plan(ranks, model.BATCHES, 2 * ((ranks + 2) // 2))[me]:
        await perform[name](layer, done[name, layer])
        done[name, layer] += 1

    for layer in my_layers:
        weights[layer], opt_states[layer] = model.update(
            layer, grad_weights.pop(layer), weights[layer], opt_states[layer]
        )
        model.set_final_weight(layer, weights[layer])
    return model
