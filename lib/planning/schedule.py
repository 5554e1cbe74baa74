"""The coroutine of a planned step: a pipeline of units, with replicas that share gradients, states or weights (ZeRO).

Every microbatch's message has a tag of its own, and a rank awaits a message before it sends the next one, so that it
computes while a message is under way. Gradients of a unit are reduced when its last microbatch has been through.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from functools import cached_property
from typing import Any, NamedTuple

from lib import Model, OptState, Weight, WeightGrad
from lib.schedules.cell_work import CellWork
from lib.schedules.cells import Cell, Message
from lib.schedules.timetable import Timetable


class Program(NamedTuple):
    """What ranks do: the order of the cells, units in a stage, and how replicas share."""

    table: Timetable
    units: int
    replicas: int = 1
    zero: int = 0
    overlap: bool = True
    recompute: bool = False
    offload: bool = False

    def layers(self, stage: int) -> range:
        """The units of a stage, which are the layers of the run."""
        return range(stage * self.units, (stage + 1) * self.units)

    def tag(self, message: Message) -> int:
        return message.stream + 2 * self.table.stages * message.made.batch

    def uses(self, place: int) -> Iterator[int]:
        """The layers whose weights a rank needs, in order."""
        for slot in self.table.rows[place]:
            for cell in slot:
                if cell.op != "W":
                    layers = self.layers(cell.stage)
                    yield from layers if cell.op == "F" else reversed(layers)


def planned(program: Program) -> Callable[[Model], Coroutine[Any, Any, None]]:
    """The schedule that plays a program, on a mesh with the axes dp (if there are replicas) and pp."""

    async def schedule(model: Model) -> None:
        await _Rank(model, program).train()

    return schedule


class _Rank(CellWork):
    """One rank. With ZeRO 3 `weights["whole"]` is a gathered weight."""

    def __init__(self, model: Model, program: Program) -> None:
        self.model, self.program, self.table = model, program, program.table
        self.peers, self.place = model.axis("pp"), model.index("pp")
        self.replica = model.index("dp") if program.replicas > 1 else 0
        self.first_batch = self.replica * self.table.batches
        self.zero = program.zero if program.replicas > 1 else 0
        self.sending: Any = None
        """The message under way."""
        self.reducing: list[tuple[int, Any]] = []
        """Layers whose gradients are on their way, and the calls."""
        self.fetching: Any = None
        """The state that comes from the host."""
        self.parking: tuple[int, Any] | None = None
        """The layer whose state is on its way to the host, and the call."""
        self.gathered: int | None = None
        self.coming: tuple[int, Any] | None = None
        """The layer that is being gathered, and the call."""
        self.uses = iter([*program.uses(self.place)] if self.zero == 3 else ())
        self.next: int | None = next(self.uses, None)
        self.left: dict[int, int] = dict.fromkeys(self.mine, self.table.batches)
        """By layer, the microbatches whose gradients are missing."""

    @cached_property
    def mine(self) -> list[int]:
        return [layer for stage in self.table.stages_of(self.place) for layer in self.program.layers(stage)]

    @property
    def shard(self) -> tuple[int, int]:
        return self.replica, self.program.replicas

    async def train(self) -> None:
        for layer in self.mine:
            self.load(layer)
        for slot in self.table.rows[self.place]:
            for cell in slot:
                await self.play(cell)
        if self.sending is not None:
            await self.sending
        await self.finish()

    def load(self, layer: int) -> None:
        model = self.model
        weight, state = model.load_weights(layer, *(self.shard if self.zero == 3 else (0, 1)))
        model.weights[layer] = weight
        if self.program.offload:
            shard = self.shard if self.zero else (0, 1)
            model.parked[layer] = model.load_weights(layer, *shard, tier="host")[1]
        else:
            model.opt_states[layer] = state.shard(*self.shard) if self.zero in (1, 2) else state

    # --- Cells ---

    async def play(self, cell: Cell) -> None:
        """Receives what a cell needs, computes it, and sends what it makes."""
        model, needs = self.model, self.table.needs
        for message in needs.received((cell,)):
            self.keep(message.made, await model.receive(self.peers[message.source], self.program.tag(message)))
        made = await self.compute(cell)
        for message in needs.sent((cell,)):
            if self.sending is not None:
                await self.sending
            self.sending = model.pass_to(self.peers[message.to], made, self.program.tag(message))
            return
        self.keep(cell, made)

    def layers(self, stage: int) -> range:
        return self.program.layers(stage)

    def before_layer_backward(self, cell: Cell, layer: int, weight: Weight) -> None:
        if self.program.recompute:
            self.model.forward(layer, self.model.activations[layer, cell.batch], weight)

    # --- Weights ---

    async def weight(self, layer: int) -> Weight:
        """The whole weight of a layer. With ZeRO 3 the next one is gathered while this one computes."""
        model = self.model
        if self.zero < 3:
            return model.weights[layer]
        if self.gathered != layer:
            model.weights.pop("whole", None)
            _, call = self.coming or (layer, self.gather(layer))
            model.weights["whole"] = await call
            self.gathered, self.coming = layer, None
        self.next = next(self.uses, None)
        if self.program.overlap and self.next not in (None, layer):
            self.coming = self.next, self.gather(self.next)
        return model.weights["whole"]

    def gather(self, layer: int) -> Any:
        return self.model.allgather(self.model.weights[layer], layer, group="dp")

    # --- Gradients ---

    async def add(self, layer: int, new: WeightGrad) -> None:
        """Adds a microbatch's gradient. It is reduced at once with ZeRO 2 and 3, else when it is the last."""
        self.left[layer] -= 1
        if self.zero < 2:
            self.sum_up(layer, new)
            if self.program.replicas > 1 and self.program.overlap and not self.left[layer]:
                self.start_reducing(layer, self.model.grad_weights.pop(layer))
            return
        await self.settle()
        self.start_reducing(layer, new)
        if not self.program.overlap:
            await self.settle()

    def start_reducing(self, layer: int, grad: WeightGrad) -> None:
        reduce = self.model.scatterreduce if self.zero else self.model.allreduce
        self.reducing.append((layer, reduce(grad, layer, group="dp")))

    def sum_up(self, layer: int, new: WeightGrad) -> None:
        grads = self.model.grad_weights
        grads[layer] = grads[layer] + new if layer in grads else new

    async def settle(self) -> None:
        while self.reducing:
            layer, call = self.reducing.pop(0)
            self.sum_up(layer, await call)

    # --- The end of the step ---

    async def finish(self) -> None:
        """Updates each layer when its gradient is there. Of ZeRO 1 and 2 each rank updates its shard, and gathers."""
        model = self.model
        model.weights.pop("whole", None)
        if self.zero > 1:
            await self.settle()
        elif self.program.replicas > 1 and not self.program.overlap:
            for layer in reversed(self.mine):
                self.start_reducing(layer, model.grad_weights.pop(layer))
        order = [layer for layer, _ in self.reducing] or self.mine[::-1]
        calls = dict(self.reducing)
        gathers = []
        for layer, after in zip(order, [*order[1:], None]):
            grad = await calls[layer] if layer in calls else model.grad_weights.pop(layer)
            state = await self.state(layer, after)
            weight = model.weights.pop(layer)
            weight = weight.shard(*self.shard) if self.zero in (1, 2) else weight
            model.weights[layer], state = model.update(layer, grad, weight, state)
            await self.put_back(layer, state)
            if self.zero in (1, 2):
                gathers.append((layer, self.gather(layer)))
        await self.parked()
        for layer, call in gathers:
            model.weights[layer] = await call
        for layer in order:
            model.set_final_weight(layer, model.weights[layer])

    # --- States in the host's memory ---

    async def state(self, layer: int, after: int | None) -> OptState:
        """The state of a layer, from the host while the one before it is used."""
        if not self.program.offload:
            return self.model.opt_states.pop(layer)  # type: ignore[no-any-return]
        state: OptState = await (self.fetching or self.fetch(layer))
        self.fetching = self.fetch(after) if after is not None else None
        return state

    def fetch(self, layer: int) -> Any:
        return self.model.fetch(self.model.parked.pop(layer))

    async def put_back(self, layer: int, state: OptState) -> None:
        if not self.program.offload:
            self.model.opt_states[layer] = state
            return
        await self.parked()
        self.parking = layer, self.model.offload(state, "host")

    async def parked(self) -> None:
        if self.parking is not None:
            layer, call = self.parking
            self.model.parked[layer] = await call
