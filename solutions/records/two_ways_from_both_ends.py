"""DualPipe: microbatches enter at both ends, so that a rank pairs a forward of one way with a backward of the other.

Each stage is on two ranks, one for each way. The bubble is smaller than in the V, for a second copy of the weights.
"""

from lib import Model


def dualpipe(outside, inside, microbatches):
    """The slots of a rank with so many ranks between it and its end, and between it and the middle (DeepSeek-AI 2024).

    Way 0 enters at this end, way 1 at the other; each has so many microbatches. B is both halves of a backward, I and
    W are one each, and a slot of two operations is a pair."""
    pairs = [("F0", "B1"), ("F1", "B0")] * (microbatches - outside - 2 * inside - 1)
    slots = [("F0",)] * 2 * inside + [("F0",), ("F1",)] * (outside + 1) + [("I1",), ("W1",), ("F1",)] * inside
    slots += pairs + [("B1",), ("F1", "B0")] * inside
    for k in range(2 * outside + 2):  # the last backwards: whole first, then the weight halves wait
        slots.append((f"{'B' if k <= outside else 'I'}{1 - k % 2}",))
    late = [("W" + slot[0][1],) for slot in slots[-2 * outside - 2 :] if slot[0][0] == "I"] + [("W0",)] * inside
    return slots + [one for weight in late[:inside] for one in (weight, ("I0",))] + late[inside:]


async def two_ways(model: Model) -> Model:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()
    me, last, half, depth = model.rank, model.RANKS - 1, model.BATCHES // 2, model.LAYERS // model.RANKS
    near = min(me, last - me)  # ranks between this one and its end
    stages = near, last - near  # of way 0, and of way 1
    steps = (1, -1) if me == near else (-1, 1)  # the way down begins on rank 0 and has the first half
    numbers = {(op, way): half * (steps[way] < 0) for op in "FIW" for way in (0, 1)}

    def layers_of(stage):
        return range(stage * depth, (stage + 1) * depth)

    for stage in stages:
        for layer in layers_of(stage):
            weights[layer], state = model.load_weights(layer)
            if stage == me:
                opt_states[layer] = state

    async def begin(cell):
        """The next microbatch of an operation, with what it needs from the rank before it."""
        op, way = cell[0], int(cell[1])
        for half_op in "IW" if op == "B" else op:
            batch = numbers[half_op, way]
            numbers[half_op, way] += 1
        layers = layers_of(stages[way])
        if op == "F":
            first = stages[way] == 0
            inp = model.get_activation([batch]) if first else await model.receive(me - steps[way], tag=batch)
            activations[layers[0], batch] = inp
        elif op in "BI" and stages[way] < last:
            grad_activations[layers[-1], batch] = await model.receive(me + steps[way], tag=batch)
        return op, way, batch

    async def went_forward(way, batch):
        out = activations.pop((layers_of(stages[way])[-1] + 1, batch))
        if stages[way] == last:
            grad_activations[model.LAYERS - 1, batch] = model.loss(out)
        else:
            await model.pass_to(me + steps[way], out, tag=batch)

    async def came_back(way, batch):
        grad = grad_activations.pop((layers_of(stages[way])[0] - 1, batch))
        if stages[way]:
            await model.pass_to(me - steps[way], grad, tag=batch)

    def add(layer, grad):
        grad_weights[layer] = grad_weights.pop(layer) + grad if layer in grad_weights else grad

    def forward(layer, batch):
        activations[layer + 1, batch] = model.forward(layer, activations[layer, batch], weights[layer])

    def backward(layer, batch):
        inp, grad_out = activations.pop((layer, batch)), grad_activations.pop((layer, batch))
        new, grad_activations[layer - 1, batch] = model.backward(layer, inp, grad_out, weights[layer])
        add(layer, new)

    def pair(layer, batch, other, old):
        """A forward of one layer, and a backward of another."""
        behind = activations.pop((other, old)), grad_activations.pop((other, old)), weights[other]
        activations[layer + 1, batch], (new, grad_activations[other - 1, old]) = model.forward_backward(
            (layer, activations[layer, batch], weights[layer]), (other, *behind)
        )
        add(other, new)

    for slot in dualpipe(near, last // 2 - near, half):
        started = [await begin(cell) for cell in slot]
        op, way, batch = started[0]
        layers = layers_of(stages[way])
        if len(started) == 2:
            _, other, old = started[1]
            for layer, behind in zip(layers, reversed(layers_of(stages[other]))):
                pair(layer, batch, behind, old)
            await went_forward(way, batch)
            await came_back(other, old)
        elif op == "F":
            for layer in layers:
                forward(layer, batch)
            await went_forward(way, batch)
        elif op == "I":
            for layer in reversed(layers):
                inp, grad_out = activations[layer, batch], grad_activations[layer, batch]
                grad_activations[layer - 1, batch] = model.backward_input(layer, inp, grad_out, weights[layer])
            await came_back(way, batch)
        elif op == "W":
            for layer in reversed(layers):
                inp, grad_out = activations.pop((layer, batch)), grad_activations.pop((layer, batch))
                add(layer, model.backward_weight(layer, inp, grad_out))
        else:
            for layer in reversed(layers):
                backward(layer, batch)
            await came_back(way, batch)

    # Each rank updates the layers of one of its stages, with the sum of both copies' gradients.
    other = last - me
    for layer in layers_of(other):
        await model.pass_to(other, grad_weights.pop(layer), tag=model.BATCHES + layer)
    for layer in layers_of(me):
        add(layer, await model.receive(other, tag=model.BATCHES + layer))
        weights[layer], opt_states[layer] = model.update(
            layer, grad_weights.pop(layer), weights[layer], opt_states[layer]
        )
        await model.pass_to(other, weights[layer], tag=model.BATCHES + layer)
        model.set_final_weight(layer, weights[layer])
    for layer in layers_of(other):
        weights[layer] = await model.receive(other, tag=model.BATCHES + layer)
    return model
