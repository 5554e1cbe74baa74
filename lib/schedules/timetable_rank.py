"""One rank's part of a timetable: cells, stages of layers, messages, weights and updates."""

from collections import deque
from collections.abc import Sequence
from typing import Any, NamedTuple

from lib import Activation, ActivationGrad, Model, Setting, Weight, WeightGrad
from lib.runtime.rank import Handle

from .cells import Cell, Slot, by_message, untagged
from .timetable import Timetable


class Axes(NamedTuple):
    """The lengths of the mesh axes: ranks of one pipeline, replicas of it, shards of a layer."""

    pp: int
    dp: int
    tp: int


def axes_of(setting: Setting, ranks: int) -> Axes:
    """The axes of a game; without a mesh all ranks form one pipeline."""
    mesh = dict(setting.mesh) or {"pp": ranks}
    return Axes(*(mesh.get(name, 1) for name in Axes._fields))


class TimetableRank:
    """One rank's row of the timetable.

    `activations[layer, batch]` is the input of a layer, `grad_activations[layer, batch]` the gradient of its output.
    """

    def __init__(self, model: Model, table: Timetable, recompute: bool, sharded: bool, buffered: bool) -> None:
        self.model, self.table, self.recompute = model, table, recompute
        self.tag = by_message(table.stages) if buffered else table.tag
        self.travels = buffered and model.dist.setting.costs.overlap
        self.under_way: deque[Handle] = deque()
        """Messages that have been sent and not awaited."""
        axes = dict(model.dist.setting.mesh)
        alone = ((model.rank,), 0) if axes else (tuple(range(model.RANKS)), model.rank)
        self.peers, self.place = (model.axis("pp"), model.index("pp")) if "pp" in axes else alone
        _, self.replicas, self.shards = axes_of(model.dist.setting, model.RANKS)
        self.replica = model.index("dp") if "dp" in axes else 0
        self.shard = model.index("tp") if "tp" in axes else 0
        # The game's number of this pipeline's microbatch 0.
        self.first_batch = self.replica * (model.BATCHES // self.replicas)
        self.sharded = sharded and self.replicas > 1
        self.depth = model.LAYERS // table.stages
        self.whole: int | None = None
        """The stage whose weights this rank has gathered, if they are sharded."""

    async def train(self) -> None:
        model = self.model
        layers = [layer for stage in self.table.stages_of(self.place) for layer in self.layers(stage)]
        shard = (self.replica, self.replicas) if self.sharded else (self.shard, self.shards)
        for layer in layers:
            model.weights[layer], model.opt_states[layer] = model.load_weights(layer, *shard)
        await self.all_steps(layers)
        for handle in self.under_way:
            await handle
        for layer in layers:
            model.set_final_weight(layer, model.weights[layer])

    async def all_steps(self, layers: Sequence[int]) -> None:
        """Plays each step in its order, and then the updates."""
        for step in range(self.model.dist.setting.steps):
            for slot in self.table.rows[self.place]:
                await self.play(slot, step)
            await self.switch(None)
            for layer in layers:
                await self.update(layer)

    def layers(self, stage: int) -> range:
        return range(stage * self.depth, (stage + 1) * self.depth)

    async def play(self, slot: Slot, step: int) -> None:
        """Receives the inputs of a slot, computes its cells, and sends their results."""
        await self.drop_what_arrived()
        await self.reach(slot[0])
        for message in self.table.needs.received(slot):
            self.keep(message.made, await self.model.receive(self.peers[message.source], self.tag(message)))
        outgoing = {message.made: message for message in self.table.needs.sent(slot)}
        results = await self.pair(slot, step) if self.pairs(slot) else dict[Cell, Any]()
        for cell in slot:
            if cell not in results:
                results[cell] = await self.compute(cell, step)
            if cell not in outgoing:  # the next stage is on this rank too
                self.keep(cell, results.pop(cell))
        for cell, message in outgoing.items():
            sent = self.model.pass_to(self.peers[message.to], results.pop(cell), self.tag(message))
            if self.travels:
                assert isinstance(sent, Handle)
                self.under_way.append(sent)
            else:
                await sent

    def pairs(self, slot: Slot) -> bool:
        """True if a slot is one operation: a forward and a backward of single layers, where a pair has a price."""
        kinds = sorted(cell.op for cell in slot)
        plain = not (self.recompute or self.sharded) and self.depth == self.shards == 1
        return kinds == ["B", "F"] and plain and self.model.dist.setting.costs.priced("pair")

    async def drop_what_arrived(self) -> None:
        """Awaits messages that have arrived. Until awaited, they take memory."""
        now = round(self.model.time * self.model.dist.setting.costs.unit)
        while self.under_way and 0 <= self.under_way[0].call.end <= now:
            await self.under_way.popleft()

    # --- Cells ---

    def first_input(self, batch: int, step: int) -> Activation:
        """The model's input for a microbatch."""
        return self.model.get_activation([self.first_batch + batch], step)

    async def layer_forward(self, layer: int, batch: int) -> Activation:
        """Computes a layer from its stored input."""
        return self.model.forward(layer, self.model.activations[layer, batch], await self.weight(layer))

    async def layer_backward(self, layer: int, batch: int, grad: ActivationGrad) -> tuple[WeightGrad, ActivationGrad]:
        """The gradients of a layer's weight and input; deletes the stored input."""
        inp = self.model.activations.pop((layer, batch))
        return self.model.backward(layer, inp, grad, await self.weight(layer))

    def keep(self, cell: Cell, value: Activation | ActivationGrad | None) -> None:
        """Stores the result of a cell, for the next or the previous stage."""
        if isinstance(value, Activation):
            self.model.activations[self.layers(cell.stage).stop, cell.batch] = value
        elif isinstance(value, ActivationGrad):
            self.model.grad_activations[self.layers(cell.stage).start - 1, cell.batch] = value

    async def compute(self, cell: Cell, step: int = 0) -> Activation | ActivationGrad | None:
        """Computes a cell of a training step, and returns the result that another stage waits for."""
        await self.reach(cell)
        match cell.op:
            case "F":
                return await self.forward(cell, step)
            case "B":
                return await self.backward(cell)
            case "I":
                return await self.backward_input(cell)
        await self.backward_weight(cell)
        return None

    async def forward(self, cell: Cell, step: int) -> Activation | None:
        model, b = self.model, cell.batch
        layers = self.layers(cell.stage)
        if layers.start == 0:
            model.activations[0, b] = self.first_input(b, step)
        for layer in layers:
            out: Activation = await self.summed(await self.layer_forward(layer, b), layer + 1)
            if self.recompute and layer > layers.start:
                del model.activations[layer, b]  # it is computed again
            if layer + 1 < layers.stop:
                model.activations[layer + 1, b] = out
        if layers.stop < model.LAYERS:
            return out
        model.grad_activations[layers.stop - 1, b] = model.loss(out)
        return None

    async def backward(self, cell: Cell) -> ActivationGrad | None:
        model, b = self.model, cell.batch
        layers = self.layers(cell.stage)
        await self.before_backward(cell)
        grad = model.grad_activations.pop((layers.stop - 1, b))
        for layer in reversed(layers):
            new, grad = await self.layer_backward(layer, b, grad)
            await self.add(layer, new)
            if layer:  # nobody needs the gradient of the model's input
                grad = await self.summed(grad, layer - 1)
        return grad if layers.start else None

    async def pair(self, slot: Slot, step: int) -> dict[Cell, Activation | ActivationGrad | None]:
        """Computes the forward and the backward of a slot, of one layer each, at once."""
        model = self.model
        ahead, behind = sorted(slot, key=lambda cell: cell.op, reverse=True)
        layer, back = self.layers(ahead.stage).start, self.layers(behind.stage).start
        if layer == 0:
            model.activations[0, ahead.batch] = self.first_input(ahead.batch, step)
        inp, grad = model.activations.pop((back, behind.batch)), model.grad_activations.pop((back, behind.batch))
        out, (new, before) = model.forward_backward(
            (layer, model.activations[layer, ahead.batch], await self.weight(layer)),
            (back, inp, grad, await self.weight(back)),
        )
        await self.add(back, new)
        if layer == model.LAYERS - 1:
            model.grad_activations[layer, ahead.batch] = model.loss(out)
        return {ahead: out if layer < model.LAYERS - 1 else None, behind: before if back else None}

    async def backward_input(self, cell: Cell) -> ActivationGrad | None:
        """Keeps what the weight half needs: each layer's input, and the gradient of its output."""
        model, b = self.model, cell.batch
        layers = self.layers(cell.stage)
        await self.before_backward(cell)
        for layer in reversed(layers):
            given = model.activations[layer, b], model.grad_activations[layer, b]
            grad = model.backward_input(layer, *given, await self.weight(layer))
            if layer > layers.start:
                model.grad_activations[layer - 1, b] = grad
        return grad if layers.start else None

    async def backward_weight(self, cell: Cell) -> None:
        model, b = self.model, cell.batch
        for layer in reversed(self.layers(cell.stage)):
            grad = model.grad_activations.pop((layer, b))
            await self.add(layer, model.backward_weight(layer, model.activations.pop((layer, b)), grad))

    async def before_backward(self, cell: Cell) -> None:
        """Recomputes the inputs of a stage's layers from the input of the stage."""
        model, b = self.model, cell.batch
        for layer in self.layers(cell.stage)[:-1] if self.recompute else ():
            inp = model.activations[layer, b]
            part = model.forward(layer, inp, await self.weight(layer))
            model.activations[layer + 1, b] = await self.summed(part, layer + 1)

    # --- Weights ---

    async def weight(self, layer: int) -> Weight:
        return self.model.weights["whole", layer] if self.sharded else self.model.weights[layer]

    async def add(self, layer: int, new: WeightGrad) -> None:
        """Adds one microbatch's gradient to the gradient of a layer."""
        key = ("whole", layer) if self.sharded else layer
        grads = self.model.grad_weights
        grads[key] = grads[key] + new if key in grads else new

    async def summed(self, part: Any, layer: int) -> Any:
        """The sum of a value's parts from ranks with shards of a layer; `layer` is its label."""
        return await self.model.allreduce(part, layer, group="tp") if self.shards > 1 else part

    async def reach(self, cell: Cell) -> None:
        """Provides the weights that a cell needs."""
        if self.sharded and cell.stage != self.whole and cell.op != "W":
            await self.switch(cell.stage)

    async def switch(self, stage: int | None) -> None:
        """Scatters the gradients of one stage, and gathers the weights of the next."""
        model = self.model
        weights, grads = model.weights, model.grad_weights
        for key in [key for key in grads if isinstance(key, tuple)]:
            layer = key[1]
            shard = await model.scatterreduce(grads.pop(key), layer, group="dp")
            grads[layer] = grads[layer] + shard if layer in grads else shard
        for key in [key for key in weights if isinstance(key, tuple)]:
            del weights[key]
        for layer in self.layers(stage) if stage is not None else ():
            weights["whole", layer] = await model.allgather(weights[layer], layer, group="dp")
        self.whole = stage

    async def update(self, layer: int) -> None:
        model = self.model
        grad = model.grad_weights.pop(layer)
        others = [self.peers[r] for r in self.table.ranks_of[layer // self.depth] if r != self.place]
        tag = 0 if self.tag is untagged else 2 * self.table.stages * self.table.batches + layer
        for other in others:  # a copy of the stage, with other microbatches
            await model.pass_to(other, grad, tag)
        for other in others:
            grad = grad + await model.receive(other, tag)
        if self.replicas > 1 and not self.sharded:
            grad = await model.allreduce(grad, layer, group="dp")
        weights, states = model.weights, model.opt_states
        weights[layer], states[layer] = model.update(layer, grad, weights[layer], states[layer])
