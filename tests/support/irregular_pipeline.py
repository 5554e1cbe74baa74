"""A pipeline as a player might write it: stages of different depths, microbatches out of order, and backwards in halves
on some ranks only."""

from lib import Model

LAYERS, MICROBATCHES, RANKS = 5, 6, 4

STAGES = {0: [0, 1], 1: [2], 2: [3], 3: [4]}
"""The layers of each rank."""

FORWARDS = [1, 0, 2, 4, 3, 5]
"""The order of microbatches on the ranks 0 and 1; the others take them in order."""

HALVED = (1, 3)
"""The ranks that take a backward in halves, and weight halves two at a time."""


async def irregular(model: Model) -> None:
    rank, layers = model.rank, STAGES[model.rank]
    weights, states, inputs, grads, sums = model.storage()
    waiting: list[int] = []
    for layer in layers:
        weights[layer], states[layer] = model.load_weights(layer)

    async def forward(b: int) -> None:
        inputs[layers[0], b] = await model.receive(rank - 1, tag=b) if rank else model.get_activation([b])
        for layer in layers:
            out = model.forward(layer, inputs[layer, b], weights[layer])
            if layer < layers[-1]:
                inputs[layer + 1, b] = out
        if rank < model.RANKS - 1:
            await model.pass_to(rank + 1, out, tag=b)
        else:
            grads[layers[-1], b] = model.loss(out)

    async def backward(b: int) -> None:
        if rank < model.RANKS - 1:
            grads[layers[-1], b] = await model.receive(rank + 1, tag=b)
        for layer in reversed(layers):
            if rank in HALVED:
                before = model.backward_input(layer, inputs[layer, b], grads[layer, b], weights[layer])
            else:
                new, before = model.backward(layer, inputs.pop((layer, b)), grads.pop((layer, b)), weights[layer])
                add(layer, new)
            if layer > layers[0]:
                grads[layer - 1, b] = before
        if rank:
            await model.pass_to(rank - 1, before, tag=b)

    def add(layer: int, new: object) -> None:
        sums[layer] = sums[layer] + new if layer in sums else new

    def weight_halves() -> None:
        while waiting:
            b = waiting.pop()
            for layer in layers:
                add(layer, model.backward_weight(layer, inputs.pop((layer, b)), grads.pop((layer, b))))

    async def backward_of(n: int) -> None:
        """The n-th; after every second one the weight halves that wait."""
        await backward(order[n])
        if rank in HALVED:
            waiting.append(order[n])
            if n % 2:
                weight_halves()

    order = FORWARDS if rank < 2 else sorted(FORWARDS)
    ahead = model.RANKS - rank
    for n, b in enumerate(order):
        await forward(b)
        if n + 1 >= ahead:
            await backward_of(n + 1 - ahead)
    for n in range(MICROBATCHES - ahead + 1, MICROBATCHES):
        await backward_of(n)
    weight_halves()
    for layer in layers:
        new_weight, _ = model.update(layer, sums.pop(layer), weights[layer], states[layer])
        model.set_final_weight(layer, new_weight)
