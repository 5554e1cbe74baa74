"""Random legal training in which operations take any groups of microbatches, on any ranks."""

import random
from collections.abc import Callable
from typing import Any

from lib import Model


def grouped(seed: int) -> Callable[[Model], Any]:
    """Each step divides the microbatches into groups anew. Each operation of a group is on some rank: of data
    parallelism, of a pipeline, or any; values follow in messages. At the end one rank updates everything, or all do."""

    async def schedule(model: Model) -> None:
        await _Rank(model, random.Random(seed)).train()

    return schedule


class _Rank:
    """What a rank does of a program that is the same random one on all of them."""

    def __init__(self, model: Model, choice: random.Random) -> None:
        self.model, self.choice = model, choice
        self.halves = model.dist.setting.costs.priced("backward_input") and choice.random() < 0.7
        self.cut = model.dist.setting.layer == "block"
        self.active = choice.choice((1, model.RANKS))
        self.way = choice.choice(("group", "layer", "any"))
        self.one_updates = model.dist.setting.steps == 1 and not self.cut and choice.random() < 0.5
        self.values: dict[Any, Any] = {}

    async def train(self) -> None:
        model = self.model
        part = (model.rank, model.RANKS) if self.cut else (0, 1)
        self.weights = {layer: model.load_weights(layer, *part) for layer in range(model.LAYERS)}
        for step in range(model.dist.setting.steps):
            self.grads: dict[int, Any] = {}
            await self.compute(step)
            for layer in range(model.LAYERS):
                await self.update(layer, step)
        for layer, (weight, _) in self.weights.items():
            if weight.step:
                model.set_final_weight(layer, weight)

    def groups(self) -> list[tuple[int, ...]]:
        """The microbatches in up to so many groups as there are microbatches."""
        number = self.choice.choice((1, self.model.RANKS, self.model.BATCHES))
        of = [self.choice.randrange(number) for _ in range(self.model.BATCHES)]
        return [tuple(b for b in range(self.model.BATCHES) if of[b] == n) for n in sorted(set(of))]

    def place(self, n: int, layer: int) -> int:
        on = {"group": n, "layer": layer, "any": self.choice.randrange(self.active)}
        return on[self.way] % self.active

    async def compute(self, step: int) -> None:
        """The operations of all groups, each in its order and shuffled among each other; a rank does its own."""
        last = self.model.LAYERS - 1
        pending = []
        for n, group in enumerate(self.groups()):
            forward = [self.place(n, layer) for layer in range(last + 1)]
            back = forward if self.way != "any" else [self.place(n, layer) for layer in range(last + 1)]
            ways = [("F", layer, forward[layer]) for layer in range(last + 1)]
            ways += [("B", layer, back[layer]) for layer in reversed(range(last + 1))]
            pending.append((group, ways, {(layer, kind): rank for kind, layer, rank in ways}))
        tag = step * 10_000
        while pending:
            at = self.choice.randrange(len(pending))
            group, ways, on = pending[at]
            kind, layer, _ = ways.pop(0)
            tag += 10
            if kind == "F":
                await self.forward(group, layer, step, on, tag)
            else:
                await self.backward(group, layer, on, tag)
            if not ways:
                del pending[at]

    async def moved(self, name: Any, source: int, target: int, tag: int) -> None:
        """A value goes to the rank that uses it next."""
        if source == target or self.cut:
            return
        if self.model.rank == source:
            await self.model.pass_to(target, self.values[name], tag=tag)
        elif self.model.rank == target:
            self.values[name] = await self.model.receive(source, tag=tag)

    def mine(self, rank: int) -> bool:
        return self.cut or self.model.rank == rank

    async def summed(self, value: Any, layer: int) -> Any:
        return await self.model.allreduce(value, layer) if self.cut else value

    async def forward(self, group: tuple[int, ...], layer: int, step: int, on: Any, tag: int) -> None:
        model, rank = self.model, on[layer, "F"]
        if layer:
            await self.moved((group, layer), on[layer - 1, "F"], rank, tag)
        elif self.mine(rank):
            self.values[group, 0] = model.get_activation(group, step)
        if self.mine(rank):
            out = model.forward(layer, self.values[group, layer], self.weights[layer][0])
            self.values[group, layer + 1] = await self.summed(out, layer + 1)
        await self.moved((group, layer), rank, on[layer, "B"], tag + 1)
        if layer == model.LAYERS - 1:
            if self.mine(rank):
                self.values[group, "grad"] = model.loss(self.values[group, layer + 1])
            await self.moved((group, "grad"), rank, on[layer, "B"], tag + 2)

    async def backward(self, group: tuple[int, ...], layer: int, on: Any, tag: int) -> None:
        model, rank = self.model, on[layer, "B"]
        if layer < model.LAYERS - 1:
            await self.moved((group, "grad"), on[layer + 1, "B"], rank, tag)
        if not self.mine(rank):
            return
        inp, grad, weight = self.values.pop((group, layer)), self.values[group, "grad"], self.weights[layer][0]
        if self.halves:
            more = (weight,) if self.cut else ()
            new = model.backward_weight(layer, inp, grad, *more)
            grad = model.backward_input(layer, inp, grad, weight) if layer else grad
        else:
            new, grad = model.backward(layer, inp, grad, weight)
        if layer:
            self.values[group, "grad"] = await self.summed(grad, layer - 1)
        self.grads[layer] = self.grads[layer] + new if layer in self.grads else new

    async def update(self, layer: int, step: int) -> None:
        model = self.model
        grad = self.grads.pop(layer, None)
        if self.one_updates:
            for rank in range(1, self.active):
                if model.rank == rank:
                    await model.pass_to(0, model.fake_grad(layer, []) if grad is None else grad, tag=layer)
                elif not model.rank:
                    theirs = await model.receive(rank, tag=layer)
                    grad = theirs if grad is None else grad + theirs
            if model.rank:
                return
        elif self.active > 1 and not self.cut:
            grad = model.fake_grad(layer, [], step) if grad is None else grad
            grad = await model.allreduce(grad, layer)
        elif grad is None:
            return
        self.weights[layer] = model.update(layer, grad, *self.weights[layer])
