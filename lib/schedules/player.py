"""One coroutine that plays any timetable, including orders with older weights than data, and orders of token shares."""

from collections.abc import Callable, Coroutine, Sequence
from functools import lru_cache
from typing import Any

from lib import CLASSIC_SETTING, Activation, ActivationGrad, Model, RuleError, Weight, WeightGrad
from lib.values.algebra import counted
from lib.values.kinds import object_text

from .cells import Cell, untagged
from .timetable import Timetable
from .timetable_rank import TimetableRank, axes_of
from .words import SAYS


class UnflushedRank(TimetableRank):
    """One rank of an order of all steps' microbatches, whose weights may be older than the data."""

    async def all_steps(self, layers: Sequence[int]) -> None:
        model, setting = self.model, self.model.dist.setting
        self.step, self.lag, self.each = 0, setting.lag, self.table.batches // setting.steps
        self.left = dict.fromkeys([(step, layer) for step in range(setting.steps) for layer in layers], self.each)
        """By step and layer, the number of microbatches whose gradients are missing."""
        for layer in layers:
            model.weights[layer, 0] = model.weights.pop(layer)
        for slot in self.table.rows[self.place]:
            await self.play(slot, 0)
        for layer in layers:
            model.weights[layer] = model.weights.pop((layer, setting.steps))

    def first_input(self, batch: int, step: int) -> Activation:
        step, batch = divmod(batch, self.each)
        return super().first_input(batch, step)

    async def compute(self, cell: Cell, step: int = 0) -> Activation | ActivationGrad | None:
        self.step = cell.batch // self.each
        return await super().compute(cell, step)

    async def weight(self, layer: int) -> Weight:
        version = max(0, self.step - self.lag)
        if (layer, version) not in self.model.weights:
            raise RuleError(SAYS("version not made", step=self.step, version=version, layer=layer))
        return self.model.weights[layer, version]

    async def add(self, layer: int, new: WeightGrad) -> None:
        """Sums a step's gradients, and updates after the last. Drops a weight version when no later step computes with
        it."""
        grads, weights, states, step = self.model.grad_weights, self.model.weights, self.model.opt_states, self.step
        grads[layer, step] = grads[layer, step] + new if (layer, step) in grads else new
        self.left[step, layer] -= 1
        if not self.left[step, layer]:
            grad, weight = grads.pop((layer, step)), weights[layer, step]
            weights.pop((layer, step - self.lag), None)
            weights[layer, step + 1], states[layer] = self.model.update(layer, grad, weight, states[layer])


class TokenShareRank(TimetableRank):
    """One rank of an order of token shares. Later shares attend to the keys of earlier ones; in backward, keys need the
    gradients from later shares."""

    def share(self, unit: int) -> tuple[int, int, int]:
        """The microbatch of a cell, the index of its share, and the number of shares."""
        shares = self.table.batches * max(1, self.replicas) // self.model.BATCHES
        return *divmod(unit, shares), shares

    def first_input(self, batch: int, step: int) -> Activation:
        microbatch, share, shares = self.share(batch)
        tokens = self.model.SHARES
        tokens_of_share = range(share * tokens // shares, (share + 1) * tokens // shares)
        return self.model.get_activation([self.first_batch + microbatch], step, tokens_of_share)

    async def layer_forward(self, layer: int, batch: int) -> Activation:
        stored: dict[Any, Any] = self.model.activations
        _, share, _ = self.share(batch)
        past = [stored["keys", layer, batch - share + k] for k in range(share)]
        out, stored["keys", layer, batch] = self.model.block_forward(
            layer, stored[layer, batch], await self.weight(layer), past
        )
        return out

    async def layer_backward(self, layer: int, batch: int, grad: ActivationGrad) -> tuple[WeightGrad, ActivationGrad]:
        model, (_, share, shares) = self.model, self.share(batch)
        stored: dict[Any, Any] = model.activations
        units = [("keys", layer, batch - share + k) for k in range(share + 1)]
        keys, inp = [stored[unit] for unit in units], stored.pop((layer, batch))
        del stored[units[-1]]
        later = [model.grad_activations.pop(unit) for unit in units] if share < shares - 1 else ()
        new, before, of_keys = model.block_backward(layer, inp, keys, grad, await self.weight(layer), later)
        model.grad_activations.update(zip(units, of_keys))
        return new, before


Order = Callable[..., Timetable]
"""Makes a timetable from ranks, microbatches and other sizes."""


def pipeline(
    order: Timetable | Order,
    *,
    recompute: bool = False,
    sharded: bool = False,
    buffered: bool = False,
    flush: bool = True,
    **sizes: int,
) -> Callable[[Model], Coroutine[Any, Any, None]]:
    """The schedule that plays an order, such as `pipeline(one_f_one_b)` or `pipeline(interleaved, v=2)`.

    An order gets the ranks and microbatches of the game, and `sizes`. All stages have the same number of layers. In a
    game of several steps the order is repeated, without a wait between steps. Without `flush` one order has the
    microbatches of all steps, and weights are as old as the game allows (`Setting.lag`): 2BW is `pipeline(one_f_one_b,
    flush=False)` (Narayanan et al. 2021). In games of attention layers, an order of several times the microbatches
    computes shares of their tokens, as in `pipeline(seq1f1b, shares=4)`.

    `recompute` keeps only a stage's input, and recomputes the rest before its backward (Chen et al. 2016). On a mesh
    with the axes pp and dp each replica is a pipeline with its part of the microbatches; gradients are summed along dp
    at the end. With an axis tp, each rank has a shard of each layer, and partial activations and their gradients are
    summed along tp. `sharded` splits weights and states along dp, and a rank holds the full weights of one stage at a
    time (ZeRO-3): when it turns to another stage, gradients are scattered and weights gathered. `buffered` gives each
    message its own tag, so that none waits until the previous one is read. Where costs have overlap, messages then
    travel while their sender continues.

    Raises:
        RuleError: the argument is not an order, or it is a timetable with other sizes. In a run: the game's size
            differs from the timetable's, or the order is refused.
    """
    if not isinstance(order, Timetable) and not callable(order):
        raise RuleError(f"pipeline takes an order, such as one_f_one_b, or a timetable; got {object_text(order)}")
    if isinstance(order, Timetable) and sizes:
        raise RuleError(f"a timetable has its sizes already; leave out {', '.join(sizes)}")

    async def schedule(model: Model) -> None:
        setting = model.dist.setting
        ranks, replicas, _ = axes_of(setting, model.RANKS)
        batches, left = divmod(model.BATCHES, replicas)
        if left:
            raise RuleError(
                f"{counted(model.BATCHES, 'microbatch')} cannot be dealt to {replicas} replicas; take a multiple"
            )
        in_order = batches if flush else batches * setting.steps
        table = order if isinstance(order, Timetable) else _made(order, ranks, in_order, **sizes)
        shares = table.batches // in_order if setting.layer == "attention" else 1
        _require_fit(table, model.LAYERS, ranks, in_order * max(shares, 1))
        if shares > setting.shares:
            raise RuleError(f"this order cuts a sequence into {shares} shares; the game has {setting.shares}")
        if not flush and (sharded or setting.layer == "attention"):
            raise RuleError("an order without a flush is played with full weights and layers that are not attention")
        if (buffered or table.tag is not untagged) and setting == CLASSIC_SETTING:
            raise RuleError(
                "this order needs messages with tags, which the classic costs lack; take others, such as stages"
            )
        kind = TokenShareRank if setting.layer == "attention" else TimetableRank if flush else UnflushedRank
        await kind(model, table, recompute, sharded, buffered).train()

    return schedule


@lru_cache(16)
def _made(order: Order, ranks: int, batches: int, **sizes: int) -> Timetable:
    return order(ranks, batches, **sizes)


def _require_fit(table: Timetable, layers: int, ranks: int, batches: int) -> None:
    if (table.ranks, table.batches) != (ranks, batches):
        raise RuleError(
            f"this timetable is for {counted(table.ranks, 'rank')} and {counted(table.batches, 'microbatch')}; the "
            f"game has {ranks} and {batches}"
        )
    if layers % table.stages:
        raise RuleError(
            f"{counted(layers, 'layer')} cannot be cut into {table.stages} equal stages; take a multiple of "
            f"{table.stages} layers"
        )
