"""Pipelines of one layer for each rank, in any order of forwards and of backwards, whole (B) or in halves (I and W)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from lib import Model

Order = Callable[[int, int, int], Iterator[tuple[str, int]]]
"""From rank, ranks and microbatches: what the rank does, in order."""


def gpipe(r: int, p: int, m: int) -> Iterator[tuple[str, int]]:
    """All forwards, then all backwards (Huang et al. 2019, section 2.3)."""
    yield from (("F", b) for b in range(m))
    yield from (("B", b) for b in range(m))


def one_f_one_b(r: int, p: int, m: int) -> Iterator[tuple[str, int]]:
    """Backwards as soon as they can be (Narayanan et al. 2019, section 3.2)."""
    ahead = min(p - r - 1, m)
    yield from (("F", b) for b in range(ahead))
    for b in range(m):
        if b + ahead < m:
            yield "F", b + ahead
        yield "B", b


def zero_bubble(warm_up: Callable[[int, int], int], late: Callable[[int], int]) -> Order:
    """So many forwards first; the weight half of a microbatch so many input halves late (Qi et al. 2024, section 2)."""

    def order(r: int, p: int, m: int) -> Iterator[tuple[str, int]]:
        ahead, behind = min(warm_up(r, p), m), late(r)
        yield from (("F", b) for b in range(ahead))
        for b in range(m):
            if b + ahead < m:
                yield "F", b + ahead
            yield "I", b
            if b >= behind:
                yield "W", b - behind
        yield from (("W", b) for b in range(max(0, m - behind), m))

    return order


zb_h1 = zero_bubble(lambda r, p: p - r - 1, lambda r: r)
zb_h2 = zero_bubble(lambda r, p: 2 * (p - r) - 2, lambda r: 2 * r)


def pipeline(order: Order, steps: int = 1) -> Callable[[Model], Any]:
    """The schedule in which each rank trains the layer of its own number, in an order, for some steps."""

    async def schedule(model: Model) -> None:
        weights, states, inputs, grads, weight_grads = model.storage()
        me, last = model.rank, model.RANKS - 1
        weights[me], states[me] = model.load_weights(me)

        def add(new: Any) -> None:
            weight_grads[me] = weight_grads[me] + new if me in weight_grads else new

        async def hand_on(to: int, value: Any) -> None:
            if to in range(model.RANKS):
                await model.pass_to(to, value)

        async def perform(action: str, step: int, b: int) -> None:
            if action == "F":
                inputs[b] = await model.receive(me - 1) if me else model.get_activation([b], step)
                out = model.forward(me, inputs[b], weights[me])
                if me == last:
                    grads[b] = model.loss(out)
                await hand_on(me + 1, out)
                return
            if action in "BI" and me < last:
                grads[b] = await model.receive(me + 1)
            if action == "B":
                new, grad = model.backward(me, inputs.pop(b), grads.pop(b), weights[me])
                add(new)
                await hand_on(me - 1, grad)
            elif action == "I":
                await hand_on(me - 1, model.backward_input(me, inputs[b], grads[b], weights[me]))
            else:
                add(model.backward_weight(me, inputs.pop(b), grads.pop(b)))

        for step in range(steps):
            for action, b in order(me, model.RANKS, model.BATCHES):
                await perform(action, step, b)
            weights[me], states[me] = model.update(me, weight_grads.pop(me), weights[me], states[me])
        model.set_final_weight(me, weights[me])

    return schedule
