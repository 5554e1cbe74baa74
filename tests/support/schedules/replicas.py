"""Training of replicas: ZeRO along dp, stages along pp, cut blocks along tp."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from lib import Model
from lib.schedules import gpipe, one_f_one_b


class Plan(NamedTuple):
    """How to train: `zero` is the ZeRO stage, from 0 (all-reduce) to 3 (weights in shards); `late` reduces gradients
    once, after the last microbatch; `interleaved` is 1F1B instead of GPipe; `held` keeps gathered weights between
    forward and backward; `lazy` awaits reductions at the end, where calls overlap."""

    zero: int = 0
    late: bool = False
    interleaved: bool = False
    held: bool = False
    lazy: bool = False


def trained(plan: Plan) -> Callable[[Model], Any]:
    """The schedule of a plan, on a mesh that has an axis dp, and may have pp and tp."""

    async def schedule(model: Model) -> None:
        await _Rank(model, plan).train()

    return schedule


class _Rank:
    def __init__(self, model: Model, plan: Plan) -> None:
        self.model, self.plan = model, plan
        self.axes = dict(model.dist.setting.mesh)
        self.dp, self.pp, self.tp = (self.axes.get(name, 1) for name in ("dp", "pp", "tp"))
        self.stage = model.index("pp") if self.pp > 1 else 0
        depth = model.LAYERS // self.pp
        self.mine = range(self.stage * depth, (self.stage + 1) * depth)
        self.m = model.BATCHES // self.dp
        row = model.index("tp") if self.tp > 1 else 0
        self.row = row, self.tp
        self.own = row * self.dp + model.index("dp"), self.tp * self.dp
        self.calls: list[tuple[int, Any]] = []

    async def train(self) -> None:
        model, plan = self.model, self.plan
        for layer in self.mine:
            part = self.own if plan.zero == 3 else self.row
            model.weights[layer], model.opt_states[layer] = model.load_weights(layer, *part)
            if plan.zero in (1, 2):
                model.opt_states[layer] = model.opt_states[layer].shard(*self.own)
        order = one_f_one_b if plan.interleaved else gpipe
        for (cell,) in order(self.pp, self.m).rows[self.stage]:
            await (self.forward(cell.batch) if cell.op == "F" else self.backward(cell.batch))
        for layer, call in self.calls:
            self.add(layer, await call)
        for layer in self.mine:
            await self.update(layer)

    async def weight(self, layer: int) -> Any:
        if self.plan.zero < 3:
            return self.model.weights[layer]
        if ("full", layer) not in self.model.weights:
            self.model.weights["full", layer] = await self.along_dp("allgather", self.model.weights[layer], layer)
        return self.model.weights["full", layer]

    def drop(self, layer: int) -> None:
        if self.plan.zero == 3:
            del self.model.weights["full", layer]

    def along_dp(self, name: str, value: Any, layer: int) -> Any:
        return getattr(self.model, name)(value, layer, group="dp")

    async def summed(self, value: Any, layer: int) -> Any:
        return await self.model.allreduce(value, layer, group="tp") if self.tp > 1 else value

    async def forward(self, b: int) -> None:
        model = self.model
        first = model.index("dp") * self.m
        if self.stage:
            model.activations[self.mine[0], b] = await model.receive(model.axis("pp")[self.stage - 1])
        else:
            model.activations[0, b] = model.get_activation([first + b])
        for layer in self.mine:
            out = model.forward(layer, model.activations[layer, b], await self.weight(layer))
            model.activations[layer + 1, b] = await self.summed(out, layer + 1)
            if not self.plan.held:
                self.drop(layer)
        if self.stage < self.pp - 1:
            await model.pass_to(model.axis("pp")[self.stage + 1], model.activations.pop((self.mine[-1] + 1, b)))

    async def backward(self, b: int) -> None:
        model = self.model
        if self.stage < self.pp - 1:
            grad = await model.receive(model.axis("pp")[self.stage + 1])
        else:
            grad = model.loss(model.activations.pop((model.LAYERS, b)))
        for layer in reversed(self.mine):
            weight = await self.weight(layer)
            new, grad = model.backward(layer, model.activations.pop((layer, b)), grad, weight)
            del weight
            self.drop(layer)
            if layer:
                grad = await self.summed(grad, layer - 1)
            await self.reduce(layer, new)
        if self.stage:
            await model.pass_to(model.axis("pp")[self.stage - 1], grad)

    async def reduce(self, layer: int, grad: Any) -> None:
        name = "scatterreduce" if self.plan.zero else "allreduce"
        if self.plan.late:
            self.add(layer, grad)
        elif self.plan.lazy:
            self.calls.append((layer, self.along_dp(name, grad, layer)))
        else:
            self.add(layer, await self.along_dp(name, grad, layer))

    def add(self, layer: int, grad: Any) -> None:
        grads = self.model.grad_weights
        grads[layer] = grads[layer] + grad if layer in grads else grad

    async def update(self, layer: int) -> None:
        model = self.model
        grad = model.grad_weights.pop(layer)
        if self.plan.late:
            grad = await self.along_dp("scatterreduce" if self.plan.zero else "allreduce", grad, layer)
        if self.plan.zero in (1, 2):
            model.weights[layer] = model.weights[layer].shard(*self.own)
        model.weights[layer], model.opt_states[layer] = model.update(
            layer, grad, model.weights[layer], model.opt_states[layer]
        )
        if self.plan.zero in (1, 2):
            model.weights[layer] = await self.along_dp("allgather", model.weights[layer], layer)
        model.set_final_weight(layer, model.weights[layer])
