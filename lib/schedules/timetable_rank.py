"""What one rank does for its row of a timetable: stages of layers, messages, weights and updates."""

from collections import deque
from collections.abc import Sequence
from typing import Any

from lib import Activation, ActivationGrad, Model, Weight, WeightGrad
from lib.runtime.handles import Handle

from .cell_work import CellWork
from .cells import Cell, Slot
from .feasibility import by_message, untagged
from .timetable import Timetable


class TimetableRank(CellWork):
    """What one rank does for its row of the timetable."""

    def __init__(self, model: Model, table: Timetable, recompute: bool, sharded: bool, buffered: bool) -> None:
        self.model, self.table, self.recompute = model, table, recompute
        self.tag = by_message(table.stages) if buffered else table.tag
        self.travels = buffered and model.dist.setting.costs.overlap
        self.under_way: deque[Handle] = deque()
        """Messages that have been sent and not awaited."""
        axes = dict(model.dist.setting.mesh)
        alone = ((model.rank,), 0) if axes else (tuple(range(model.RANKS)), model.rank)
        self.peers, self.place = (model.axis("pp"), model.index("pp")) if "pp" in axes else alone
        self.replicas = axes.get("dp", 1)
        self.replica = model.index("dp") if "dp" in axes else 0
        self.first_batch = self.replica * table.batches
        self.sharded = sharded and self.replicas > 1
        self.depth = model.LAYERS // table.stages
        self.whole: int | None = None
        """The stage whose weights this rank has gathered, if they are sharded."""

    async def train(self) -> None:
        model = self.model
        mine = [layer for stage in self.table.stages_of(self.place) for layer in self.layers(stage)]
        shard = (self.replica, self.replicas) if self.sharded else (0, 1)
        for layer in mine:
            model.weights[layer], model.opt_states[layer] = model.load_weights(layer, *shard)
        await self.all_steps(mine)
        for handle in self.under_way:
            await handle
        for layer in mine:
            model.set_final_weight(layer, model.weights[layer])

    async def all_steps(self, mine: Sequence[int]) -> None:
        """Each step in its order, and then the updates."""
        for step in range(self.model.dist.setting.steps):
            for slot in self.table.rows[self.place]:
                await self.play(slot, step)
            await self.switch(None)
            for layer in mine:
                await self.update(layer)

    def layers(self, stage: int) -> range:
        return range(stage * self.depth, (stage + 1) * self.depth)

    async def play(self, slot: Slot, step: int) -> None:
        """Receives what a slot needs, computes its cells, and sends what they make."""
        await self.drop_what_arrived()
        await self.reach(slot[0])
        for message in self.table.needs.received(slot):
            self.keep(message.made, await self.model.receive(self.peers[message.source], self.tag(message)))
        outgoing = {message.made: message for message in self.table.needs.sent(slot)}
        made = await self.pair(slot, step) if self.pairs(slot) else dict[Cell, Any]()
        for cell in slot:
            if cell not in made:
                made[cell] = await self.compute(cell, step)
            if cell not in outgoing:  # the next stage is on this rank too
                self.keep(cell, made.pop(cell))
        for cell, message in outgoing.items():
            sent = self.model.pass_to(self.peers[message.to], made.pop(cell), self.tag(message))
            if self.travels:
                assert isinstance(sent, Handle)
                self.under_way.append(sent)
            else:
                await sent

    def pairs(self, slot: Slot) -> bool:
        """True if a slot is one operation: a forward and a backward of single layers, where a pair has a price."""
        kinds = sorted(cell.op for cell in slot)
        plain = not (self.recompute or self.sharded) and self.depth == 1
        return kinds == ["B", "F"] and plain and self.model.dist.setting.costs.priced("pair")

    async def drop_what_arrived(self) -> None:
        """Awaits the messages that need no waiting any more, which counts as memory until then."""
        now = round(self.model.time * self.model.dist.setting.costs.unit)
        while self.under_way and 0 <= self.under_way[0].call.end <= now:
            await self.under_way.popleft()

    async def compute(self, cell: Cell, step: int = 0) -> Activation | ActivationGrad | None:
        await self.reach(cell)
        return await super().compute(cell, step)

    # --- Inputs that are computed again ---

    def after_forward(self, cell: Cell, layer: int) -> None:
        if self.recompute and layer > self.layers(cell.stage).start:
            del self.model.activations[layer, cell.batch]

    async def before_backward(self, cell: Cell) -> None:
        """The inputs of a stage's layers from the input of the stage."""
        model, b = self.model, cell.batch
        for layer in self.layers(cell.stage)[:-1] if self.recompute else ():
            inp = model.activations[layer, b]
            model.activations[layer + 1, b] = model.forward(layer, inp, await self.weight(layer))

    # --- Weights ---

    async def weight(self, layer: int) -> Weight:
        return self.model.weights["whole", layer] if self.sharded else self.model.weights[layer]

    async def add(self, layer: int, new: WeightGrad) -> None:
        key = ("whole", layer) if self.sharded else layer
        grads = self.model.grad_weights
        grads[key] = grads[key] + new if key in grads else new

    async def reach(self, cell: Cell) -> None:
        """Has the weights that a cell needs."""
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
