"""Replicas whose changes are averaged after some steps: at once or while the next step computes; or gradients, in each
step."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from lib import Model


def outer_steps(
    turns: Callable[[int], Sequence[int]], waits: bool = False, sums_gradients: bool = False
) -> Callable[[Model], Awaitable[None]]:
    """After step `step`, counted from 1, the layers `turns(step)` are averaged. All ranks wait for it, or go on and
    merge one step later. With `sums_gradients` all ranks have the same copies, so that their changes need no sum."""

    async def schedule(model: Model) -> None:
        weights, states, layers = model.weights, model.opt_states, range(model.LAYERS)
        pending: dict[int, Any] = {}

        async def average(layer: int) -> None:
            total = await pending.pop(layer)
            before, state = weights.pop(("agreed", layer)), states.pop(("outer", layer))
            weights["agreed", layer], states["outer", layer] = model.outer_update(layer, before, total, state)
            weights[layer] = model.merge(layer, weights[layer], weights["agreed", layer])

        for layer in layers:
            weights[layer], states[layer], states["outer", layer] = model.load_weights(layer, outer=True)
            weights["agreed", layer] = weights[layer]
        for step in range(1, model.dist.setting.steps + 1):
            inputs = [model.get_activation([model.rank], step - 1)]
            for layer in layers:
                inputs.append(model.forward(layer, inputs[layer], weights[layer]))
            grad = model.loss(inputs.pop())
            for layer in reversed(layers):
                new, grad = model.backward(layer, inputs.pop(), grad, weights[layer])
                if sums_gradients:
                    new = await model.allreduce(new, layer)
                weights[layer], states[layer] = model.update(layer, new, weights[layer], states[layer])
                del new
                if layer in pending:
                    await average(layer)
            for layer in turns(step):
                change = model.delta(layer, weights["agreed", layer], weights[layer])
                if sums_gradients:
                    before, state = weights.pop(("agreed", layer)), states.pop(("outer", layer))
                    weights["agreed", layer], states["outer", layer] = model.outer_update(layer, before, change, state)
                    weights[layer] = model.merge(layer, weights[layer], weights["agreed", layer])
                else:
                    pending[layer] = model.allreduce(change, layer)
                del change
                if waits:
                    await average(layer)
        for layer in [*pending]:
            total = await pending.pop(layer)
            weights["agreed", layer], states["outer", layer] = model.outer_update(
                layer, weights.pop(("agreed", layer)), total, states.pop(("outer", layer))
            )
        for layer in layers:
            model.set_final_weight(layer, weights["agreed", layer])
            model.set_final_copy(layer, weights[layer])

    return schedule


def all_together(step: int) -> Sequence[int]:
    """All of four layers after every fourth step."""
    return range(4) if step % 4 == 0 else ()


def two_together(step: int) -> Sequence[int]:
    """Two of four layers after every second step."""
    return {2: (0, 1), 0: (2, 3)}.get(step % 4, ())


def one_by_one(step: int) -> Sequence[int]:
    """One of four layers after each step."""
    return ((step - 1) % 4,)
