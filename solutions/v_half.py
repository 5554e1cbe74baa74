"""V-Half: a V whose ranks keep little more than half of 1F1B's activations, in the repeating pattern of the paper.

The pattern gives each action of batch 0 a slot; the actions of batch j come 6 j slots later. A single step can be
faster than the pattern: in each turn every rank does the first action that is possible. All ranks make the same plan.
"""

from lib import Model

CHANGE = {"F": 1, "I": 0, "W": -1}
"""What an action adds to the activations that a rank keeps."""


def pattern(rank, ranks, batches):
    """The actions of a rank, as (name, layer, batch), in the order of their slots."""
    down, up = rank, 2 * ranks - 1 - rank
    back = 3 * ranks + (3 if ranks % 2 == 0 else 0)
    slots = {("F", down): 2 * rank, ("F", up): 3 * ranks - 2 - rank}
    slots |= {("I", up): back + 2 * rank - 1, ("I", down): back + 3 * ranks - 2 - rank}
    slots |= {("W", layer): slots["I", layer] + 2.5 for layer in (down, up)}
    return sorted(((*key, batch) for batch in range(batches) for key in slots), key=lambda a: slots[a[:2]] + 6 * a[2])


def plan(ranks, batches, cap):
    """The order of each rank's actions, which keeps at most `cap` activations."""
    orders, waiting, done = [[] for _ in range(ranks)], [pattern(rank, ranks, batches) for rank in range(ranks)], set()

    def is_ready(name, layer, batch):
        if name == "W":
            return ("I", layer, batch) in done
        if name == "I":
            return (("I", layer + 1, batch) if layer < 2 * ranks - 1 else ("F", layer, batch)) in done
        return layer == 0 or ("F", layer - 1, batch) in done

    def first_possible(rank):
        """The first action that is ready; a forward has to leave room for the actions before it in the pattern."""
        kept, actions = sum(CHANGE[action[0]] for action in orders[rank]), waiting[rank]
        if all(name != "F" for name, *_ in actions):
            actions = sorted(actions, key=lambda action: action[0] == "W")  # now only input gradients are urgent
        most = kept
        for action in actions:
            if is_ready(*action) and (action[0] != "F" or most < cap):
                return action
            kept += CHANGE[action[0]]
            most = max(most, kept)
        return None

    while any(waiting):
        turn = [first_possible(rank) for rank in range(ranks)]  # what a turn makes is there in the next one
        for rank, action in enumerate(turn):
            if action is not None:
                orders[rank].append(action)
                waiting[rank].remove(action)
                done.add(action)
    return orders


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
    for name, layer, batch in plan(ranks, model.BATCHES, 2 * ((ranks + 2) // 2))[me]:
        await perform[name](layer, batch)

    for layer in my_layers:
        weights[layer], opt_states[layer] = model.update(
            layer, grad_weights.pop(layer), weights[layer], opt_states[layer]
        )
        model.set_final_weight(layer, weights[layer])
    return model
