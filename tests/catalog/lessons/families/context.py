"""Rings of keys that skip a lesson: contiguous tokens, or blocks that are kept from forward to backward."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lib import Model


def ring(zigzag: bool, kept: bool) -> Callable[[Model], Any]:
    """Blocks go round; gradients of blocks go straight to their owners. Blocks are sent once if they are `kept`."""

    async def schedule(model: Model) -> Model:
        me, n, each = model.rank, model.RANKS, model.SHARES // model.RANKS
        own = [me, model.SHARES - 1 - me] if zigzag else [*range(me * each, (me + 1) * each)]
        owners = [(me - hop) % n for hop in range(n)]
        seen = [owner for owner in owners if zigzag or owner <= me]
        loaded = [model.load_weights(layer) for layer in range(model.LAYERS)]
        inputs: list[Any] = [model.get_activation([0], shares=own)]
        mine: list[Any] = []
        stored: list[dict[int, Any]] = []
        sums: list[Any] = []

        async def blocks(first: Any) -> Any:
            for owner in owners:
                sending = model.pass_to((me + 1) % n, first) if owner != owners[-1] else None
                yield owner, first
                if sending is not None:
                    first = await model.receive((me - 1) % n)
                    await sending

        async def there(held: dict[int, Any]) -> Any:
            for owner in seen:
                yield owner, held.pop(owner)

        for layer, (weight, _) in enumerate(loaded):
            mine.append(model.keys(layer, inputs[layer], weight))
            stored.append({})
            out = None
            async for owner, block in blocks(mine[layer]):
                if owner in seen:
                    out = model.attend(layer, inputs[layer], [block], out)
                    if kept:
                        stored[layer][owner] = block
            inputs.append(out)
        grad = model.loss(inputs.pop())
        for layer, (weight, _) in reversed([*enumerate(loaded)]):
            through: Any = None
            parts, sent = [], []

            async for owner, block in there(stored[layer]) if kept else blocks(mine[layer]):
                if owner not in seen:
                    continue
                part, (of_keys,) = model.attend_backward(layer, inputs[layer], [block], grad)
                through = part if through is None else through + part
                if owner == me:
                    parts.append(of_keys)
                else:
                    sent.append(model.pass_to(owner, of_keys, tag=1))
            for other in range(n):
                if other != me and (zigzag or other > me):
                    parts.append(await model.receive(other, tag=1))
            for one in sent:
                await one
            grad_weight, grad = model.keys_backward(layer, inputs.pop(), sum(parts), weight, through)
            del mine[layer]
            sums.append(model.allreduce(grad_weight, layer))
        for layer, (weight, state) in reversed([*enumerate(loaded)]):
            model.set_final_weight(layer, model.update(layer, await sums[-1 - layer], weight, state)[0])
        return model

    return schedule
