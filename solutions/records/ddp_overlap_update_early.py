"""DDP with overlap in uneven buckets, which updates upper layers while backward goes on: that frees their gradients.

The model's input is dropped after the first forward and taken again. An update during backward delays the backwards
below it, and the lane may then be idle; an update at the end fills the time in which the last sums travel. The first
bucket is small, so that the lane starts early.
"""

from lib import Model

SENT = (5, 3, 1, 0)
"""The layers whose backward completes a bucket, which is sent right after it."""

UPDATED = {5: 1}
"""By the layer that completes a bucket: the layer after whose backward the bucket's layers are updated. Others wait
for the end."""

VARIANTS = {
    # The least time: only the first bucket is updated before the end.
    "one_layer_early": {"SENT": (5, 3, 1, 0), "UPDATED": {5: 1}},
    # The two upper layers in the first bucket: the lane starts later, and both gradients go early.
    "two_layers_early": {"SENT": (4, 3, 1, 0), "UPDATED": {4: 1}},
    # One call more: two buckets of one layer are updated early, and the lane has less to do at the end.
    "two_calls_early": {"SENT": (5, 4, 2, 1, 0), "UPDATED": {5: 2, 4: 1}},
    # A first bucket of two layers, updated one backward earlier.
    "two_layers_earlier": {"SENT": (4, 2, 1, 0), "UPDATED": {4: 2}},
    # The least memory within the time: three layers are updated during backward.
    "three_layers_early": {"SENT": (5, 3, 1, 0), "UPDATED": {5: 3, 3: 1}},
}


async def ddp_overlap(model: Model) -> Model:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()

    for layer in range(model.LAYERS):
        weights[layer], opt_states[layer] = model.load_weights(layer)
    activations[0] = model.get_activation([model.rank])

    for layer in range(model.LAYERS):
        activations[layer + 1] = model.forward(layer, activations[layer], weights[layer])
        activations.pop(0, None)
    grad_activations[model.LAYERS] = model.loss(activations.pop(model.LAYERS))

    bucket, sums = [], {}

    async def update(sent):
        layers, handle = sums.pop(sent)
        grad_weights.update(zip(layers, await handle))
        for layer in layers:
            weights[layer], opt_states[layer] = model.update(
                layer, grad_weights.pop(layer), weights[layer], opt_states[layer]
            )
            model.set_final_weight(layer, weights[layer])

    for layer in reversed(range(model.LAYERS)):
        if layer == 0:
            activations[0] = model.get_activation([model.rank])
        grad_weights[layer], grad_activations[layer] = model.backward(
            layer, activations[layer], grad_activations[layer + 1], weights[layer]
        )
        del activations[layer], grad_activations[layer + 1]
        bucket.append(layer)
        if layer in SENT:
            if layer == 0:
                del grad_activations[0]
            sums[layer] = bucket, model.allreduce([grad_weights.pop(i) for i in bucket], bucket)
            bucket = []
        for sent in [sent for sent in sums if UPDATED.get(sent) == layer]:
            await update(sent)

    for sent in list(sums):
        await update(sent)
    return model
