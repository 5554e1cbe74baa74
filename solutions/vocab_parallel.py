"""A pipeline with a share of the head on each rank, and one more microbatch in flight than 1F1B has."""

from lib import Model

PRIORITY = "TSFB"


def order_of(ranks, batches, blocks):
    """What each rank does, in order: F and B of its blocks; S, its scores up to their input gradient; T, the weight
    gradient of its shard. Whoever can start first goes on, with the first operation of PRIORITY that can start."""
    ticks = {"F": 2 * blocks, "S": 16 / ranks, "B": 4 * blocks, "T": 8 / ranks}  # half steps; a head is four blocks
    start, free, orders = {}, [0] * ranks, [[] for _ in range(ranks)]
    begun = {(op, rank): 0 for op in PRIORITY for rank in range(ranks)}

    def end(op, rank, batch):
        return start[op, rank, batch] + ticks[op] if (op, rank, batch) in start else None

    def ready(op, rank, batch):
        """When all is there that an operation needs; None if that is not known yet."""
        if op == "F":
            if begun["F", rank] - begun["B", rank] > ranks - rank:
                return None
            return end("F", rank - 1, batch) if rank else 0
        if op == "S":  # the last rank passes its output to rank 0, and each rank passes it on
            return start.get(("S", rank - 1, batch)) if 0 < rank < ranks - 1 else end("F", ranks - 1, batch)
        if op == "B" and rank < ranks - 1:
            return end("B", rank + 1, batch)
        scores = [end("S", other, batch) for other in range(ranks)]
        return None if None in scores else max(scores) + 1  # the all-reduce

    while True:
        options = []
        for rank in range(ranks):
            for place, op in enumerate(PRIORITY):
                batch = begun[op, rank]
                at = ready(op, rank, batch) if batch < batches else None
                if at is not None:
                    options.append((max(at, free[rank]), rank, place, op, batch))
        if not options:
            return orders
        at, rank, _, op, batch = min(options)
        start[op, rank, batch], free[rank] = at, at + ticks[op]
        begun[op, rank] += 1
        orders[rank].append((op, batch))


async def vocab_parallel(model: Model) -> Model:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()
    me, last, head = model.rank, model.RANKS - 1, model.LAYERS - 1
    own = range(head * me // model.RANKS, head * (me + 1) // model.RANKS)
    sums = {}
    for layer in own:
        weights[layer], opt_states[layer] = model.load_weights(layer)
    weights[head], opt_states[head] = model.load_weights(head, me, model.RANKS)

    def add(layer, grad):
        grad_weights[layer] = grad_weights.pop(layer) + grad if layer in grad_weights else grad

    async def forward(batch):
        inp = await model.receive(me - 1, tag=batch) if me else model.get_activation([batch])
        for layer in own:
            activations[layer, batch] = inp
            inp = model.forward(layer, inp, weights[layer])
        if me < last:
            await model.pass_to(me + 1, inp, tag=batch)
        else:
            activations[head, batch] = inp
            await model.pass_to(0, inp, tag=batch)

    async def scores(batch):
        if me < last:
            source, tag = (me - 1, model.BATCHES + batch) if me else (last, batch)
            activations[head, batch] = await model.receive(source, tag=tag)
        if me < last - 1:
            await model.pass_to(me + 1, activations[head, batch], tag=model.BATCHES + batch)
        grad_activations[head, batch] = model.loss(model.forward(head, activations[head, batch], weights[head]))
        grad = model.backward_input(head, activations[head, batch], grad_activations[head, batch], weights[head])
        sums[batch] = model.allreduce(grad, head - 1)

    async def total(batch):
        """The sum of all input gradients of the head, when the all-reduce has ended."""
        if batch in sums:
            grad_activations["sum", batch] = await sums.pop(batch)
        return grad_activations["sum", batch]

    async def head_weight(batch):
        inp, grad = activations.pop((head, batch)), grad_activations.pop((head, batch))
        add(head, model.backward_weight(head, inp, grad, total=await total(batch)))
        if me < last or (own[-1], batch) not in activations:
            del grad_activations["sum", batch]

    async def backward(batch):
        grad = await total(batch) if me == last else await model.receive(me + 1, tag=batch)
        for layer in reversed(own):
            new, grad = model.backward(layer, activations.pop((layer, batch)), grad, weights[layer])
            add(layer, new)
        if me == last and (head, batch) not in activations:
            del grad_activations["sum", batch]
        if me:
            await model.pass_to(me - 1, grad, tag=batch)

    perform = {"F": forward, "S": scores, "B": backward, "T": head_weight}
    for op, batch in order_of(model.RANKS, model.BATCHES, len(own))[me]:
        await perform[op](batch)

    for layer in (*own, head):
        weights[layer], opt_states[layer] = model.update(
            layer, grad_weights.pop(layer), weights[layer], opt_states[layer]
        )
        model.set_final_weight(layer, weights[layer])
    return model
