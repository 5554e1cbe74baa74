"""A family of skips: DDP whose gradients are summed in buckets of given sizes while backward goes on."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from lib import Model


def buckets(
    *sizes: int, halves: bool = False, wait: bool = False, early: Sequence[int] = ()
) -> Callable[[Model], Awaitable[None]]:
    """`sizes` are the layers in each bucket, in the order of backward, from the last layer to the first.

    `halves`: a bucket is scattered, each rank updates a shard, and the weights of the bucket are gathered. `wait`: each
    sum is awaited before backward goes on. `early`: so many buckets are updated after each backward; the others at the
    end.
    """

    async def schedule(model: Model) -> None:
        weights, states, acts, grads, new = model.storage()
        cut = (model.rank, model.RANKS)
        for layer in range(model.LAYERS):
            weights[layer], states[layer] = model.load_weights(layer)
            if halves:
                states[layer] = states[layer].shard(*cut)
        acts[0] = model.get_activation([model.rank])
        for layer in range(model.LAYERS):
            acts[layer + 1] = model.forward(layer, acts[layer], weights[layer])
            if layer == 0:
                del acts[0]
        grads[model.LAYERS] = model.loss(acts.pop(model.LAYERS))

        pending: list[tuple[list[int], Any]] = []
        gathers: list[tuple[list[int], Any]] = []
        turns = iter(early)

        async def update(count: int) -> None:
            for _ in range(count):
                bucket, call = pending.pop(0)
                if not wait:
                    new.update(zip(bucket, await call))
                for layer in bucket:
                    if halves:
                        weights[layer] = weights[layer].shard(*cut)
                    weights[layer], states[layer] = model.update(layer, new.pop(layer), weights[layer], states[layer])
                if halves:
                    gathers.append((bucket, model.allgather([weights[one] for one in bucket], bucket)))

        backwards = reversed(range(model.LAYERS))
        for size in sizes:
            bucket = [next(backwards) for _ in range(size)]
            for layer in bucket:
                if layer == 0:
                    acts[0] = model.get_activation([model.rank])
                new[layer], grads[layer] = model.backward(layer, acts.pop(layer), grads.pop(layer + 1), weights[layer])
                if layer != bucket[-1]:
                    await update(next(turns, 0))
            grads.pop(0, None)
            call: Any = (model.scatterreduce if halves else model.allreduce)([new.pop(one) for one in bucket], bucket)
            if wait:
                new.update(zip(bucket, await call))
            pending.append((bucket, call))
            await update(next(turns, 0))
        await update(len(pending))
        for bucket, call in gathers:
            weights.update(zip(bucket, await call))
        for layer in range(model.LAYERS):
            model.set_final_weight(layer, weights[layer])

    return schedule
