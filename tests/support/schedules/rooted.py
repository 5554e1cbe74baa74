"""Schedules with broadcasts and reduces: of gradients and weights, of activations in a group, and of norms."""

from dataclasses import replace
from typing import Any

from lib import COSTS, Model

from .clipping import Rank, pipeline

COSTS_WITH_ROOTS = replace(
    COSTS["classic"], name="roots", ticks={**COSTS["classic"].ticks, "broadcast": 2, "reduce": 1}
)


async def owned(model: Model) -> None:
    """Each layer has an owner, which gets the sum of its gradients, updates the weight and broadcasts it."""
    rank, n = Rank(model), model.RANKS
    for step in range(model.dist.setting.steps):
        grads = rank.gradients(range(model.rank, model.BATCHES, n), step)
        for layer in reversed(rank.layers):
            new: Any = None
            total: Any = await model.reduce(grads[layer], layer, to=layer % n)
            if model.rank == layer % n:
                new, rank.states[layer] = model.update(layer, total, rank.weights[layer], rank.states[layer])
            rank.weights[layer] = await model.broadcast(new, layer, source=layer % n)
    rank.declare()


async def shared_head(model: Model) -> None:
    """Rank 1 has layer 0 and broadcasts its outputs to all, which share the microbatches of layer 1. A message that is
    sent before a broadcast is read after it."""
    weight, state = model.load_weights(0 if model.rank == 1 else 1)
    head = weight if model.rank != 1 else model.load_weights(1)[0]
    inputs, total = [model.get_activation([batch]) for batch in range(model.BATCHES)], model.fake_grad(1, [])
    for batch, inp in enumerate(inputs):
        mine = batch % model.RANKS == model.rank
        if model.rank == 1:
            await model.pass_to(2, head, tag=1)
        out = await model.broadcast(model.forward(0, inp, weight) if model.rank == 1 else None, 1, source=1)
        if model.rank == 2:
            await model.receive(1, tag=1)
        if mine:
            own, grad = model.backward(1, out, model.loss(model.forward(1, out, head)), head)
            total += own
            if model.rank != 1:
                await model.pass_to(1, grad, tag=2)
        if model.rank == 1:
            grad = grad if mine else await model.receive(batch % model.RANKS, tag=2)
            own, _ = model.backward(0, inp, grad, weight)
            model.grad_weights[0] = own if 0 not in model.grad_weights else model.grad_weights[0] + own
    summed: Any = await model.reduce(total, 1)
    if model.rank == 0:
        model.set_final_weight(1, model.update(1, summed, weight, state)[0])
    if model.rank == 1:
        model.set_final_weight(0, model.update(0, model.grad_weights[0], weight, state)[0])


async def clipped(model: Model) -> None:
    """A pipeline in which the norms meet on the last rank, which broadcasts their sum."""

    async def total(model: Model, norm: Any) -> Any:
        last = model.RANKS - 1
        return await model.broadcast(await model.reduce(norm, model.rank, to=last), 0, source=last)

    await pipeline(model, total)
