"""A family of skips: data parallel ranks that exchange weights and gradients with each layer's owner in messages."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from lib import Model, Weight, WeightGrad

WEIGHTS = ("send", "hold", "load again")


def data_parallel(
    weights: str, *, at_once: bool = False, owners: int | None = None
) -> Callable[[Model], Awaitable[None]]:
    """Rank l % `owners` (by default all ranks that have microbatches) owns layer l: its optimizer state is there,
    gradients are sent there, and it makes the update.

    How the other ranks get the weight, `weights` says: the owner may "send" it for each use; a rank may "hold" it, and
    then gets the updated weight from the owner; or all ranks, the owner too, "load again" for each use. `at_once`: a
    rank takes all of its microbatches together. It takes the model's input again for the last backward.
    """
    assert weights in WEIGHTS

    async def schedule(model: Model) -> None:
        active = min(model.RANKS, model.BATCHES)
        if model.rank < active:
            await _Replica(model, weights, at_once, active, owners or active).train()

    return schedule


class _Replica:
    def __init__(self, model: Model, weights: str, at_once: bool, active: int, owners: int) -> None:
        self.model, self.weights, self.owners = model, weights, owners
        self.others = [rank for rank in range(active) if rank != model.rank]
        mine = list(range(model.rank, model.BATCHES, active))
        self.rounds = [mine] if at_once else [[batch] for batch in mine]

    def owner(self, layer: int) -> int:
        return layer % self.owners

    def owns(self, layer: int) -> bool:
        return self.owner(layer) == self.model.rank

    async def train(self) -> None:
        model = self.model
        layers = range(model.LAYERS)
        for layer in layers:
            if self.owns(layer) and self.weights != "load again":
                model.weights[layer], model.opt_states[layer] = model.load_weights(layer)
            elif self.weights == "hold":
                model.weights[layer], _ = model.load_weights(layer)
        for step in range(model.dist.setting.steps):
            for batches in self.rounds:
                await self.forward(batches, step)
                await self.backward(batches, step)
            for layer in layers:
                await self.update(layer)
        for layer in layers:
            if layer in model.weights:
                model.set_final_weight(layer, model.weights[layer])

    async def forward(self, batches: list[int], step: int) -> None:
        model, acts = self.model, self.model.activations
        acts[0] = model.get_activation(batches, step)
        for layer in range(model.LAYERS):
            acts[layer + 1] = model.forward(layer, acts[layer], await self.weight(layer))
            self.drop()
            if layer == 0:
                del acts[0]
        model.grad_activations[model.LAYERS] = model.loss(acts.pop(model.LAYERS))

    async def backward(self, batches: list[int], step: int) -> None:
        model, acts, grads = self.model, self.model.activations, self.model.grad_activations
        for layer in reversed(range(model.LAYERS)):
            weight = await self.weight(layer)
            if layer == 0:
                acts[0] = model.get_activation(batches, step)
            new, grads[layer] = model.backward(layer, acts.pop(layer), grads.pop(layer + 1), weight)
            del weight
            self.drop()
            if layer == 0:
                del grads[0]
            await self.give(layer, new)

    async def weight(self, layer: int) -> Weight:
        """The weight of a layer, under "used" where it is not kept."""
        model, weights = self.model, self.model.weights
        if self.weights == "send" and self.owns(layer):
            for rank in self.others:
                await model.pass_to(rank, weights[layer])
        elif self.weights == "send":
            weights["used"] = await model.receive(self.owner(layer))
        elif layer not in weights:
            weights["used"], _ = model.load_weights(layer)
        return weights[layer if layer in weights else "used"]

    def drop(self) -> None:
        self.model.weights.pop("used", None)

    async def give(self, layer: int, new: WeightGrad) -> None:
        """Sums a gradient at the owner."""
        model = self.model
        if not self.owns(layer):
            await model.pass_to(self.owner(layer), new)
            return
        self.add(layer, new)
        del new
        for rank in self.others:
            self.add(layer, await model.receive(rank))

    def add(self, layer: int, new: Any) -> None:
        grads = self.model.grad_weights
        grads[layer] = grads[layer] + new if layer in grads else new

    async def update(self, layer: int) -> None:
        model, weights, states = self.model, self.model.weights, self.model.opt_states
        if self.owns(layer):
            if self.weights == "load again":
                weights[layer], states[layer] = model.load_weights(layer)
            grad = model.grad_weights.pop(layer)
            weights[layer], states[layer] = model.update(layer, grad, weights[layer], states[layer])
        if self.weights == "hold" and self.owns(layer):
            for rank in self.others:
                await model.pass_to(rank, weights[layer])
        elif self.weights == "hold":
            weights[layer] = await model.receive(self.owner(layer))
