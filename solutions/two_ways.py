"""DualPipeV: down the ranks and up again, so that a rank pairs a forward of one way with a backward of the other."""

from lib import Model


def dualpipev(rank, ranks, microbatches):
    """The slots of a rank, as in PyTorch's ScheduleDualPipeV (DeepSeek-AI 2024, DualPipe).

    Way 0 goes down the ranks, way 1 up. B is both halves of a backward, I and W are one each, and a slot of two
    operations is a pair."""
    below = ranks - 1 - rank
    slots = [("F0",)] * 2 * below + [("F0",), ("F1",)] * (rank + 1) + [("I1",), ("W1",), ("F1",)] * below
    slots += [("F0", "B1"), ("F1", "B0")] * (microbatches - ranks - below) + [("B1",), ("F1", "B0")] * below
    for k in range(2 * rank + 2):  # the last backwards: whole first, then the weight halves wait
        slots.append((f"{'B' if k <= rank else 'I'}{1 - k % 2}",))
    late = [("W" + slot[0][1],) for slot in slots[-2 * rank - 2 :] if slot[0][0] == "I"] + [("W0",)] * below
    return slots + [one for weight in late[:below] for one in (weight, ("I0",))] + late[below:]


async def two_ways(model: Model) -> Model:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()
    me, last = model.rank, model.RANKS - 1
    layers = me, model.LAYERS - 1 - me  # of way 0, and of way 1
    ahead = (me + 1, me - 1)  # the rank that a way comes to next; at the turn of the V it stays here
    numbers = {(op, way): 0 for op in "FIW" for way in (0, 1)}
    for layer in layers:
        weights[layer], opt_states[layer] = model.load_weights(layer)

    async def begin(cell):
        """The next microbatch of an operation, with what it needs from the rank before it."""
        op, way = cell[0], int(cell[1])
        for half in "IW" if op == "B" else op:
            batch = numbers[half, way]
            numbers[half, way] += 1
        tag = way * model.BATCHES + batch
        if op == "F" and layers[way] == 0:
            activations[way, batch] = model.get_activation([batch])
        elif op == "F" and (way, me) != (1, last):
            activations[way, batch] = await model.receive(ahead[1 - way], tag=tag)
        elif op in "BI" and (way, me) not in ((0, last), (1, 0)):
            grad_activations[way, batch] = await model.receive(ahead[way], tag=tag)
        return op, way, batch

    async def went_forward(way, batch, out):
        if layers[way] == model.LAYERS - 1:
            grad_activations[way, batch] = model.loss(out)
        elif (way, me) == (0, last):
            activations[1, batch] = out
        else:
            await model.pass_to(ahead[way], out, tag=way * model.BATCHES + batch)

    async def came_back(way, batch, grad):
        if (way, me) == (1, last):
            grad_activations[0, batch] = grad
        elif layers[way]:
            await model.pass_to(ahead[1 - way], grad, tag=way * model.BATCHES + batch)

    def add(layer, grad):
        grad_weights[layer] = grad_weights.pop(layer) + grad if layer in grad_weights else grad

    for slot in dualpipev(me, model.RANKS, model.BATCHES):
        started = [await begin(cell) for cell in slot]
        op, way, batch = started[0]
        key, layer = (way, batch), layers[way]
        if len(started) == 2:
            _, other, old = started[1]
            behind = activations.pop((other, old)), grad_activations.pop((other, old)), weights[layers[other]]
            out, (new, grad) = model.forward_backward(
                (layer, activations[key], weights[layer]), (layers[other], *behind)
            )
            del behind
            add(layers[other], new)
            await went_forward(way, batch, out)
            await came_back(other, old, grad)
        elif op == "F":
            await went_forward(way, batch, model.forward(layer, activations[key], weights[layer]))
        elif op == "I":
            grad = model.backward_input(layer, activations[key], grad_activations[key], weights[layer])
            await came_back(way, batch, grad)
        elif op == "W":
            add(layer, model.backward_weight(layer, activations.pop(key), grad_activations.pop(key)))
        else:
            new, grad = model.backward(layer, activations.pop(key), grad_activations.pop(key), weights[layer])
            add(layer, new)
            await came_back(way, batch, grad)

    for layer in layers:
        weights[layer], opt_states[layer] = model.update(
            layer, grad_weights.pop(layer), weights[layer], opt_states[layer]
        )
        model.set_final_weight(layer, weights[layer])
    return model
