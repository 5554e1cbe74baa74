"""Schedules that clip gradients by the norm of all of them: replicas, shards, stages, and on the host."""

from collections.abc import Callable
from typing import Any

from lib import Model


class Rank:
    """One rank that computes the gradients of all layers, of some batches."""

    def __init__(self, model: Model) -> None:
        self.model, self.layers = model, range(model.LAYERS)
        loaded = [model.load_weights(layer) for layer in self.layers]
        self.weights, self.states = [weight for weight, _ in loaded], [state for _, state in loaded]

    def gradients(self, batches: Any, step: int = 0) -> list[Any]:
        model, inputs, grads = self.model, [self.model.get_activation(batches, step)], list[Any]()
        for layer, weight in enumerate(self.weights):
            inputs.append(model.forward(layer, inputs[-1], weight))
        grad = model.loss(inputs.pop())
        for layer in reversed(self.layers):
            own, grad = model.backward(layer, inputs.pop(), grad, self.weights[layer])
            grads.insert(0, own)
        return grads

    def update(self, grads: list[Any], scale: Any) -> None:
        for layer, grad in enumerate(grads):
            new = self.model.update(layer, grad, self.weights[layer], self.states[layer], scale=scale)
            self.weights[layer], self.states[layer] = new

    def declare(self) -> None:
        for layer, weight in enumerate(self.weights):
            self.model.set_final_weight(layer, weight)


async def data_parallel(model: Model) -> None:
    """Each rank all-reduces its gradients, and then knows the norm of all of them by itself, where it is wanted."""
    rank = Rank(model)
    for step in range(model.dist.setting.steps):
        own = rank.gradients(range(model.rank, model.BATCHES, model.RANKS), step)
        grads = [await model.allreduce(grad, layer) for layer, grad in enumerate(own)]
        norms = [model.norm(layer, grad) for layer, grad in enumerate(grads) if model.dist.setting.clip]
        rank.update(grads, sum(norms) if norms else None)
    rank.declare()


async def sharded(model: Model) -> None:
    """Each rank keeps a shard of every gradient, and the ranks add up the squares of the shards."""
    rank, i, n = Rank(model), model.rank, model.RANKS
    own = rank.gradients(range(i, model.BATCHES, n))
    grads = [await model.scatterreduce(grad, layer) for layer, grad in enumerate(own)]
    scale = await model.allreduce(sum(model.norm(layer, grad) for layer, grad in enumerate(grads)), 0)
    rank.weights = [weight.shard(i, n) for weight in rank.weights]
    rank.states = [state.shard(i, n) for state in rank.states]
    rank.update(grads, scale)
    rank.weights = [await model.allgather(weight, layer) for layer, weight in enumerate(rank.weights)]
    rank.declare()


async def all_reduced(model: Model, norm: Any) -> Any:
    return await model.allreduce(norm, 0)


async def pipeline(model: Model, total: Callable[[Model, Any], Any] = all_reduced) -> None:
    """Each rank has a layer, and the ranks add up the squares of their layers."""
    layer, last = model.rank, model.rank == model.RANKS - 1
    weight, state = model.load_weights(layer)
    inp = model.get_activation(range(model.BATCHES)) if layer == 0 else await model.receive(layer - 1)
    out = model.forward(layer, inp, weight)
    if not last:
        await model.pass_to(layer + 1, out)
    grad = model.loss(out) if last else await model.receive(layer + 1)
    own, before = model.backward(layer, inp, grad, weight)
    if layer:
        await model.pass_to(layer - 1, before)
    scale = await total(model, model.norm(layer, own)) if model.dist.setting.clip else None
    model.set_final_weight(layer, model.update(layer, own, weight, state, scale=scale)[0])


async def on_the_host(model: Model) -> None:
    """The processor of the host updates one layer, with a norm that is parked there."""
    rank, kept = Rank(model), model.parked
    (grad,) = rank.gradients(range(model.BATCHES))
    scale = await model.offload(model.norm(0, grad))
    weight, state = model.load_weights(0, tier="host")
    kept["weight"], _ = await model.update(0, await model.offload(grad), weight, state, on="host", scale=scale)
    model.set_final_weight(0, await model.fetch(kept["weight"]))
