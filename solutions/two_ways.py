"""DualPipe: microbatches enter at both ends, so that a rank pairs a forward of one way with a backward of the other."""

from lib import Model


def dualpipe(outside, inside, microbatches):
    """The slots of a rank with so many ranks between it and its end, and between it and the middle (DeepSeek-AI 2024).

    Way 0 enters at this end, way 1 at the other; each has so many microbatches. B is both halves of a backward, I and
    W are one each, and a slot of two operations is a pair."""
    pairs = [("F0", "B1"), ("F1", "B0")] * (microbatches - outside - 2 * inside - 1)
    if not inside:
        pairs[:1] = [("F0",), ("B1",)]  # in the middle nothing hides the first backward
    slots = [("F0",)] * 2 * inside + [("F0",), ("F1",)] * (outside + 1) + [("I1",), ("W1",), ("F1",)] * inside
    slots += pairs + [("B1",), ("F1", "B0")] * inside
    for k in range(2 * outside + 2):  # the last backwards: whole first, then the weight halves wait
        slots.append((f"{'B' if k <= outside else 'I'}{1 - k % 2}",))
    late = [("W" + slot[0][1],) for slot in slots[-2 * outside - 2 :] if slot[0][0] == "I"] + [("W0",)] * inside
    return slots + [one for weight in late[:inside] for one in (weight, ("I0",))] + late[inside:]


async def two_ways(model: Model) -> Model:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()
    me, last, half = model.rank, model.RANKS - 1, model.BATCHES // 2
    near = min(me, last - me)  # ranks between this one and its end
    layers = near, last - near  # of way 0, and of way 1
    steps = (1, -1) if me == near else (-1, 1)  # the way down begins on rank 0 and has the first half
    numbers = {(op, way): half * (steps[way] < 0) for op in "FIW" for way in (0, 1)}

    for layer in layers:
        weights[layer], state = model.load_weights(layer)
        if layer == me:
            opt_states[layer] = state

    async def begin(cell):
        """The next microbatch of an operation, with what it needs from the rank before it."""
        op, way = cell[0], int(cell[1])
        for half_op in "IW" if op == "B" else op:
            key = batch = numbers[half_op, way]
            numbers[half_op, way] += 1
        if op == "F" and layers[way] == 0:
            activations[key] = model.get_activation([batch])
        elif op == "F":
            activations[key] = await model.receive(me - steps[way], tag=batch)
        elif op in "BI" and layers[way] < last:
            grad_activations[key] = await model.receive(me + steps[way], tag=batch)
        return op, way, batch

    async def went_forward(way, batch, out):
        if layers[way] == last:
            grad_activations[batch] = model.loss(out)
        else:
            await model.pass_to(me + steps[way], out, tag=batch)

    async def came_back(way, batch, grad):
        if layers[way]:
            await model.pass_to(me - steps[way], grad, tag=batch)

    def add(layer, grad):
        grad_weights[layer] = grad_weights.pop(layer) + grad if layer in grad_weights else grad

    for slot in dualpipe(near, last // 2 - near, half):
        started = [await begin(cell) for cell in slot]
        op, way, batch = started[0]
        layer = layers[way]
        if len(started) == 2:
            _, other, old = started[1]
            behind = activations.pop(old), grad_activations.pop(old), weights[layers[other]]
            out, (new, grad) = model.forward_backward(
                (layer, activations[batch], weights[layer]), (layers[other], *behind)
            )
            del behind
            await went_forward(way, batch, out)
            await came_back(other, old, grad)
            add(layers[other], new)
        elif op == "F":
            await went_forward(way, batch, model.forward(layer, activations[batch], weights[layer]))
        elif op == "I":
            grad = model.backward_input(layer, activations[batch], grad_activations[batch], weights[layer])
            await came_back(way, batch, grad)
        elif op == "W":
            add(layer, model.backward_weight(layer, activations.pop(batch), grad_activations.pop(batch)))
        else:
            new, grad = model.backward(layer, activations.pop(batch), grad_activations.pop(batch), weights[layer])
            await came_back(way, batch, grad)
            add(layer, new)

    other = last - me  # each rank updates one of its layers, with the sum of both copies' gradients
    await model.pass_to(other, grad_weights.pop(other), tag=model.BATCHES)
    add(me, await model.receive(other, tag=model.BATCHES))
    weights[me], opt_states[me] = model.update(me, grad_weights.pop(me), weights[me], opt_states[me])
    await model.pass_to(other, weights[me], tag=model.BATCHES)
    weights[other] = await model.receive(other, tag=model.BATCHES)
    model.set_final_weight(me, weights[me])
    return model
