"""Schedules of ranks with all layers: they share gradients, states or weights (ZeRO), or each has a shard of every
block.

The stages of ZeRO are one class with the number of the stage, because each stage shards one thing more than the stage
before: states, gradients, weights. A coroutine for each would repeat forward, backward and the updates.

Replicas of a pipeline are not here: `player` has them as the axis dp of a mesh.
"""

from typing import Any

from lib import Model, RuleError, Weight, WeightGrad
from lib.ledger.algebra import counted


async def ddp(model: Model) -> None:
    """Each rank has everything; gradients are summed after the last microbatch (Li et al. 2020, PyTorch DDP)."""
    await _Replica(model, 0).train()


async def zero1(model: Model) -> None:
    """Optimizer states are sharded (Rajbhandari et al. 2020, stage 1)."""
    await _Replica(model, 1).train()


async def zero2(model: Model) -> None:
    """Gradients are sharded too: each is scattered as soon as it exists (Rajbhandari et al. 2020, stage 2)."""
    await _Replica(model, 2).train()


async def zero3(model: Model) -> None:
    """Weights are sharded too: a layer is gathered when it is needed (Rajbhandari et al. 2020, stage 3)."""
    await _Replica(model, 3).train()


async def fsdp_prefetch(model: Model) -> None:
    """ZeRO-3 that gathers the next layer before it computes this one (Zhao et al. 2023, PyTorch FSDP).

    Communication must overlap with computation.
    """
    await _Replica(model, 3, prefetch=True).train()


class _Replica:
    """One rank, by the stage of ZeRO. `activations[layer]` is the input of a layer; a gathered weight is
    `weights["whole"]`.

    Where communication overlaps with computation, gradients are pending during backward: with stages 2 and 3 one at a
    time, since a pending gradient takes memory.
    """

    def __init__(self, model: Model, zero: int, prefetch: bool = False) -> None:
        self.model, self.zero, self.prefetch = model, zero, prefetch
        self.shard = model.rank, model.RANKS
        self.count = model.BATCHES // model.RANKS
        self.overlap = model.dist.setting.costs.overlap
        self.under_way: list[tuple[int, Any]] = []
        """Layers whose gradients are pending, with the calls."""
        self.whole: int | None = None
        """The layer whose weight is gathered."""
        self.coming: dict[int, Any] = {}
        """The pending gather of each layer's weight."""

    async def train(self) -> None:
        model = self.model
        if model.BATCHES % model.RANKS:
            raise RuleError(
                f"{counted(model.BATCHES, 'microbatch')} cannot be dealt to {model.RANKS} ranks; take a multiple of it"
            )
        layers = range(model.LAYERS)
        for layer in layers:
            self.load(layer)
        for step in range(model.dist.setting.steps):
            for k in range(self.count):
                model.activations[0] = model.get_activation([model.rank * self.count + k], step)
                await self.forward()
                await self.backward(last=k == self.count - 1)
            model.weights.pop("whole", None)
            self.whole = None
            for layer in reversed(layers):
                await self.settle(layer)
                await self.update(layer)
        for layer in layers:
            model.set_final_weight(layer, model.weights[layer])

    def load(self, layer: int) -> None:
        model = self.model
        weight, state = model.load_weights(layer, *(self.shard if self.zero == 3 else (0, 1)))
        model.weights[layer] = weight
        model.opt_states[layer] = state.shard(*self.shard) if self.zero in (1, 2) else state

    async def forward(self) -> None:
        model = self.model
        for layer in range(model.LAYERS):
            weight = await self.weight(layer, layer + 1)
            model.activations[layer + 1] = model.forward(layer, model.activations[layer], weight)
        model.grad_activations[0] = model.loss(model.activations.pop(model.LAYERS))

    async def backward(self, last: bool) -> None:
        model = self.model
        for layer in reversed(range(model.LAYERS)):
            weight = await self.weight(layer, layer - 1)
            inp, grad = model.activations.pop(layer), model.grad_activations.pop(0)
            new, grad = model.backward(layer, inp, grad, weight)
            if layer:
                model.grad_activations[0] = grad
            await self.reduce(layer, new, last)

    # --- Weights ---

    async def weight(self, layer: int, then: int) -> Weight:
        """The full weight of a layer. Afterwards layer `then` is needed."""
        model = self.model
        if self.zero < 3:
            return model.weights[layer]
        if self.whole != layer:
            model.weights.pop("whole", None)
            model.weights["whole"] = await (self.coming.pop(layer, None) or self.gather(layer))
            self.whole = layer
        if self.prefetch and self.overlap and then in range(model.LAYERS):
            self.coming[then] = self.gather(then)
        return model.weights["whole"]

    def gather(self, layer: int) -> Any:
        return self.model.allgather(self.model.weights[layer], layer)

    # --- Gradients ---

    async def reduce(self, layer: int, new: WeightGrad, last: bool) -> None:
        """Shares a gradient with the other ranks. Stages 0 and 1 share only the sum of all microbatches."""
        if self.zero < 2:
            self.add(layer, new)
            if not last:
                return
            new = self.model.grad_weights.pop(layer)
        call = self.model.scatterreduce(new, layer) if self.zero else self.model.allreduce(new, layer)
        if not self.overlap:
            self.add(layer, await call)
            return
        self.under_way.append((layer, call))
        await self.settle(1 if self.zero > 1 else self.model.LAYERS)

    async def settle(self, left: int) -> None:
        """Awaits all but `left` gradients, in the order of backward, so layer 0's is the last."""
        while len(self.under_way) > left:
            layer, call = self.under_way.pop(0)
            self.add(layer, await call)

    def add(self, layer: int, new: WeightGrad) -> None:
        grads = self.model.grad_weights
        grads[layer] = grads[layer] + new if layer in grads else new

    async def update(self, layer: int) -> None:
        """Updates each layer. With stages 1 and 2 each rank updates its shard, and gathers the others."""
        model = self.model
        weights, states = model.weights, model.opt_states
        if self.zero in (1, 2):
            weights[layer] = weights[layer].shard(*self.shard)
        weights[layer], states[layer] = model.update(
            layer, model.grad_weights.pop(layer), weights[layer], states[layer]
        )
        if self.zero in (1, 2):
            weights[layer] = await self.gather(layer)


def _with_shards(model: Model) -> Any:
    """Stores this rank's shards of all weights and states."""
    for layer in range(model.LAYERS):
        model.weights[layer], model.opt_states[layer] = model.load_weights(layer, model.rank, model.RANKS)
    return model.storage()


def _update(model: Model, layer: int) -> None:
    weights, states = model.weights, model.opt_states
    weights[layer], states[layer] = model.update(layer, model.grad_weights.pop(layer), weights[layer], states[layer])
    model.set_final_weight(layer, weights[layer])


async def tensor_parallel(model: Model, sum_of_the_input: bool = True) -> None:
    """Each rank has a shard of every block, and all sum their outputs (Shoeybi et al. 2019, section 3)."""
    weights, _, inputs, grads, weight_grads = _with_shards(model)
    inputs[0] = model.get_activation(range(model.BATCHES))
    for layer in range(model.LAYERS):
        inputs[layer + 1] = model.forward(layer, inputs[layer], weights[layer])
        inputs[layer + 1] = await model.allreduce(inputs[layer + 1], layer + 1)
        if layer == 0 and not sum_of_the_input:
            del inputs[0]
    grads[0] = model.loss(inputs.pop(model.LAYERS))
    for layer in reversed(range(model.LAYERS)):
        if layer == 0 and not sum_of_the_input:
            inputs[0] = model.get_activation(range(model.BATCHES))
        weight_grads[layer], grads[0] = model.backward(layer, inputs.pop(layer), grads[0], weights[layer])
        if layer or sum_of_the_input:
            grads[0] = await model.allreduce(grads[0], layer - 1)
        if not layer:
            del grads[0]
        _update(model, layer)


async def sequence_parallel(model: Model) -> None:
    """Between blocks every rank keeps its share of the tokens (Korthikanti et al. 2022, section 4.2.2). The model's
    full input is always available, and its gradient is not needed."""
    weights, _, inputs, grads, weight_grads = _with_shards(model)

    async def whole(layer: int) -> Any:
        return await model.allgather(inputs[layer], layer) if layer else model.get_activation(range(model.BATCHES))

    for layer in range(model.LAYERS):
        inputs["whole"] = await whole(layer)
        inputs[layer + 1] = model.forward(layer, inputs.pop("whole"), weights[layer])
        inputs[layer + 1] = await model.scatterreduce(inputs[layer + 1], layer + 1)
    grads[0] = model.loss(inputs.pop(model.LAYERS))
    for layer in reversed(range(model.LAYERS)):
        inputs["whole"] = await whole(layer)
        inputs.pop(layer, None)
        grads[0] = await model.allgather(grads[0], layer)
        weight_grads[layer], grads[0] = model.backward(layer, inputs.pop("whole"), grads[0], weights[layer])
        if layer:
            grads[0] = await model.scatterreduce(grads[0], layer - 1)
        else:
            del grads[0]
        _update(model, layer)
