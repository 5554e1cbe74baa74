"""A family of skips: data parallel ranks, which share each layer in one of eight ways, by collectives or messages."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from lib import Model, Weight, WeightGrad

IN_COLLECTIVES = "d123"
IN_MESSAGES = "sha"
REDUCE = ("scatter", "all-reduce and cut")


def replicas(
    ways: str,
    *,
    at_once: bool = False,
    prefetch: bool = False,
    early: bool = False,
    sum_first: bool = False,
    lazy: bool = False,
    reduce: str = "scatter",
    axis: str | None = None,
    owners: int | None = None,
) -> Callable[[Model], Awaitable[None]]:
    """`ways` has a letter for each layer, or one for all. In collectives: d shards nothing (DDP), 1 the optimizer state
    (ZeRO-1), 2 the gradient of each microbatch too, 3 the weights too (FSDP). In messages: rank layer % `owners` has
    the optimizer state and is sent the gradients. It sends the others the weight for each use (s), or, as they hold
    the weight, the updated one (h); or all load the weight again for each use, the owner too (a). In both: the gradient
    is all-reduced, and the owner sends the updated weight (o).

    `at_once`: a rank takes all of its microbatches together. `prefetch`: where communication overlaps, a weight is
    gathered or sent while the layer before it computes. `early`: layers are updated during the last backward.
    `sum_first`: messages have the gradient of all of a rank's microbatches. `lazy`: owners read them one layer later.
    `reduce`: how a rank gets its shard of a
    gradient. Shards are those of an `axis` of the mesh, or of all ranks; those of a gradient are then summed over the
    other axes. The model's input is always taken again.
    """
    assert reduce in REDUCE

    async def schedule(model: Model) -> None:
        active = min(model.RANKS, model.BATCHES)
        if model.rank < active or not set(ways) & set(IN_MESSAGES):
            each = ways * model.LAYERS if len(ways) == 1 else ways
            replica = _Replica(model, each, at_once, axis)
            replica.prefetch = prefetch and replica.overlap
            replica.early, replica.sum_first, replica.cuts = early, sum_first, reduce == REDUCE[1]
            replica.others = [rank for rank in range(active) if rank != model.rank]
            replica.owners, replica.lazy = owners or active, lazy
            await replica.train()

    return schedule


class _Replica:
    prefetch: bool
    early: bool
    sum_first: bool
    cuts: bool
    others: list[int]
    owners: int
    lazy: bool

    def __init__(self, model: Model, ways: str, at_once: bool, axis: str | None) -> None:
        self.model, self.ways, self.axis = model, ways, axis
        self.between = tuple(name for name, _ in model.dist.setting.mesh if name != axis) if axis else ()
        self.cut = (model.index(axis), len(model.axis(axis))) if axis else (model.rank, model.RANKS)
        self.overlap = model.dist.setting.costs.overlap
        mine = list(range(model.rank, model.BATCHES, model.RANKS))
        self.rounds = [mine] if at_once or not mine else [[batch] for batch in mine]
        """Microbatches that this rank computes together; a rank without any contributes zeros."""
        self.pending: list[tuple[int, Any]] = []
        """Layers whose gradients are being summed, and the calls."""
        self.coming: dict[int, Any] = {}
        """Layers whose weights are being gathered or sent, and the calls."""
        self.sent: list[Any] = []
        self.unread: list[int] = []
        """Layers whose gradients others have sent."""
        self.full: int | None = None
        """The layer whose weight was gathered and is still here."""

    def owner(self, layer: int) -> int:
        return layer % self.owners

    def owns(self, layer: int) -> bool:
        return self.owner(layer) == self.model.rank

    async def train(self) -> None:
        model = self.model
        layers = range(model.LAYERS)
        for layer in layers:
            self.load(layer)
        for step in range(model.dist.setting.steps):
            for batches in self.rounds:
                await self.forward(batches, step)
                await self.backward(batches, step, last=batches is self.rounds[-1])
                await self.read()
            await self.settle(0)
            if not self.early:
                await self.update(*reversed(layers))
            while self.sent:
                await self.sent.pop()
        for layer in layers:
            if layer in model.weights:
                model.set_final_weight(layer, model.weights[layer])

    def load(self, layer: int) -> None:
        model, way = self.model, self.ways[layer]
        if way == "a" or (way == "s" and not self.owns(layer)):
            return
        model.weights[layer], state = model.load_weights(layer, *(self.cut if way == "3" else (0, 1)))
        if way in IN_COLLECTIVES or self.owns(layer):
            model.opt_states[layer] = state.shard(*self.cut) if way in "12" else state

    async def forward(self, batches: list[int], step: int) -> None:
        model, acts = self.model, self.model.activations
        for layer in range(model.LAYERS):
            weight = await self.weight(layer, layer + 1)
            if batches and layer == 0:
                acts[0] = model.get_activation(batches, step)
            if batches:
                acts[layer + 1] = model.forward(layer, acts[layer], weight)
            del weight
            acts.pop(0, None)
            if self.ways[layer] != "3":
                self.drop()
        if batches:
            model.grad_activations[model.LAYERS] = model.loss(acts.pop(model.LAYERS))

    async def backward(self, batches: list[int], step: int, last: bool) -> None:
        model, acts, grads = self.model, self.model.activations, self.model.grad_activations
        for layer in reversed(range(model.LAYERS)):
            weight = await self.weight(layer, layer - 1)
            if batches and layer == 0:
                acts[0] = model.get_activation(batches, step)
            if batches:
                new, before = model.backward(layer, acts.pop(layer), grads.pop(layer + 1), weight)
                if layer:  # an embedding has none, and nobody needs it
                    grads[layer] = before
            else:
                new = model.fake_grad(layer, [], step)
            del weight
            self.drop()
            await self.share(layer, new, last)
            if last and self.early:
                await self.settle(0)
                await self.read()
                await self.update(layer)

    # --- Weights ---

    async def weight(self, layer: int, then: int) -> Weight:
        """The full weight of a layer; after it, layer `then` is needed. A gathered one is still here at the turn."""
        model, weights = self.model, self.model.weights
        if self.full != layer:
            self.drop()
            call = self.coming.pop(layer) if layer in self.coming else await self.begin(layer)
            if call is not None:
                weights["full"] = await call
            self.full = layer if self.ways[layer] == "3" else None
        if self.prefetch and then in range(model.LAYERS):
            self.coming[then] = await self.begin(then)
        return weights["full"] if "full" in weights else weights[layer]

    async def begin(self, layer: int) -> Any:
        """Starts to get a weight for its use, and returns the call; None if it is here."""
        model, weights = self.model, self.model.weights
        match self.ways[layer]:
            case "3":
                return self.gather(layer)
            case "s" if not self.owns(layer):
                return model.receive(self.owner(layer))
            case "s":
                for rank in self.others:
                    self.sent.append(model.pass_to(rank, weights[layer]))
                    if not self.prefetch:
                        await self.sent.pop()
            case "a":
                weights["full"], _ = model.load_weights(layer)
        return None

    def drop(self) -> None:
        self.model.weights.pop("full", None)
        self.full = None

    def gather(self, layer: int) -> Any:
        return self.model.allgather(self.model.weights[layer], layer, group=self.axis)

    # --- Gradients ---

    async def share(self, layer: int, new: WeightGrad, last: bool) -> None:
        """Sums a gradient over the ranks, perhaps with those of all microbatches."""
        way = self.ways[layer]
        if way in "d1o" or (self.sum_first and way in IN_MESSAGES):
            self.add(layer, new)
            if not last:
                return
            new = self.model.grad_weights.pop(layer)
        if way in IN_MESSAGES:
            await self.give(layer, new)
        else:
            await self.sum(layer, new)

    async def sum(self, layer: int, new: WeightGrad) -> None:
        scatters = self.ways[layer] in "123" and not self.cuts
        call = (self.model.scatterreduce if scatters else self.model.allreduce)(new, layer, group=self.axis)
        del new
        self.pending.append((layer, call))
        await self.settle((1 if self.ways[layer] in "23" else self.model.LAYERS) if self.overlap else 0)

    async def settle(self, left: int) -> None:
        """Awaits the oldest sums until so many are left."""
        while len(self.pending) > left:
            layer, call = self.pending.pop(0)
            total = await call
            if self.ways[layer] != "o" or self.owns(layer):
                self.add(layer, total.shard(*self.cut) if self.cuts and self.ways[layer] in "123" else total)

    async def give(self, layer: int, new: WeightGrad) -> None:
        """Sums a gradient at the layer's owner."""
        await self.read()
        if not self.owns(layer):
            await self.model.pass_to(self.owner(layer), new)
            return
        self.add(layer, new)
        del new
        self.unread.append(layer)
        if not self.lazy:
            await self.read()

    async def read(self) -> None:
        while self.unread:
            layer = self.unread.pop()
            for rank in self.others:
                self.add(layer, await self.model.receive(rank))

    def add(self, layer: int, new: Any) -> None:
        grads = self.model.grad_weights
        grads[layer] = grads[layer] + new if layer in grads else new

    # --- Updates ---

    async def update(self, *layers: int) -> None:
        """Updates layers; owners send their weights before they receive others."""
        for layer in layers:
            await self.update_own(layer)
        for start in range(0, len(layers), self.owners):
            held = [layer for layer in layers[start : start + self.owners] if self.ways[layer] in "ho"]
            for layer in sorted(held, key=self.owns, reverse=True):
                await self.pass_on(layer)

    async def pass_on(self, layer: int) -> None:
        """Gives an updated weight to those who hold it."""
        if self.owns(layer):
            for rank in self.others:
                await self.model.pass_to(rank, self.model.weights[layer])
        else:
            self.model.weights[layer] = await self.model.receive(self.owner(layer))

    async def update_own(self, layer: int) -> None:
        model, weights, states, way = self.model, self.model.weights, self.model.opt_states, self.ways[layer]
        if way in IN_COLLECTIVES or self.owns(layer):
            grad = model.grad_weights.pop(layer)
            if self.between and way in IN_COLLECTIVES:
                grad = await model.allreduce(grad, layer, group=self.between)
            if way == "a":
                weights[layer], states[layer] = model.load_weights(layer)
            if way in "12":
                weights[layer] = weights[layer].shard(*self.cut)
            weights[layer], states[layer] = model.update(layer, grad, weights[layer], states[layer])
        if way in "12":
            weights[layer] = await self.gather(layer)
