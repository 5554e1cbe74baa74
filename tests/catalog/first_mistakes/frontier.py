"""First mistakes with updates on the host, and with a pipeline of two ways."""

from __future__ import annotations

from tests.support.mistakes import Mistake

UPDATE = '            updates[layer] = model.update(layer, leaving[layer], *masters, on="host")\n'
ON_DEVICE = (
    '            parked["weight", layer], parked["state", layer] = model.update(\n'
    "                layer, await leaving.pop(layer), *masters)\n"
)
SUM = (
    "    await model.pass_to(other, grad_weights.pop(other), tag=model.BATCHES)\n"
    "    add(me, await model.receive(other, tag=model.BATCHES))\n"
)
SEND_BACK = (
    "    await model.pass_to(other, weights[me], tag=model.BATCHES)\n"
    "    weights[other] = await model.receive(other, tag=model.BATCHES)\n"
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
    Mistake("two_ways", "no sum of both copies", ((SUM, ""),), ("only batches 0-3 of 8", "first add batches 4-7")),
    Mistake(
        "two_ways",
        "both copies are updated by one rank each, and not sent back",
        ((SEND_BACK, ""),),
        (
            "rank 0 ended with less of the weight of layer 3 than at the start; rank 1",
            "get it from the rank that updates it",
        ),
    ),
    Mistake(
        "two_ways",
        "both ways begin with microbatch 0",
        (("half * (steps[way] < 0)", "0"),),
        ("activations[0]", "nothing is stored under this key"),
    ),
    Mistake(
        "two_ways",
        "the second way goes the same way",
        (("(1, -1) if me == near else (-1, 1)", "(1, 1) if me == near else (-1, -1)"),),
        ("rank -1 does not exist", "there are ranks 0 to 3"),
    ),
    Mistake(
        "two_ways",
        "messages forward have no tag",
        (("out, tag=batch", "out"),),
        ("pass_to(1) on line 53", "receive(2, tag=4) on line 44", "in a circle"),
    ),
    Mistake(
        "two_ways",
        "both halves of a pair with one weight",
        (("grad_activations.pop(old), weights[layers[other]]", "grad_activations.pop(old), weights[layer]"),),
        ("this is the weight of layer 0", "pass the weight of layer 3"),
    ),
]
