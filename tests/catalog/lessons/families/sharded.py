"""A family of skips: data parallel ranks that sum gradients in collectives, with ever more in shards (ZeRO)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from lib import Model, Weight, WeightGrad

STAGES = (0, 1, 2, 3)
REDUCE = ("scatter", "all-reduce and cut")


def sharded(
    zero: int,
    *,
    reduce: str = "scatter",
    prefetch: bool = False,
    at_once: bool = False,
    late: bool = False,
    axis: str | None = None,
) -> Callable[[Model], Awaitable[None]]:
    """Stage 0 of ZeRO shards nothing (DDP), 1 the optimizer states, 2 the gradients of each microbatch too, 3 the
    weights too (FSDP).

    `reduce`: how a rank gets its shard of a gradient. `prefetch`: where communication overlaps, a weight is gathered
    while the layer before it computes. `at_once`: a rank takes all of its microbatches together. `late`: nothing is
    summed before all gradients are there. Shards are those of an `axis` of the mesh, or of all ranks; shards of a
    gradient are then summed over the other axes.
    """
    assert zero in STAGES
    assert reduce in REDUCE

    async def schedule(model: Model) -> None:
        await _Replica(model, zero, reduce, prefetch, at_once, late, axis).train()

    return schedule


class _Replica:
    def __init__(
        self, model: Model, zero: int, reduce: str, prefetch: bool, at_once: bool, late: bool, axis: str | None
    ) -> None:
        self.model, self.zero, self.reduce, self.late, self.axis = model, zero, reduce, late, axis
        self.between = tuple(name for name, _ in model.dist.setting.mesh if name != axis) if axis else ()
        self.cut = (model.index(axis), len(model.axis(axis))) if axis else (model.rank, model.RANKS)
        self.overlap = model.dist.setting.costs.overlap
        self.prefetch = prefetch and self.overlap
        mine = list(range(model.rank, model.BATCHES, model.RANKS))
        self.rounds = [mine] if at_once or not mine else [[batch] for batch in mine]
        """Microbatches that this rank computes together; a rank without any contributes zeros."""
        self.pending: list[tuple[int, Any]] = []
        """Layers whose gradients are being summed, and the calls."""
        self.gathers: dict[int, Any] = {}
        self.full: int | None = None
        """The layer whose weight is gathered."""

    async def train(self) -> None:
        model = self.model
        layers = range(model.LAYERS)
        for layer in layers:
            weight, state = model.load_weights(layer, *(self.cut if self.zero == 3 else (0, 1)))
            model.weights[layer] = weight
            model.opt_states[layer] = state.shard(*self.cut) if self.zero in (1, 2) else state
        for step in range(model.dist.setting.steps):
            for batches in self.rounds:
                await self.forward(batches, step)
                await self.backward(batches, step, last=batches is self.rounds[-1])
            for layer in reversed(layers):
                await self.update(layer)
        for layer in layers:
            model.set_final_weight(layer, model.weights[layer])

    async def forward(self, batches: list[int], step: int) -> None:
        model, acts = self.model, self.model.activations
        if batches:
            acts[0] = model.get_activation(batches, step)
        for layer in range(model.LAYERS):
            weight = await self.weight(layer, layer + 1)
            if not batches:
                continue
            acts[layer + 1] = model.forward(layer, acts[layer], weight)
            if layer == 0:
                del acts[0]  # the model's input can be taken again
        if batches:
            model.grad_activations[model.LAYERS] = model.loss(acts.pop(model.LAYERS))

    async def backward(self, batches: list[int], step: int, last: bool) -> None:
        model, acts, grads = self.model, self.model.activations, self.model.grad_activations
        for layer in reversed(range(model.LAYERS)):
            weight = await self.weight(layer, layer - 1)
            if batches and layer == 0:
                acts[0] = model.get_activation(batches, step)
            if batches:
                new, grads[layer] = model.backward(layer, acts.pop(layer), grads.pop(layer + 1), weight)
            else:
                new = model.fake_grad(layer, [], step)
            del weight
            if self.zero == 3:
                self.drop()
            grads.pop(0, None)
            await self.share(layer, new, last)

    # --- Weights ---

    async def weight(self, layer: int, then: int) -> Weight:
        """The full weight of a layer; after it, layer `then` is needed."""
        model = self.model
        if self.zero < 3:
            return model.weights[layer]
        if self.full != layer:
            self.drop()
            model.weights["full"] = await (self.gathers.pop(layer, None) or self.gather(layer))
            self.full = layer
        if self.prefetch and then in range(model.LAYERS):
            self.gathers[then] = self.gather(then)
        return model.weights["full"]

    def drop(self) -> None:
        self.model.weights.pop("full", None)
        self.full = None

    def gather(self, layer: int) -> Any:
        return self.model.allgather(self.model.weights[layer], layer, group=self.axis)

    # --- Gradients ---

    async def share(self, layer: int, new: WeightGrad, last: bool) -> None:
        """Sums a gradient over the ranks: in the stages 0 and 1 with those of all microbatches."""
        if self.zero < 2 or self.late:
            self.add(layer, new)
            if not last or self.late:
                return
            new = self.model.grad_weights.pop(layer)
        await self.sum(layer, new)

    async def sum(self, layer: int, new: WeightGrad) -> None:
        scatters = self.zero and self.reduce == "scatter"
        call = (self.model.scatterreduce if scatters else self.model.allreduce)(new, layer, group=self.axis)
        del new
        self.pending.append((layer, call))
        await self.settle((1 if self.zero > 1 else self.model.LAYERS) if self.overlap else 0)

    async def settle(self, left: int) -> None:
        """Awaits the oldest sums until so many are left."""
        while len(self.pending) > left:
            layer, call = self.pending.pop(0)
            total = await call
            self.add(layer, total if not self.zero or self.reduce == "scatter" else total.shard(*self.cut))

    def add(self, layer: int, new: Any) -> None:
        grads = self.model.grad_weights
        grads[layer] = grads[layer] + new if layer in grads else new

    # --- Updates ---

    async def update(self, layer: int) -> None:
        model, weights, states = self.model, self.model.weights, self.model.opt_states
        await self.settle(0)
        if self.late:
            await self.sum(layer, model.grad_weights.pop(layer))
            await self.settle(0)
        grad = model.grad_weights.pop(layer)
        if self.between:
            grad = await model.allreduce(grad, layer, group=self.between)
        if self.zero in (1, 2):
            weights[layer] = weights[layer].shard(*self.cut)
        weights[layer], states[layer] = model.update(layer, grad, weights[layer], states[layer])
        if self.zero in (1, 2):
            weights[layer] = await self.gather(layer)
