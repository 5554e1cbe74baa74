"""Data parallelism that decides layer by layer what is replicated, sharded, gathered once or twice, or computed twice.

The backward of the last layer starts right after its forward, so deleting that weight would only mean gathering it
again. While a weight is full, it replaces the rank's own shard, which is cut from it after the backward. Memory peaks
at the first backward: the full weights, shards of everything else, and all inputs that are kept; that of layer 0 is
loaded again. Each further layer that stays full saves a gather, and at the peak takes the memory of a weight without
the rank's own shard. An input that is computed again costs a forward; a weight that is gathered for that stays full
for its own backward, if memory allows it. A replicated layer needs no gather and an all-reduce, which sends as much.
The variants are the front of a search over these choices.
"""

from lib import Model

REPLICATED = 0
"""How many layers, counted from the first, every rank keeps with their optimizer states; others are in shards."""

FULL = 1
"""How many layers, counted from the last, keep their full weight from forward to backward."""

TWICE = set()
"""Layers whose inputs are dropped on the way forward and computed again."""

GATHERED_AGAIN = False
"""Whether weights are dropped again after a second forward; otherwise they stay full until their backward."""

VARIANTS = {
    # Five weights of six gathered twice.
    "six_layers_one_full": {"REPLICATED": 0, "FULL": 1, "TWICE": set(), "GATHERED_AGAIN": False},
    # Plain data parallelism: nothing is sharded, the least time and traffic.
    "six_layers_six_replicated": {"REPLICATED": 6, "FULL": 0, "TWICE": set(), "GATHERED_AGAIN": False},
    # The first five of six layers replicated: that saves five gathers in time, for the memory of full states.
    "six_layers_five_replicated": {"REPLICATED": 5, "FULL": 1, "TWICE": set(), "GATHERED_AGAIN": False},
    # The first four of six layers replicated: that saves four gathers in time, for the memory of full states.
    "six_layers_four_replicated": {"REPLICATED": 4, "FULL": 2, "TWICE": set(), "GATHERED_AGAIN": False},
    # The first three of six layers replicated: that saves three gathers in time, for the memory of full states.
    "six_layers_three_replicated": {"REPLICATED": 3, "FULL": 3, "TWICE": set(), "GATHERED_AGAIN": False},
    # The first two of six layers replicated: that saves two gathers in time, for the memory of full states.
    "six_layers_two_replicated": {"REPLICATED": 2, "FULL": 4, "TWICE": set(), "GATHERED_AGAIN": False},
    # The first of six layers replicated: that saves one gather in time, for the memory of full states.
    "six_layers_one_replicated": {"REPLICATED": 1, "FULL": 5, "TWICE": set(), "GATHERED_AGAIN": False},
    # Every weight is gathered once: the least traffic.
    "six_layers_six_full": {"REPLICATED": 0, "FULL": 6, "TWICE": set(), "GATHERED_AGAIN": False},
    # One weight of six gathered twice.
    "six_layers_five_full": {"REPLICATED": 0, "FULL": 5, "TWICE": set(), "GATHERED_AGAIN": False},
    # Two weights of six gathered twice.
    "six_layers_four_full": {"REPLICATED": 0, "FULL": 4, "TWICE": set(), "GATHERED_AGAIN": False},
    # Three weights of six gathered twice.
    "six_layers_three_full": {"REPLICATED": 0, "FULL": 3, "TWICE": set(), "GATHERED_AGAIN": False},
    # Every weight is gathered once: the least traffic; one input computed again.
    "six_layers_six_full_one_twice": {"REPLICATED": 0, "FULL": 6, "TWICE": {1}, "GATHERED_AGAIN": False},
    # Four weights of six gathered twice.
    "six_layers_two_full": {"REPLICATED": 0, "FULL": 2, "TWICE": set(), "GATHERED_AGAIN": False},
    # One weight of six gathered twice; one input computed again.
    "six_layers_five_full_one_twice": {"REPLICATED": 0, "FULL": 5, "TWICE": {1}, "GATHERED_AGAIN": False},
    # Two weights of six gathered twice; one input computed again.
    "six_layers_four_full_one_twice": {"REPLICATED": 0, "FULL": 4, "TWICE": {1}, "GATHERED_AGAIN": False},
    # Three weights of six gathered twice; one input computed again.
    "six_layers_three_full_one_twice": {"REPLICATED": 0, "FULL": 3, "TWICE": {1}, "GATHERED_AGAIN": False},
    # Every weight is gathered once: the least traffic; two inputs computed again.
    "six_layers_six_full_two_twice": {"REPLICATED": 0, "FULL": 6, "TWICE": {1, 2}, "GATHERED_AGAIN": False},
    # Four weights of six gathered twice; one input computed again.
    "six_layers_two_full_one_twice": {"REPLICATED": 0, "FULL": 2, "TWICE": {1}, "GATHERED_AGAIN": False},
    # One weight of six gathered twice; two inputs computed again.
    "six_layers_five_full_two_twice": {"REPLICATED": 0, "FULL": 5, "TWICE": {1, 2}, "GATHERED_AGAIN": False},
    # Two weights of six gathered twice; two inputs computed again.
    "six_layers_four_full_two_twice": {"REPLICATED": 0, "FULL": 4, "TWICE": {1, 2}, "GATHERED_AGAIN": False},
    # Three weights of six gathered twice; two inputs computed again.
    "six_layers_three_full_two_twice": {"REPLICATED": 0, "FULL": 3, "TWICE": {1, 2}, "GATHERED_AGAIN": False},
    # Every weight is gathered once: the least traffic; three inputs computed again.
    "six_layers_six_full_three_twice": {"REPLICATED": 0, "FULL": 6, "TWICE": {1, 2, 3}, "GATHERED_AGAIN": False},
    # Four weights of six gathered twice; two inputs computed again.
    "six_layers_two_full_two_twice": {"REPLICATED": 0, "FULL": 2, "TWICE": {1, 3}, "GATHERED_AGAIN": False},
    # One weight of six gathered twice; three inputs computed again.
    "six_layers_five_full_three_twice": {"REPLICATED": 0, "FULL": 5, "TWICE": {1, 2, 3}, "GATHERED_AGAIN": False},
    # Five weights of six gathered twice; two inputs computed again.
    "six_layers_one_full_two_twice": {"REPLICATED": 0, "FULL": 1, "TWICE": {1, 3}, "GATHERED_AGAIN": False},
    # Two weights of six gathered twice; three inputs computed again.
    "six_layers_four_full_three_twice": {"REPLICATED": 0, "FULL": 4, "TWICE": {1, 2, 4}, "GATHERED_AGAIN": False},
    # Three weights of six gathered twice; three inputs computed again.
    "six_layers_three_full_three_twice": {"REPLICATED": 0, "FULL": 3, "TWICE": {1, 2, 4}, "GATHERED_AGAIN": False},
    # Five weights of six gathered twice; two inputs computed again, with gathers of their own.
    "six_layers_one_full_two_twice_gathered_again": {
        "REPLICATED": 0,
        "FULL": 1,
        "TWICE": {1, 2},
        "GATHERED_AGAIN": True,
    },
    # Five weights of six gathered twice; three inputs computed again, with gathers of their own.
    "six_layers_one_full_three_twice": {"REPLICATED": 0, "FULL": 1, "TWICE": {1, 2, 4}, "GATHERED_AGAIN": True},
    # Every weight is gathered once: the least traffic.
    "eight_layers_eight_full": {"REPLICATED": 0, "FULL": 8, "TWICE": set(), "GATHERED_AGAIN": False},
    # One weight of eight gathered twice.
    "eight_layers_seven_full": {"REPLICATED": 0, "FULL": 7, "TWICE": set(), "GATHERED_AGAIN": False},
    # Two weights of eight gathered twice.
    "eight_layers_six_full": {"REPLICATED": 0, "FULL": 6, "TWICE": set(), "GATHERED_AGAIN": False},
    # Three weights of eight gathered twice.
    "eight_layers_five_full": {"REPLICATED": 0, "FULL": 5, "TWICE": set(), "GATHERED_AGAIN": False},
    # Every weight is gathered once: the least traffic; one input computed again.
    "eight_layers_eight_full_one_twice": {"REPLICATED": 0, "FULL": 8, "TWICE": {1}, "GATHERED_AGAIN": False},
    # Four weights of eight gathered twice.
    "eight_layers_four_full": {"REPLICATED": 0, "FULL": 4, "TWICE": set(), "GATHERED_AGAIN": False},
    # One weight of eight gathered twice; one input computed again.
    "eight_layers_seven_full_one_twice": {"REPLICATED": 0, "FULL": 7, "TWICE": {1}, "GATHERED_AGAIN": False},
    # Five weights of eight gathered twice.
    "eight_layers_three_full": {"REPLICATED": 0, "FULL": 3, "TWICE": set(), "GATHERED_AGAIN": False},
    # Two weights of eight gathered twice; one input computed again.
    "eight_layers_six_full_one_twice": {"REPLICATED": 0, "FULL": 6, "TWICE": {1}, "GATHERED_AGAIN": False},
    # Six weights of eight gathered twice.
    "eight_layers_two_full": {"REPLICATED": 0, "FULL": 2, "TWICE": set(), "GATHERED_AGAIN": False},
    # Three weights of eight gathered twice; one input computed again.
    "eight_layers_five_full_one_twice": {"REPLICATED": 0, "FULL": 5, "TWICE": {1}, "GATHERED_AGAIN": False},
    # Every weight is gathered once: the least traffic; two inputs computed again.
    "eight_layers_eight_full_two_twice": {"REPLICATED": 0, "FULL": 8, "TWICE": {1, 2}, "GATHERED_AGAIN": False},
    # Seven weights of eight gathered twice.
    "eight_layers_one_full": {"REPLICATED": 0, "FULL": 1, "TWICE": set(), "GATHERED_AGAIN": False},
    # Four weights of eight gathered twice; one input computed again.
    "eight_layers_four_full_one_twice": {"REPLICATED": 0, "FULL": 4, "TWICE": {1}, "GATHERED_AGAIN": False},
    # One weight of eight gathered twice; two inputs computed again.
    "eight_layers_seven_full_two_twice": {"REPLICATED": 0, "FULL": 7, "TWICE": {1, 2}, "GATHERED_AGAIN": False},
    # Five weights of eight gathered twice; one input computed again.
    "eight_layers_three_full_one_twice": {"REPLICATED": 0, "FULL": 3, "TWICE": {1}, "GATHERED_AGAIN": False},
    # Two weights of eight gathered twice; two inputs computed again.
    "eight_layers_six_full_two_twice": {"REPLICATED": 0, "FULL": 6, "TWICE": {1, 2}, "GATHERED_AGAIN": False},
    # Six weights of eight gathered twice; one input computed again.
    "eight_layers_two_full_one_twice": {"REPLICATED": 0, "FULL": 2, "TWICE": {1}, "GATHERED_AGAIN": False},
    # Three weights of eight gathered twice; two inputs computed again.
    "eight_layers_five_full_two_twice": {"REPLICATED": 0, "FULL": 5, "TWICE": {1, 2}, "GATHERED_AGAIN": False},
    # Every weight is gathered once: the least traffic; three inputs computed again.
    "eight_layers_eight_full_three_twice": {"REPLICATED": 0, "FULL": 8, "TWICE": {1, 2, 3}, "GATHERED_AGAIN": False},
    # Four weights of eight gathered twice; two inputs computed again.
    "eight_layers_four_full_two_twice": {"REPLICATED": 0, "FULL": 4, "TWICE": {1, 2}, "GATHERED_AGAIN": False},
    # One weight of eight gathered twice; three inputs computed again.
    "eight_layers_seven_full_three_twice": {"REPLICATED": 0, "FULL": 7, "TWICE": {1, 2, 3}, "GATHERED_AGAIN": False},
    # Five weights of eight gathered twice; two inputs computed again.
    "eight_layers_three_full_two_twice": {"REPLICATED": 0, "FULL": 3, "TWICE": {1, 2}, "GATHERED_AGAIN": False},
    # Two weights of eight gathered twice; three inputs computed again.
    "eight_layers_six_full_three_twice": {"REPLICATED": 0, "FULL": 6, "TWICE": {1, 2, 3}, "GATHERED_AGAIN": False},
    # Six weights of eight gathered twice; two inputs computed again.
    "eight_layers_two_full_two_twice": {"REPLICATED": 0, "FULL": 2, "TWICE": {1, 2}, "GATHERED_AGAIN": False},
    # Three weights of eight gathered twice; three inputs computed again.
    "eight_layers_five_full_three_twice": {"REPLICATED": 0, "FULL": 5, "TWICE": {1, 2, 3}, "GATHERED_AGAIN": False},
    # Every weight is gathered once: the least traffic; four inputs computed again.
    "eight_layers_eight_full_four_twice": {"REPLICATED": 0, "FULL": 8, "TWICE": {1, 2, 3, 4}, "GATHERED_AGAIN": False},
    # Four weights of eight gathered twice; three inputs computed again.
    "eight_layers_four_full_three_twice": {"REPLICATED": 0, "FULL": 4, "TWICE": {1, 2, 3}, "GATHERED_AGAIN": False},
    # One weight of eight gathered twice; four inputs computed again.
    "eight_layers_seven_full_four_twice": {"REPLICATED": 0, "FULL": 7, "TWICE": {1, 2, 3, 4}, "GATHERED_AGAIN": False},
    # Five weights of eight gathered twice; three inputs computed again.
    "eight_layers_three_full_three_twice": {"REPLICATED": 0, "FULL": 3, "TWICE": {1, 2, 4}, "GATHERED_AGAIN": False},
    # Two weights of eight gathered twice; four inputs computed again.
    "eight_layers_six_full_four_twice": {"REPLICATED": 0, "FULL": 6, "TWICE": {1, 2, 3, 4}, "GATHERED_AGAIN": False},
    # Six weights of eight gathered twice; three inputs computed again.
    "eight_layers_two_full_three_twice": {"REPLICATED": 0, "FULL": 2, "TWICE": {1, 2, 4}, "GATHERED_AGAIN": False},
    # Three weights of eight gathered twice; four inputs computed again.
    "eight_layers_five_full_four_twice": {"REPLICATED": 0, "FULL": 5, "TWICE": {1, 2, 3, 5}, "GATHERED_AGAIN": False},
    # Every weight is gathered once: the least traffic; five inputs computed again.
    "eight_layers_eight_full_five_twice": {
        "REPLICATED": 0,
        "FULL": 8,
        "TWICE": {1, 2, 3, 4, 5},
        "GATHERED_AGAIN": False,
    },
    # Seven weights of eight gathered twice; three inputs computed again.
    "eight_layers_one_full_three_twice": {"REPLICATED": 0, "FULL": 1, "TWICE": {1, 3, 5}, "GATHERED_AGAIN": False},
    # Four weights of eight gathered twice; four inputs computed again.
    "eight_layers_four_full_four_twice": {"REPLICATED": 0, "FULL": 4, "TWICE": {1, 2, 3, 5}, "GATHERED_AGAIN": False},
    # One weight of eight gathered twice; five inputs computed again.
    "eight_layers_seven_full_five_twice": {
        "REPLICATED": 0,
        "FULL": 7,
        "TWICE": {1, 2, 3, 4, 6},
        "GATHERED_AGAIN": False,
    },
    # Five weights of eight gathered twice; four inputs computed again.
    "eight_layers_three_full_four_twice": {"REPLICATED": 0, "FULL": 3, "TWICE": {1, 2, 4, 5}, "GATHERED_AGAIN": False},
    # Two weights of eight gathered twice; five inputs computed again.
    "eight_layers_six_full_five_twice": {"REPLICATED": 0, "FULL": 6, "TWICE": {1, 2, 3, 5, 6}, "GATHERED_AGAIN": False},
    # Six weights of eight gathered twice; four inputs computed again.
    "eight_layers_two_full_four_twice": {"REPLICATED": 0, "FULL": 2, "TWICE": {1, 2, 4, 6}, "GATHERED_AGAIN": False},
    # Three weights of eight gathered twice; five inputs computed again.
    "eight_layers_five_full_five_twice": {
        "REPLICATED": 0,
        "FULL": 5,
        "TWICE": {1, 2, 3, 5, 6},
        "GATHERED_AGAIN": False,
    },
    # Every weight is gathered once: the least traffic.
    "four_layers_four_full": {"REPLICATED": 0, "FULL": 4, "TWICE": set(), "GATHERED_AGAIN": False},
    # One weight of four gathered twice.
    "four_layers_three_full": {"REPLICATED": 0, "FULL": 3, "TWICE": set(), "GATHERED_AGAIN": False},
    # Two weights of four gathered twice.
    "four_layers_two_full": {"REPLICATED": 0, "FULL": 2, "TWICE": set(), "GATHERED_AGAIN": False},
    # Three weights of four gathered twice.
    "four_layers_one_full": {"REPLICATED": 0, "FULL": 1, "TWICE": set(), "GATHERED_AGAIN": False},
    # Every weight is gathered once: the least traffic; one input computed again.
    "four_layers_four_full_one_twice": {"REPLICATED": 0, "FULL": 4, "TWICE": {1}, "GATHERED_AGAIN": False},
    # One weight of four gathered twice; one input computed again.
    "four_layers_three_full_one_twice": {"REPLICATED": 0, "FULL": 3, "TWICE": {1}, "GATHERED_AGAIN": False},
    # Two weights of four gathered twice; one input computed again.
    "four_layers_two_full_one_twice": {"REPLICATED": 0, "FULL": 2, "TWICE": {1}, "GATHERED_AGAIN": False},
    # Three weights of four gathered twice; one input computed again.
    "four_layers_one_full_one_twice": {"REPLICATED": 0, "FULL": 1, "TWICE": {1}, "GATHERED_AGAIN": False},
    # Every weight is gathered once: the least traffic; two inputs computed again.
    "four_layers_four_full_two_twice": {"REPLICATED": 0, "FULL": 4, "TWICE": {1, 2}, "GATHERED_AGAIN": False},
    # Three weights of four gathered twice; one input computed again, with gathers of their own.
    "four_layers_one_full_one_twice_gathered_again": {"REPLICATED": 0, "FULL": 1, "TWICE": {1}, "GATHERED_AGAIN": True},
    # One weight of two gathered twice.
    "two_layers_one_full": {"REPLICATED": 0, "FULL": 1, "TWICE": set(), "GATHERED_AGAIN": False},
}


async def fsdp(model: Model) -> Model:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()
    last = model.LAYERS - 1
    full = range(max(model.LAYERS - FULL, 0), model.LAYERS)
    batches = range(model.rank, model.BATCHES, model.RANKS)
    kept = {0}  # inputs that a rank with batches has; it can always read that of layer 0 again

    for layer in range(model.LAYERS):
        part = (0, 1) if layer < REPLICATED else (model.rank, model.RANKS)
        weights[layer], opt_states[layer] = model.load_weights(layer, *part)

    def keep_shard(layer):
        if layer >= REPLICATED:
            weights[layer] = weights[layer].shard(model.rank, model.RANKS)

    async def gather(layer):
        if not weights[layer].is_complete():
            weights[layer] = await model.allgather(weights[layer], layer)

    async def forward(layer):
        await gather(layer)
        if batches:
            inp = activations[layer] if layer else model.get_activation(batches)
            activations[layer + 1] = model.forward(layer, inp, weights[layer])
        kept.add(layer + 1)

    for layer in range(model.LAYERS):
        await forward(layer)
        if layer not in full and layer != last:
            keep_shard(layer)
        if layer in TWICE:
            kept.discard(layer)
            activations.pop(layer, None)
    if batches:
        grad_activations["out"] = model.loss(activations.pop(model.LAYERS))

    for layer in reversed(range(model.LAYERS)):
        for before in range(max(kept & {*range(layer + 1)}), layer):
            await forward(before)
            if GATHERED_AGAIN and before not in full:
                keep_shard(before)
        await gather(layer)
        if batches:
            inp = activations.pop(layer) if layer else model.get_activation(batches)
            grad_weights[layer], grad_activations["out"] = model.backward(
                layer, inp, grad_activations["out"], weights[layer]
            )
            del inp
        else:
            grad_weights[layer] = model.fake_grad(layer, [])
        kept.discard(layer)
        keep_shard(layer)
        if layer == 0:
            grad_activations.clear()
        reduce = model.allreduce if layer < REPLICATED else model.scatterreduce
        grad_weights[layer] = await reduce(grad_weights[layer], layer)

        # All ranks update at the same time, so no rank waits for it.
        weights[layer], opt_states[layer] = model.update(
            layer, grad_weights.pop(layer), weights[layer], opt_states[layer]
        )
        model.set_final_weight(layer, weights[layer])
    return model


ddp = wsdp = pipeline = gpipe = zero1 = fsdp
"""Puzzles of other sizes; each variant says for how many layers it is."""
