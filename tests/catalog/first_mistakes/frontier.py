"""First mistakes with updates on the host, and with a pipeline of two ways."""

from __future__ import annotations

from tests.support.mistakes import Mistake

UPDATE = '            updates[layer] = model.update(layer, leaving[layer], *masters, on="host")\n'
ON_DEVICE = (
    '            parked["weight", layer], parked["state", layer] = model.update(\n'
    "                layer, await leaving.pop(layer), *masters)\n"
)

FRONTIER = [
    Mistake(
        "host_update",
        "the update does not say where",
        ((UPDATE, ON_DEVICE),),
        ('on the host; to update it there, pass `on="host"`',),
    ),
    Mistake(
        "host_update",
        "the gradient stays on the device",
        (("model.offload(grad_weights.pop(layer))", "grad_weights.pop(layer)"),),
        ("the weight gradient of layer 5", "is on the device; offload it first"),
    ),
    Mistake(
        "host_update",
        "loads onto the device",
        ((', tier="host")', ")"),),
        ("parked holds parked values only", "store it in weights"),
    ),
    Mistake(
        "host_update",
        "the weights of the first step stay",
        (
            (
                "weights[layer] = await coming.pop(layer)\n            act",
                "weights[layer, step] = weights[layer] = await coming.pop(layer)\n            act",
            ),
        ),
        ("elements of it are never read again: 6 weights of layers 0-5, step 0", "Delete them before that"),
    ),
    Mistake(
        "host_update",
        "every step with the batches of step 0",
        (("(range(model.BATCHES), step)", "(range(model.BATCHES))"),),
        ("this gradient is of step 0, the weight at step 1", "the gradient of a batch of step 1"),
    ),
    Mistake(
        "host_update",
        "the update is not awaited",
        (("= await updates.pop(layer)", "= updates.pop(layer)"),),
        ("update(layer=5) on line 48", "await it first"),
    ),
    Mistake(
        "two_ways",
        "the turn of the V sends to itself",
        (("elif (way, me) == (0, last):\n            activations[1, batch] = out\n        ", ""),),
        ("rank 4 does not exist", "there are ranks 0 to 3"),
    ),
    Mistake(
        "two_ways",
        "the way up goes down",
        (("(me + 1, me - 1)", "(me + 1, me + 1)"),),
        ("rank 4 does not exist", "there are ranks 0 to 3"),
    ),
    Mistake(
        "two_ways",
        "messages forward have no tag",
        (("out, tag=way * model.BATCHES + batch", "out"),),
        ("pass_to(1) on line", "receive", "in a circle"),
    ),
    Mistake(
        "two_ways",
        "both ways are one in the keys",
        (("key, layer = (way, batch), layers[way]", "key, layer = (0, batch), layers[way]"),),
        ("activation of layer",),
    ),
    Mistake(
        "two_ways",
        "both halves of a pair with one weight",
        (("old)), weights[layers[other]]", "old)), weights[layer]"),),
        ("this is the weight of layer 3", "pass the weight of layer 4"),
    ),
]
