"""Schedules with broadcasts and reduces: of gradients and weights, of activations in a group, and of norms."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from lib import COSTS, Model

from .clipping import Rank

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


async def data_parallel(model: Model) -> None:
    """All-reduces instead."""
    rank = Rank(model)
    grads = rank.gradients(range(model.rank, model.BATCHES, model.RANKS))
    rank.update([await model.allreduce(grad, layer) for layer, grad in enumerate(grads)], None)
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
    """As `pipeline` in the tests of clipping; the norms meet on the last rank, which broadcasts their sum."""
    layer, last = model.rank, model.RANKS - 1
    weight, state = model.load_weights(layer)
    inp = model.get_activation(range(model.BATCHES)) if layer == 0 else await model.receive(layer - 1)
    out = model.forward(layer, inp, weight)
    if layer < last:
        await model.pass_to(layer + 1, out)
    grad = model.loss(out) if layer == last else await model.receive(layer + 1)
    own, before = model.backward(layer, inp, grad, weight)
    if layer:
        await model.pass_to(layer - 1, before)
    total = await model.reduce(model.norm(layer, own), layer, to=last)
    scale = await model.broadcast(total, 0, source=last)
    model.set_final_weight(layer, model.update(layer, own, weight, state, scale=scale)[0])
